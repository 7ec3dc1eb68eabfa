//! Workloads as data: what users do, in which sizes.
//!
//! A workload is a file in `bench/workloads` and a line in the list below, or any file of that form. What
//! comes of it for one run is a [`Script`].

mod script;

use std::path::Path;

use serde::Deserialize;

pub use script::{Keep, Script, Step, User, Writer};

use crate::error::Error;
use crate::record::Cell;

/// Workloads that come with the lab.
const BUILT_IN: &[(&str, &str)] = &[
    ("arrivals", include_str!("../../../../bench/workloads/arrivals.toml")),
    ("chat", include_str!("../../../../bench/workloads/chat.toml")),
    ("code-edit", include_str!("../../../../bench/workloads/code-edit.toml")),
    ("cold-start", include_str!("../../../../bench/workloads/cold-start.toml")),
    ("context", include_str!("../../../../bench/workloads/context.toml")),
    ("long-output", include_str!("../../../../bench/workloads/long-output.toml")),
    ("rag", include_str!("../../../../bench/workloads/rag.toml")),
    ("restart", include_str!("../../../../bench/workloads/restart.toml")),
    ("tools", include_str!("../../../../bench/workloads/tools.toml")),
    ("users", include_str!("../../../../bench/workloads/users.toml")),
];

/// Tokens that a chat template may add, for the reckoning of contexts.
const TEMPLATE: u32 = 128;

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name in files.
    pub name: String,
    /// Its name in charts.
    pub title: String,
    /// What users do.
    pub shape: Shape,
}

/// What users do. All lengths are in tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "shape", rename_all = "snake_case", deny_unknown_fields)]
pub enum Shape {
    /// One prompt of each length, template included.
    Sweep {
        /// Lengths of prompts.
        sizes: Vec<u32>,
        /// Length of answers.
        answer: u32,
    },
    /// A conversation: every answer stays in the history.
    Chat {
        /// Messages of the user.
        turns: u32,
        /// Length of the system's message.
        system: u32,
        /// Length of a message.
        message: u32,
        /// Length of an answer.
        answer: u32,
    },
    /// A program that shall be written again with a small change.
    Edit {
        /// Lengths of prompts.
        sizes: Vec<u32>,
        /// Length of answers.
        answer: u32,
    },
    /// Questions about the same documents, each without the others.
    Rag {
        /// Length of the documents.
        documents: u32,
        /// How many questions.
        questions: u32,
        /// Length of a question.
        question: u32,
        /// Length of an answer.
        answer: u32,
    },
    /// An agent: calls and their results, which are written here and not by the model.
    Tools {
        /// Calls.
        steps: u32,
        /// Length of a result.
        result: u32,
        /// Length of an answer.
        answer: u32,
    },
    /// Several users at once.
    Crowd {
        /// How many.
        users: Vec<u32>,
        /// Length of prompts.
        prompt: u32,
        /// Length of answers.
        answer: u32,
    },
    /// Users who come when they come: the gaps between them are exponential.
    Arrivals {
        /// How many in a minute, on average.
        per_minute: Vec<u32>,
        /// How many in all.
        requests: u32,
        /// Length of prompts.
        prompt: u32,
        /// Length of answers.
        answer: u32,
    },
    /// The engine is started again before the one question.
    Launch {
        /// Length of the prompt.
        prompt: u32,
        /// Length of the answer.
        answer: u32,
    },
    /// The same question twice, with a restart in between.
    Restart {
        /// Length of the prompt.
        prompt: u32,
        /// Length of the answers.
        answer: u32,
    },
}

/// What a file of a workload says, and a plan where it changes something.
#[derive(Deserialize)]
struct Head {
    title: String,
}

