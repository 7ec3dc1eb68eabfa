//! What the lab writes down: one line of JSON for each thing that happened, with every raw time.
//!
//! This is the format of `records.jsonl` (docs/lab.md), version [`SCHEMA`]. Nothing here is computed from
//! times: measures are made of records when they are read, so a better measure needs no new run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the format. It changes when an old reader would misread a new line; new fields alone
/// don't change it.
pub const SCHEMA: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// The first line: what was to be done.
    Lab(Lab),
    /// What it is measured on; once for each time the lab was started.
    Machine(Machine),
    /// An engine was started, or could not be.
    Start(Start),
    /// One run of one cell, with all its requests.
    Run(Run),
    /// An engine was stopped.
    Stop(Stop),
    /// The lab ended: all was done, or it was interrupted.
    End(End),
}

/// What was to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Version of the lab.
    pub version: String,
    /// Seconds since 1970.
    pub started: u64,
    /// Name of the plan.
    pub name: String,
    /// The plan, as text, with everything that was resolved when it was read.
    pub plan: String,
    /// Two runs with the same one were asked for the same.
    pub fingerprint: String,
    /// Two labels of the same engine, whose difference is noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<[String; 2]>,
    /// Time limits of goodput.
    #[serde(default)]
    pub target: Target,
    /// Sampling settings as they are sent.
    pub sampling: BTreeMap<String, serde_json::Value>,
}

/// What answers have to keep so that they count as good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Target {
    /// Milliseconds to the first token, at most.
    pub ttft_ms: f64,
    /// Milliseconds per further token of an answer, on average, at most.
    pub tpot_ms: f64,
}

impl Default for Target {
    fn default() -> Target {
        Target { ttft_ms: 2000.0, tpot_ms: 100.0 }
    }
}

/// What it is measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Seconds since 1970.
    pub at: u64,
    /// Name of the processor.
    pub cpu: String,
    /// Processors that the system shows.
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Operating system.
    pub system: String,
    /// Bytes per second of streaming reads, by all processors together, measured by the lab.
    pub bandwidth: Option<f64>,
    /// 8-bit multiply-adds per second, by all processors together, measured by the lab.
    pub int8_macs: Option<f64>,
    /// Processors that others kept busy just before these were measured: they are too low then.
    pub foreign: Option<f64>,
    /// Microseconds that the client itself adds to a first token: its median over a server of its own
    /// that answers at once.
    pub client_us: Option<f64>,
}

/// How busy, warm and fast the machine was at a moment. What the system does not say is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Runnable processes, averaged over a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Processors that others kept busy during the pause before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<f64>,
    /// Mean clock of the processors, in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mhz: Option<f64>,
    /// Hottest sensor, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub celsius: Option<f64>,
    /// Joules used since some beginning, by the processor's own counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
}

/// An engine was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The arm: an engine with a model and its settings.
    pub arm: String,
    /// The model.
    pub model: String,
    /// The block of runs that it was started for.
    pub block: u32,
    /// What was run.
    pub command: Vec<String>,
    /// What the engine says its version is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Seconds from the start of the process until it said that it was ready.
    pub ready_s: Option<f64>,
    /// Why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What one token of this model costs, where the model's files say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
}

/// What one token costs, whoever computes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Bytes of weights that decoding one token reads.
    pub weight_bytes: f64,
    /// Bytes of keys and values that one position adds to them, at 16 bits each.
    pub kv_bytes: f64,
    /// Multiply-adds of the layers' matrices for one token of a prompt.
    pub prompt_macs: f64,
}

/// An engine was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The arm.
    pub arm: String,
    /// The model.
    pub model: String,
    /// The block of runs.
    pub block: u32,
    /// Most bytes that the processes had for themselves at once, without pages of files.
    pub peak_private: Option<u64>,
    /// Most bytes that they had in memory at once, pages of files included.
    pub peak_resident: Option<u64>,
}

/// Why the lab ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Everything of the plan is there, but for engines that did not start: their starts say why.
    pub complete: bool,
}

/// Which runs belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Workload it belongs to.
    pub workload: String,
    /// What is varied: `context`, `users`, `rate`, or nothing.
    pub axis: String,
    /// Its value here.
    pub at: u64,
}

