//! What a model says, cut into thoughts, answer and tool calls while it arrives. How a family spells
//! these is in `reasoning/` and `tools/`, a file each; HTTP and its dialects are elsewhere.

pub(crate) mod calls;
mod code;
pub(crate) mod cursor;
mod splitter;
mod syntax;

pub use calls::Tools;
pub use splitter::Splitter;
pub use syntax::{Opening, Syntax};

/// A piece of an answer. Pieces of a kind that follow each other belong together.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Something the model thinks.
    Reasoning(String),
    /// Something it says.
    Text {
        /// Where this stands in everything the model wrote, in bytes.
        at: usize,
        /// A stretch of what it wrote, never empty.
        text: String,
    },
    /// It calls a tool.
    Begun {
        /// What the result will refer to.
        id: String,
        /// Which tool.
        name: String,
    },
    /// More of the JSON object of the arguments.
    Arguments(String),
    /// The call is complete.
    Ended,
}

/// Why an answer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model said so: what it left open counts as closed.
    Model,
    /// It was cut off: what is open stays open.
    Cut,
}