impl Workload {
    /// The workload called `name`, or in the file `name`, with `changes` in place of what it says.
    ///
    /// # Errors
    /// [`Error`] if there is none or it is not well formed.
    pub fn named(name: &str, changes: toml::Table) -> Result<Workload, Error> {
        let path = Path::new(name);
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let text = match built_in {
            Some(text) => text.to_owned(),
            None if name.ends_with(".toml") => {
                std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?
            }
            None => {
                let known: Vec<&str> = Workload::known().collect();
                let known = known.join(", ");
                let why = format!("no workload `{name}`: a .toml file, or one of {known}");
                return Err(Error::Plan(why));
            }
        };
        let fail = |error: toml::de::Error| Error::malformed(path, error);
        let mut table: toml::Table = toml::from_str(&text).map_err(fail)?;
        table.extend(changes);
        let head: Head = table.clone().try_into().map_err(fail)?;
        table.remove("title");
        let shape: Shape = table.try_into().map_err(fail)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let workload = Workload { name: stem, title: head.title, shape };
        if workload.cells().is_empty() {
            return Err(Error::malformed(path, "measures nothing"));
        }
        Ok(workload)
    }

    /// Names of all workloads that come with the lab.
    pub fn known() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// What is varied, and its values.
    pub fn cells(&self) -> Vec<Cell> {
        let cell = |axis: &str, at| Cell { workload: self.name.clone(), axis: axis.to_owned(), at };
        let each = |axis: &str, all: &[u32]| -> Vec<Cell> {
            all.iter().map(|&at| cell(axis, u64::from(at))).collect()
        };
        match &self.shape {
            Shape::Sweep { sizes, .. } | Shape::Edit { sizes, .. } => each("context", sizes),
            Shape::Crowd { users, .. } => each("users", users),
            Shape::Arrivals { per_minute, .. } => each("rate", per_minute),
            Shape::Chat { turns, .. } => vec![cell("turns", u64::from(*turns))],
            Shape::Rag { questions, .. } => vec![cell("turns", u64::from(*questions))],
            Shape::Tools { steps, .. } => vec![cell("turns", u64::from(*steps))],
            Shape::Launch { prompt, .. } | Shape::Restart { prompt, .. } => {
                vec![cell("context", u64::from(*prompt))]
            }
        }
    }

    /// Most users at once.
    pub fn users(&self) -> u32 {
        match &self.shape {
            Shape::Crowd { users, .. } => users.iter().copied().max().unwrap_or(1),
            // Whoever comes while all places are taken waits: that is what is measured.
            Shape::Arrivals { requests, .. } => (*requests).min(16),
            _ => 1,
        }
    }

    /// Whether the engine is started again in the middle of a run.
    pub fn restarts(&self) -> bool {
        matches!(self.shape, Shape::Launch { .. } | Shape::Restart { .. })
    }

    /// Tokens of context that one user needs at most.
    pub fn context(&self) -> u32 {
        let longest = |sizes: &[u32]| sizes.iter().copied().max().unwrap_or(0);
        TEMPLATE
            + match &self.shape {
                Shape::Sweep { sizes, answer } | Shape::Edit { sizes, answer } => {
                    longest(sizes) + answer
                }
                Shape::Chat { turns, system, message, answer } => {
                    system + turns * (message + answer + 16)
                }
                Shape::Rag { documents, question, answer, .. } => documents + question + answer,
                Shape::Tools { steps, result, answer } => 512 + steps * (result + 80) + answer,
                Shape::Crowd { prompt, answer, .. }
                | Shape::Arrivals { prompt, answer, .. }
                | Shape::Launch { prompt, answer }
                | Shape::Restart { prompt, answer } => prompt + answer,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_that_comes_along_is_well_formed() {
        for name in Workload::known() {
            let workload = Workload::named(name, toml::Table::new()).unwrap();
            assert_eq!(workload.name, name);
            assert!(workload.context() > TEMPLATE && workload.users() > 0);
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/workloads");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), BUILT_IN.len());
    }

    #[test]
    fn a_plan_changes_what_it_names() {
        let changes = toml::from_str("sizes = [64, 4096]").unwrap();
        let workload = Workload::named("context", changes).unwrap();
        assert_eq!(workload.cells().iter().map(|cell| cell.at).collect::<Vec<_>>(), [64, 4096]);
        assert_eq!(workload.context(), TEMPLATE + 4096 + 128);
        let fail = |changes: &str| {
            Workload::named("context", toml::from_str(changes).unwrap()).unwrap_err().to_string()
        };
        assert!(fail("users = [1]").contains("users"));
        assert!(fail("sizes = []").contains("nothing"));
        assert!(
            Workload::named("sleep", toml::Table::new()).unwrap_err().to_string().contains("rag")
        );
    }
}
