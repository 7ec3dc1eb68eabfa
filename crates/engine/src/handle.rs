//! The engine on a thread of its own, and the way to it.
//!
//! No decisions about requests here but whether the queue is full: those are the engine's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::{Bounds, Engine, Executor, Limits, Refused, Request, RequestId, Stats};

/// A way to one engine. Clones lead to the same one. When the last is dropped, the engine finishes
/// the answers that somebody still listens to, and its thread ends.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

enum Command {
    Submit(Box<Request>, Instant),
    Shutdown,
}

/// What the engine's thread and its handles both see.
struct Shared {
    limits: Limits,
    bounds: Bounds,
    draining: AtomicBool,
    /// Requests accepted and not yet ended.
    in_flight: AtomicUsize,
    n_accepted: AtomicU64,
    stats: Mutex<Stats>,
}

/// Starts an engine's thread. It sleeps while there is nothing to do.
pub fn start(executor: Box<dyn Executor>, limits: Limits) -> Handle {
    let origin = Instant::now();
    let engine = Engine::new(executor, limits, Box::new(move || origin.elapsed()));
    let shared = Arc::new(Shared {
        limits: engine.limits(),
        bounds: engine.bounds(),
        draining: AtomicBool::new(false),
        in_flight: AtomicUsize::new(0),
        n_accepted: AtomicU64::new(0),
        stats: Mutex::new(engine.stats()),
    });
    let (commands, receiver) = channel();
    let run = {
        let shared = Arc::clone(&shared);
        move || Worker { engine, commands: receiver, shared, origin, stopping: false }.run()
    };
    // Without a thread the receiver is dropped, and every request is refused as `Dead`.
    let thread = std::thread::Builder::new().name("engine".into()).spawn(run).ok();
    Handle { commands, shared, thread: Arc::new(Mutex::new(thread)) }
}

impl Handle {
    /// Hands a request to the engine, or says at once why not. Whatever is accepted gets
    /// [`crate::Event::Done`] or [`crate::Event::Failed`] in the end, unless its sink closes first.
    pub fn submit(&self, request: Request) -> Result<RequestId, Refused> {
        let shared = &self.shared;
        if shared.draining.load(Ordering::Acquire) {
            return Err(Refused::ShuttingDown);
        }
        shared.bounds.check(&request)?;
        let limit = shared.limits.queue;
        let most = shared.limits.seqs.saturating_add(limit);
        let room = |n: usize| (n < most).then_some(n + 1);
        let counted = shared.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, room);
        counted.map_err(|_| Refused::QueueFull { limit })?;
        let command = Command::Submit(Box::new(request), Instant::now());
        if self.commands.send(command).is_err() {
            shared.in_flight.fetch_sub(1, Ordering::AcqRel);
            let draining = shared.draining.load(Ordering::Acquire);
            return Err(if draining { Refused::ShuttingDown } else { Refused::Dead });
        }
        Ok(RequestId(shared.n_accepted.fetch_add(1, Ordering::Relaxed)))
    }

    /// The engine as it was after its latest step.
    pub fn stats(&self) -> Stats {
        *lock(&self.shared.stats)
    }

    /// The limits in force, which may be less than those asked for.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// What a request must fit into.
    pub fn bounds(&self) -> Bounds {
        self.shared.bounds
    }

    /// Whether the engine's thread is there to take requests.
    pub fn is_alive(&self) -> bool {
        lock(&self.thread).as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Refuses new requests, waits until all accepted ones have ended, and stops the thread. To
    /// be quicker, close their sinks. Must not be called by a sink.
    pub fn shutdown(&self) {
        self.shared.draining.store(true, Ordering::Release);
        // If the thread is gone, there is nobody to tell.
        let _ = self.commands.send(Command::Shutdown);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // It catches what panics, so there is nothing to learn from how it ended.
            let _ = thread.join();
        }
    }
}

/// The engine's thread.
struct Worker {
    engine: Engine,
    commands: Receiver<Command>,
    shared: Arc<Shared>,
    origin: Instant,
    stopping: bool,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.take_commands();
            if self.engine.is_idle() && self.stopping {
                return;
            }
            let before = self.engine.in_flight();
            let step = catch_unwind(AssertUnwindSafe(|| self.engine.step()));
            if let Err(panic) = step {
                let message = format!("internal error: {}", panic_text(&*panic));
                let mut abandon = || self.engine.abandon(&message);
                // A sink that panics again costs its own request and no other.
                while catch_unwind(AssertUnwindSafe(&mut abandon)).is_err() {}
            }
            if self.engine.is_idle() {
                self.engine.settle();
            }
            let ended = before - self.engine.in_flight();
            self.shared.in_flight.fetch_sub(ended, Ordering::AcqRel);
            *lock(&self.shared.stats) = self.engine.stats();
        }
    }

    /// Takes what is there. With nothing else to do, sleeps until there is something.
    fn take_commands(&mut self) {
        if self.engine.is_idle() && !self.stopping {
            match self.commands.recv() {
                Ok(command) => self.take(command),
                Err(_) => self.stopping = true,
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(request, at) => {
                self.engine.submit(*request, at.duration_since(self.origin));
            }
            Command::Shutdown => self.stopping = true,
        }
    }
}

/// A lock that a panic elsewhere cannot spoil: what it guards is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}