/// One run of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The arm.
    pub arm: String,
    /// The model.
    pub model: String,
    /// The block of interleaved runs: those of one block were made near each other.
    pub block: u32,
    /// Whether it counts.
    pub phase: Phase,
    /// What was measured.
    pub cell: Cell,
    /// How the machine was before.
    pub before: State,
    /// How it was afterwards.
    pub after: State,
    /// Its requests, by when they were sent.
    pub turns: Vec<Turn>,
}

/// Whether a run counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The first request after a start: a number of its own, and no part of any other.
    ColdStart,
    /// Discarded.
    WarmUp,
    /// Counts.
    Measured,
}

/// One request and its answer. Times are microseconds since the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Turn {
    /// Which of the users at once.
    pub user: u32,
    /// Which of the user's requests.
    pub turn: u32,
    /// What the cache may have of it.
    pub expects: Expects,
    /// Tokens that the prompt was made to have.
    pub wanted: Option<u32>,
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// When the question was sent.
    pub asked_us: u64,
    /// When the head of the answer came.
    pub head_us: Option<u64>,
    /// Everything of the answer that had text, when it came.
    pub arrivals: Vec<Arrival>,
    /// When the stream ended, or broke.
    pub ended_us: u64,
    /// What the server says it used.
    pub usage: Option<Usage>,
    /// What a tokenizer counted.
    pub counted: Counted,
    /// Why the answer ended, as the server says.
    pub finish: Option<String>,
    /// What went wrong.
    pub error: Option<Trouble>,
    /// The answer.
    pub answer: String,
    /// The thoughts before it.
    pub thoughts: String,
    /// Names and arguments of its calls, as they came.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub calls: String,
}

/// What the server's cache may have of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expects {
    /// Nothing: a hit makes the measurement worthless.
    #[default]
    Cold,
    /// The beginning, from an earlier request of the same process.
    Warm,
    /// The beginning, from before a restart.
    Restarted,
}

/// A piece of an answer: when it came, of what kind it is, how many bytes of text it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival(pub u64, pub Channel, pub u32);

/// What a piece of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    /// The answer.
    #[serde(rename = "a")]
    Answer,
    /// A thought.
    #[serde(rename = "t")]
    Thought,
    /// A call of a tool.
    #[serde(rename = "c")]
    Call,
}

/// What a server says it used, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: u32,
    /// Of the answer, thoughts included.
    pub completion: u32,
    /// Of the prompt, those that were not computed again.
    pub cached: Option<u32>,
    /// Of the answer, thoughts.
    pub thoughts: Option<u32>,
    /// Guessed.
    pub drafted: Option<u32>,
    /// Guessed right.
    pub accepted: Option<u32>,
}

/// What the lab's own tokenizer counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// Of the texts of the prompt, without the template.
    pub prompt: Option<u32>,
    /// Of the answer, calls left out.
    pub answer: Option<u32>,
    /// Of the thoughts.
    pub thoughts: Option<u32>,
    /// Of the first piece.
    pub first: Option<u32>,
}

/// What went wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Trouble {
    /// No answer at all.
    Unreachable {
        /// What the system says.
        why: String,
    },
    /// An answer that is an error.
    Refused {
        /// HTTP status.
        status: u16,
        /// Beginning of its body.
        why: String,
    },
    /// An error in the middle of a stream.
    Failed {
        /// What the server says.
        why: String,
    },
    /// The stream ended before its end was announced.
    Cut {
        /// What the system says.
        why: String,
    },
    /// Something that is no event of such a stream.
    Garbled {
        /// Its beginning.
        why: String,
    },
    /// Whoever measures was asked to stop.
    Interrupted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_short_lines() {
        let arrival = Arrival(1500, Channel::Thought, 4);
        assert_eq!(serde_json::to_string(&arrival).unwrap(), r#"[1500,"t",4]"#);
    }

    #[test]
    fn a_reader_takes_fields_that_it_does_not_know() {
        let line = r#"{"kind":"end","complete":true,"later":"field"}"#;
        assert_eq!(
            serde_json::from_str::<Record>(line).unwrap(),
            Record::End(End { complete: true })
        );
    }
}
