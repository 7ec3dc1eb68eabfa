//! What every handler shares.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{Bounds, Stats};

use crate::edge::{Edge, Rates};
use crate::error::{ApiError, ErrorKind};
use crate::kept::Kept;
use crate::model::Model;
use crate::service::ChatService;

/// A server's models and settings. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

/// The inside of an [`App`].
pub struct Shared {
    /// The models.
    pub chat: ChatService,
    /// How the HTTP side behaves.
    pub settings: Settings,
    /// Who may ask.
    pub(crate) edge: Edge,
    /// Answers that later requests may name.
    pub(crate) kept: Kept,
    /// How often its clients have asked.
    pub(crate) rates: Rates,
    /// When the server was put together.
    pub(crate) started: Instant,
    draining: AtomicBool,
}

/// How the HTTP side behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Largest body that is read.
    pub max_body_bytes: usize,
    /// Connections that are served at once; more wait until one is closed.
    pub max_connections: usize,
    /// How long a client may take to send the head of a request, and how long a connection may
    /// stay open without any.
    pub head_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a client may take nothing of what it is sent. After that its connection is closed,
    /// and its answer cancelled.
    pub write_timeout: Duration,
    /// A stream that has been silent for this long sends a comment, so that no proxy gives up
    /// while a long prompt is computed.
    pub keep_alive: Duration,
    /// How long running answers may go on after the server was told to stop.
    pub grace: Duration,
    /// How long an answer may take at most, whatever its request says.
    pub request_timeout: Option<Duration>,
    /// Measures the process; `None` where the system does not say.
    pub footprint: fn() -> Option<Footprint>,
}

/// What a process takes of the machine's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// All that is in RAM.
    pub resident: u64,
    /// Of this, what is nowhere else: caches, buffers, stacks.
    pub anonymous: u64,
    /// Of this, what is mapped from files and can be read again, such as weights.
    pub files: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_body_bytes: 8 << 20,
            max_connections: 512,
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(10),
            grace: Duration::from_secs(30),
            request_timeout: None,
            footprint: || None,
        }
    }
}

/// A model whose engine runs, as of now.
pub(crate) struct Loaded {
    pub(crate) id: String,
    pub(crate) stats: Stats,
    pub(crate) bounds: Bounds,
    /// How keys and values are stored.
    pub(crate) kv_format: &'static str,
    /// The engine's thread is there.
    pub(crate) alive: bool,
}

impl Loaded {
    /// Cache blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.bounds.blocks
    }
}

impl App {
    /// Puts a server together that needs no key.
    pub fn new(chat: ChatService, settings: Settings) -> App {
        App::with_edge(chat, settings, Edge::default())
    }

    /// Puts a server together that lets in whom `edge` says.
    pub fn with_edge(chat: ChatService, settings: Settings, edge: Edge) -> App {
        let (started, draining) = (Instant::now(), AtomicBool::new(false));
        let (kept, rates) = (Kept::default(), Rates::default());
        App(Arc::new(Shared { chat, settings, edge, kept, rates, started, draining }))
    }
}

impl Shared {
    /// The models whose engines run.
    pub(crate) fn loaded(&self) -> Vec<Loaded> {
        let loaded = |model: &Arc<Model>| Loaded {
            id: model.id.clone(),
            stats: model.engine.stats(),
            bounds: model.engine.bounds(),
            kv_format: model.kv_format,
            alive: model.engine.is_alive(),
        };
        self.chat.models().iter().map(loaded).collect()
    }

    /// From now on nothing new is begun.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// What a request is told that comes while the server stops.
    pub(crate) fn check_draining(&self) -> Result<(), ApiError> {
        if self.is_draining() {
            let message = "the server is shutting down and takes nothing new";
            return Err(ApiError::new(ErrorKind::Unavailable, "shutting_down", message));
        }
        Ok(())
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
