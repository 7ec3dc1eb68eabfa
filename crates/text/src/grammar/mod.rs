//! What an answer may say: from a format, a JSON schema say, to the tokens that may come next.
//!
//! The grammars and the automata over bytes are `llguidance`'s. Here is what it is given: schemas of
//! which every word is enforced (`schema.rs`), a vocabulary of bytes exactly as the detokenizer sees
//! them (`vocabulary.rs`), and bounds for what a hostile format may cost. Sampling and threads are not
//! its business: a [`Run`] is a pure function of the tokens that were pushed.

mod answer;
mod arguments;
mod bounds;
mod compile;
mod elements;
mod lark;
mod numbers;
mod plain;
mod refs;
mod run;
mod schema;
mod vocabulary;

pub use answer::{Asked, Calls, Duty, Number};
pub use compile::{Grammar, Grammars};
pub use run::{Allowed, Run};

use serde_json::Value;

/// What a text must look like.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Anything.
    #[default]
    Free,
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema allows.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// What it leaves open.
        strictness: Strictness,
    },
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of a grammar in Lark's notation, whose first rule is `start`.
    Lark(String),
}

/// What a JSON schema means where it leaves something open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// What the standard says: objects may have properties that are not in the schema.
    Standard,
    /// Objects whose properties are named have no others.
    Closed,
}

/// A format that cannot be enforced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct GrammarError {
    /// Where in the format, as in `.properties.size.not` or `[2]`; empty for all of it.
    pub path: String,
    /// What is wrong there, and what would do.
    pub problem: String,
}

/// What an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The format.
    Format,
    /// The tools; the path begins with the number of one.
    Tools,
    /// That a model of this kind is held to anything.
    Calls,
}

/// An answer that cannot be held to what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Fault {
    /// What is at fault.
    pub part: Part,
    /// What is wrong with it.
    pub error: GrammarError,
}

impl GrammarError {
    pub(crate) fn whole(problem: impl Into<String>) -> GrammarError {
        GrammarError { path: String::new(), problem: problem.into() }
    }
}
