//! The models of a server: which are loaded, who uses them, and who has to make room.
//!
//! A model is loaded when somebody asks for it, and unloaded when another needs its memory, when
//! nobody has used it for a while, or on demand; never while an answer is being made with it. One
//! thread, the keeper, loads and unloads, one model at a time. Requests for a model that is not
//! there wait for it without holding a thread; those for models that are there never notice.
//!
//! Not here: files, devices and what memory a machine has. That is a [`Loader`]'s business.

mod keeper;
mod lease;
mod room;
mod state;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::error::{ApiError, ErrorKind};
use crate::model::Model;

pub use lease::{Access, Lease, Leaving, Waiting};
pub use room::human_bytes;
use state::{Entry, Stage, State};

/// Makes models. Called by the keeper's thread alone, and may take its time.
pub trait Loader: Send + Sync + 'static {
    /// What a model takes and offers, from the headers of its files.
    ///
    /// # Errors
    /// Files that are missing or make no sense.
    fn survey(&self, name: &Name) -> Result<Survey, LoadError>;

    /// A model that is ready to answer. The same files must give the same model, whatever else is
    /// loaded.
    ///
    /// # Errors
    /// As [`Loader::survey`], and whatever else can go wrong.
    fn load(&self, name: &Name) -> Result<Model, LoadError>;

    /// Bytes of memory that the process holds now, without the mapped files of models.
    fn anonymous_bytes(&self) -> u64;

    /// What the device that models compute on holds, where it keeps books of its own.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }
}

/// What a device holds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In weights, caches and whatever it computes with.
    pub active: u64,
    /// Kept for what is to come.
    pub cached: u64,
    /// The most that was active at once.
    pub peak: u64,
}

/// What a model is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name in answers.
    pub id: String,
    /// Other names it answers to. `default` need not be among them.
    pub aliases: Vec<String>,
}

/// What is known of a model without loading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Memory it takes at most when it is loaded and its cache is full.
    pub bytes: u64,
    /// How much of that is files that are mapped, not copied.
    pub mapped_bytes: u64,
    /// Tokens of prompt and answer together.
    pub context: usize,
}

/// Why a model could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It can never fit into the memory it may use. The text has the numbers.
    #[error("{0}")]
    TooLarge(String),
    /// Anything else. Another try may go better.
    #[error("{0}")]
    Failed(String),
}

/// What a pool goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Memory of all models and the process around them, in bytes.
    pub memory: u64,
    /// What the process takes of that without any model.
    pub baseline: u64,
    /// A model that nobody used for so long is unloaded.
    pub idle_ttl: Option<Duration>,
    /// Requests that may wait for one model to be loaded.
    pub waiting: usize,
    /// How long a model may wait for others to make room before those who want it are refused.
    pub patience: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            memory: u64::MAX,
            baseline: 0,
            idle_ttl: None,
            waiting: 128,
            patience: Duration::from_secs(120),
        }
    }
}

/// What a pool asks for the time. Any origin will do.
pub type PoolClock = Box<dyn Fn() -> Duration + Send + Sync>;

/// How long a model that nobody uses stays in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stay {
    /// As the pool's rules say.
    #[default]
    Usual,
    /// So long; not at all if that is nothing.
    For(Duration),
    /// Until another needs its memory.
    Always,
}

/// Where a model is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Answers at once.
    Loaded,
    /// Being loaded, or waiting for others to make room.
    Loading,
    /// Takes no new requests and is gone when its running answers are done.
    Unloading,
    /// Loaded on the next request.
    Unloaded,
    /// The last try to load it failed; the next request tries again.
    Failed,
}

impl Status {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Loaded => "loaded",
            Status::Loading => "loading",
            Status::Unloading => "unloading",
            Status::Unloaded => "unloaded",
            Status::Failed => "failed",
        }
    }
}

