//! The benchmark lab: measures any server that speaks OpenAI's chat API, over HTTP, and makes tables,
//! charts and reports of it.
//!
//! It knows no engine from the inside, and that goes for ours too: engines and workloads are data. Nothing
//! here prints or reads flags. From a plan come records (`run`), from records measures with their doubts
//! (`measure`, `flag`), from measures of several runs summaries and verdicts (`stats`).

pub mod chart;
pub mod client;
pub mod clock;
pub mod engine;
mod error;
pub mod eval;
pub mod export;
pub mod flag;
pub mod journal;
pub mod lang;
pub mod measure;
pub mod plan;
pub mod prompt;
pub mod record;
pub mod results;
pub mod rng;
pub mod run;
pub mod stats;
pub mod workload;

pub use error::Error;
