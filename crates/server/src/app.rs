//! What every handler shares.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

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
}

/// How the HTTP side behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Largest body that is read.
    pub max_body_bytes: usize,
    /// A stream that has been silent for this long sends a comment, so that no proxy gives up
    /// while a long prompt is computed.
    pub keep_alive: Duration,
    /// How long running answers may go on after the server was told to stop.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_body_bytes: 8 << 20,
            keep_alive: Duration::from_secs(10),
            grace: Duration::from_secs(30),
        }
    }
}

impl App {
    /// Puts a server together.
    pub fn new(chat: ChatService, settings: Settings) -> App {
        App(Arc::new(Shared { chat, settings }))
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Names one HTTP request in answers, headers and logs.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);
