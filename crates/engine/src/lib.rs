//! Requests in, tokens out.
//!
//! [`Engine`] is ordinary single-threaded code: it admits requests, plans passes, has an
//! [`Executor`] run them, and keeps what came out. [`Handle`] puts one on a thread of its own.
//! Nothing here knows a device, a text or a socket, or asks for the time.
//!
//! **Invariant:** how requests were queued, batched, cut into chunks or served from the prefix
//! cache never changes what any of them says.

mod cache;
mod engine;
mod executor;
mod handle;
mod model;
mod plan;
mod request;
mod sampler;
mod seq;
mod sink;
mod stats;

// What an executor is handed, so that whoever writes one needs no other crate.
pub use backend::{BLOCK, Batch, BlockId, DeviceError, Span, TokenId};
pub use engine::{Clock, Engine, Limits};
pub use executor::{Executor, ExecutorShape};
pub use handle::{Handle, start};
pub use model::ModelExecutor;
pub use request::{
    Bounds, Constraint, Event, MAX_ALTERNATIVES, Refused, Request, RequestId, Sink, StopReason,
    TokenLogprob, Usage,
};
pub use sampler::{Sampling, Xtc};
pub use sink::{Answer, AnswerSink, answer};
pub use stats::{Blocks, Stats, Totals};
