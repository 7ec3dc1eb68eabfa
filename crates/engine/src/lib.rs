//! Requests in, tokens out.
//!
//! [`Engine`] is ordinary single-threaded code: it admits requests, plans passes, has an
//! [`Executor`] run them, and keeps what came out. [`Handle`] puts one on a thread of its own.
//! Nothing here knows a device, a text or a socket, or asks for the time; files are known to the disk
//! tier of the cache alone.
//!
//! **Invariant:** how requests were queued, batched, cut into chunks or served from the prefix
//! cache never changes what any of them says.

mod admit;
mod cache;
mod cost;
mod device;
mod engine;
mod event;
mod executor;
mod handle;
mod line;
mod model;
mod pace;
mod park;
mod pass;
mod plan;
mod refuse;
mod request;
mod restore;
mod sampler;
mod seq;
mod share;
mod sink;
mod spread;
mod stats;
mod stops;
mod tempo;

// What an executor is handed, so that whoever writes one needs no other crate.
pub use backend::{BLOCK, Batch, BlockId, DeviceError, KvGroup, SlotId, Span, TokenId};
pub use cache::{DiskCleared, DiskError, DiskOptions, DiskStats};
pub use cost::{Cost, Shares, Traffic};
pub use device::Device;
pub use engine::{Cleared, Clock, Engine, Limits};
pub use event::{Event, Failure, Miss, StopReason, TokenLogprob, Usage};
pub use executor::{Executor, ExecutorShape};
pub use handle::{Handle, start, start_with_disk};
pub use model::ModelExecutor;
pub use refuse::{Bounds, Refused};
pub use request::{Constraint, MAX_ALTERNATIVES, Request, RequestId, Sink};
pub use sampler::{Sampling, Suppressed, Xtc};
pub use sink::{Answer, AnswerSink, answer};
pub use spread::Spread;
pub use stats::{Blocks, Misses, Pace, Panes, Passes, States, Stats, Totals};