/// One model of a pool as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// What it is called.
    pub name: Name,
    /// Seconds since 1970 when it joined the pool.
    pub created: u64,
    /// Where it is in its life.
    pub status: Status,
    /// Whether it is never unloaded but on demand.
    pub pinned: bool,
    /// Requests that use it now.
    pub in_use: usize,
    /// Requests that wait for it to be loaded.
    pub waiting: usize,
    /// What it takes; `None` until its files were looked at.
    pub survey: Option<Survey>,
    /// How long it stays if nobody uses it; `None` while somebody does, and if nothing limits it.
    pub expires_in: Option<Duration>,
    /// Why the last try to load it failed.
    pub error: Option<String>,
}

/// The memory of a pool as it is now, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMemory {
    /// What all of it may take.
    pub limit: u64,
    /// What the loaded models may come to take, and the process around them.
    pub reserved: u64,
    /// What the process holds now: its own memory, and the mapped files of loaded models.
    pub measured: u64,
    /// What the device says that it holds, if it says anything.
    pub device: Option<DeviceMemory>,
}

/// The models of a server. The first is the default.
pub struct ModelPool {
    inner: Arc<Inner>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What handlers, leases and the keeper share.
struct Inner {
    state: Mutex<State>,
    /// Something happened that the keeper may have to act upon.
    changed: Condvar,
    loader: Box<dyn Loader>,
    rules: Rules,
    clock: PoolClock,
}

impl ModelPool {
    /// A pool of models none of which is loaded yet.
    pub fn start(
        names: Vec<Name>,
        loader: Box<dyn Loader>,
        rules: Rules,
        clock: PoolClock,
    ) -> ModelPool {
        let created = crate::answer::Arrival::now("").unix_seconds;
        let entries = names.into_iter().map(|name| Entry::new(name, created)).collect();
        ModelPool::with(entries, loader, rules, clock)
    }

    /// A pool of models that are there already. They can not be loaded again, so they stay.
    pub fn fixed(models: Vec<Model>) -> ModelPool {
        let entries = models.into_iter().map(Entry::loaded).collect();
        let origin = Instant::now();
        let clock: PoolClock = Box::new(move || origin.elapsed());
        ModelPool::with(entries, Box::new(NoLoader), Rules::default(), clock)
    }

    fn with(
        entries: Vec<Entry>,
        loader: Box<dyn Loader>,
        rules: Rules,
        clock: PoolClock,
    ) -> ModelPool {
        let inner = Arc::new(Inner {
            state: Mutex::new(State::new(entries)),
            changed: Condvar::new(),
            loader,
            rules,
            clock,
        });
        let run = {
            let inner = Arc::clone(&inner);
            move || keeper::run(&inner)
        };
        // Without a thread nothing is ever loaded: the pool stops and says so to everybody.
        let keeper = std::thread::Builder::new().name("models".into()).spawn(run).ok();
        if keeper.is_none() {
            inner.lock().stopping = true;
        }
        ModelPool { inner, keeper: Mutex::new(keeper) }
    }

    /// A model to answer with, now or once it is loaded. `name` is an id, an alias or `default`.
    ///
    /// # Errors
    /// No such model, too many who wait for it, or a server that shuts down.
    pub fn access(&self, name: &str) -> Result<Access, ApiError> {
        let mut state = self.inner.lock();
        let at = state.find(name)?;
        if state.stopping {
            return Err(shutting_down());
        }
        let now = (self.inner.clock)();
        let waiting = self.inner.rules.waiting;
        let entry = &mut state.entries[at];
        if let Stage::Loaded(model) = &entry.stage {
            let model = Arc::clone(model);
            entry.in_use += 1;
            entry.last_used = now;
            return Ok(Access::Ready(Lease::new(model, Arc::clone(&self.inner), at)));
        }
        // Those who left meanwhile keep nobody out.
        entry.waiters.retain(|waiter| !waiter.is_closed());
        if entry.waiters.len() >= waiting {
            let message = format!(
                "{waiting} requests are waiting for model `{}` to be loaded; try again later",
                entry.name.id
            );
            return Err(ApiError::new(ErrorKind::Overloaded, "overloaded", message));
        }
        let (sender, receiver) = oneshot::channel();
        entry.waiters.push(sender);
        state.want(at, now);
        self.inner.changed.notify_all();
        Ok(Access::Later(Waiting::new(receiver, Arc::clone(&self.inner))))
    }

