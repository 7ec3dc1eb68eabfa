//! HTTP: dialects, streaming, and the layer that turns a conversation into text, which the
//! terminal chat uses too. No flags, no environment, no device, no scheduling.
//!
//! **Invariant:** a handler never touches the engine's state. It hands in a [`ChatRequest`] and
//! reads [`Event`]s; when the client goes away the [`Answer`] is dropped, and that is the
//! cancellation.

mod answer;
mod app;
mod arguments;
mod books;
mod budget;
mod choice;
mod describe;
mod dialects;
mod edge;
mod endpoint;
mod error;
mod event;
mod fields;
mod frames;
mod generation;
mod identify;
mod json;
mod kept;
mod live;
mod metrics;
mod model;
mod offer;
mod patience;
mod pool;
mod prompt;
mod pump;
mod request;
mod route;
mod routes;
mod sampling;
mod serve;
mod service;
mod shape;
mod stream;
mod voice;
mod watch;

pub use answer::{Answer, Arrival, Head};
pub use app::{App, Footprint, Settings, Shared};
pub use edge::{Edge, Key, Keys};
pub use error::{ApiError, ErrorKind};
pub use event::{CallPart, Event, FinishReason, Piece, Scored, Timings, Usage};
pub use generation::{BadTokens, Generation, GenerationFiles};
pub use live::Live;
pub use metrics::Metrics;
pub use model::{ContextLimit, Defaults, Model};
pub use pool::{
    Access, DeviceMemory, Lease, Leaving, Listing, LoadError, Loader, ModelPool, Name, PoolClock,
    PoolMemory, Rules, Status, Stay, Survey, Waiting, human_bytes,
};
pub use request::{
    Calls, ChatRequest, Conversation, Echo, EndOfText, Format, Input, Overrides, Prompt,
    Strictness, ToolChoice,
};
pub use routes::router;
pub use serve::{DEFAULT_ADDRESS, serve};
pub use service::ChatService;
pub use shape::Shapes;
pub use watch::Visit;