    /// Closes a model for new requests; what comes back is done when it is gone. Requests that come
    /// meanwhile bring it back afterwards.
    ///
    /// # Errors
    /// No such model, one that is pinned or could not be loaded again, or a server that shuts down.
    pub fn unload(&self, name: &str) -> Result<Leaving, ApiError> {
        let mut state = self.inner.lock();
        let at = state.find(name)?;
        if state.stopping {
            return Err(shutting_down());
        }
        let entry = &mut state.entries[at];
        if entry.pinned {
            let message = format!("model `{}` is pinned; unpin it first", entry.name.id);
            return Err(ApiError::new(ErrorKind::Conflict, "model_pinned", message));
        }
        if entry.is_given() {
            let message = format!("model `{}` could not be loaded again: it stays", entry.name.id);
            return Err(ApiError::new(ErrorKind::Conflict, "model_fixed", message));
        }
        let (sender, receiver) = oneshot::channel();
        entry.leavers.push(sender);
        entry.close();
        self.inner.changed.notify_all();
        Ok(Leaving(receiver))
    }

    /// Says whether a model may be unloaded to make room or because nobody uses it.
    ///
    /// # Errors
    /// No such model.
    pub fn pin(&self, name: &str, pinned: bool) -> Result<(), ApiError> {
        let mut state = self.inner.lock();
        let at = state.find(name)?;
        state.entries[at].pinned = pinned;
        self.inner.changed.notify_all();
        Ok(())
    }

    /// Every model, in the order of the pool.
    pub fn list(&self) -> Vec<Listing> {
        let state = self.inner.lock();
        state.entries.iter().map(|entry| self.inner.listing(entry)).collect()
    }

    /// One model.
    ///
    /// # Errors
    /// No such model.
    pub fn listing(&self, name: &str) -> Result<Listing, ApiError> {
        let state = self.inner.lock();
        Ok(self.inner.listing(&state.entries[state.find(name)?]))
    }

    /// Every model that is loaded.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.inner.lock().entries.iter().filter_map(|entry| entry.model().cloned()).collect()
    }

    /// How much memory there is and where it goes.
    pub fn memory(&self) -> PoolMemory {
        let state = self.inner.lock();
        PoolMemory {
            limit: self.inner.rules.memory,
            reserved: self.inner.rules.baseline.saturating_add(state.reserved()),
            measured: self.inner.measured(&state),
            device: self.inner.loader.device_memory(),
        }
    }

    /// Has the keeper look at the clock again.
    pub fn wake(&self) {
        self.inner.wake();
    }

    /// Takes nothing new, loads nothing more, and waits until what runs is finished.
    pub fn shutdown(&self) {
        self.inner.stop();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            // It catches what a loader panics with, so there is nothing to learn from how it ended.
            let _ = keeper.join();
        }
    }
}

impl Drop for ModelPool {
    fn drop(&mut self) {
        self.inner.stop();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock, and ours leaves the books balanced at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    fn listing(&self, entry: &Entry) -> Listing {
        entry.listing(self.rules.idle_ttl, (self.clock)())
    }

    /// What the process holds now: its own memory and the mapped files of loaded models.
    fn measured(&self, state: &State) -> u64 {
        self.loader.anonymous_bytes().saturating_add(state.mapped())
    }
}

fn shutting_down() -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "shutting_down", "the server is shutting down")
}

/// Of pools whose models are there from the start.
struct NoLoader;

impl NoLoader {
    fn refuse(name: &Name) -> LoadError {
        LoadError::Failed(format!("model `{}` cannot be loaded again", name.id))
    }
}

impl Loader for NoLoader {
    fn survey(&self, name: &Name) -> Result<Survey, LoadError> {
        Err(NoLoader::refuse(name))
    }

    fn load(&self, name: &Name) -> Result<Model, LoadError> {
        Err(NoLoader::refuse(name))
    }

    fn anonymous_bytes(&self) -> u64 {
        0
    }
}
