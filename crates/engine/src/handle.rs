//! The engine on a thread of its own, and the way to it.
//!
//! No decisions about requests here but whether the queue is full: those are the engine's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::cache::Watch;
use crate::{
    Bounds, Cleared, DiskOptions, Engine, Executor, Failure, Limits, Refused, Request, RequestId,
    Stats,
};

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
    ClearCache(Sender<Cleared>),
    Flush(Sender<()>),
    Shutdown,
    Abort,
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
    /// The disk goes on while the engine sleeps: its directory is looked through, blocks are written.
    disk: Option<Watch>,
}

/// Starts an engine's thread. It sleeps while there is nothing to do.
pub fn start(executor: Box<dyn Executor>, limits: Limits) -> Handle {
    let origin = Instant::now();
    run(Engine::new(executor, limits, Box::new(move || origin.elapsed())), origin)
}

/// Like [`start`], with cached blocks kept on disk. Where that is impossible it says so in the log,
/// once, and serves without.
pub fn start_with_disk(executor: Box<dyn Executor>, limits: Limits, disk: &DiskOptions) -> Handle {
    let origin = Instant::now();
    let mut engine = Engine::new(executor, limits, Box::new(move || origin.elapsed()));
    if let Err(error) = engine.keep_on_disk(disk) {
        tracing::warn!(%error, "the prefix cache is not kept on disk");
    }
    run(engine, origin)
}

/// Gives an engine its thread.
fn run(engine: Engine, origin: Instant) -> Handle {
    let shared = Arc::new(Shared {
        limits: engine.limits(),
        bounds: engine.bounds(),
        draining: AtomicBool::new(false),
        in_flight: AtomicUsize::new(0),
        n_accepted: AtomicU64::new(0),
        stats: Mutex::new(engine.stats()),
        disk: engine.watch_disk(),
    });
    let (commands, receiver) = channel();
    let run = {
        let shared = Arc::clone(&shared);
        move || {
            Worker { engine, commands: receiver, shared, origin, stopping: false, counted: 0 }.run()
        }
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
        let most = shared.limits.seqs.saturating_add(shared.limits.queue);
        let room = |n: usize| (n < most).then_some(n + 1);
        let counted = shared.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, room);
        counted.map_err(|in_flight| shared.full(in_flight))?;
        let command = Command::Submit(Box::new(request), Instant::now());
        if self.commands.send(command).is_err() {
            shared.in_flight.fetch_sub(1, Ordering::AcqRel);
            return Err(self.gone());
        }
        Ok(RequestId(shared.n_accepted.fetch_add(1, Ordering::Relaxed)))
    }

    /// The engine as it was after its latest step, and the disk as it is now.
    pub fn stats(&self) -> Stats {
        let stats = *lock(&self.shared.stats);
        Stats { disk: self.shared.disk.as_ref().map(Watch::stats), ..stats }
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

    /// Drops everything from the prefix cache that no running request holds, and waits for that: a
    /// step at most.
    pub fn clear_cache(&self) -> Result<Cleared, Refused> {
        let (sender, cleared) = channel();
        self.commands.send(Command::ClearCache(sender)).map_err(|_| self.gone())?;
        cleared.recv().map_err(|_| self.gone())
    }

    /// Waits until everything that is cached is on disk, and what was there from before is found; if
    /// anything is kept there.
    pub fn flush(&self) -> Result<(), Refused> {
        let (sender, done) = channel();
        self.commands.send(Command::Flush(sender)).map_err(|_| self.gone())?;
        done.recv().map_err(|_| self.gone())
    }

    /// Why the engine's thread takes no commands.
    fn gone(&self) -> Refused {
        match self.shared.draining.load(Ordering::Acquire) {
            true => Refused::ShuttingDown,
            false => Refused::Dead,
        }
    }

    /// Refuses new requests, waits until all accepted ones have ended, and stops the thread. To
    /// be quicker, close their sinks, or see [`Handle::abort`]. Must not be called by a sink.
    pub fn shutdown(&self) {
        self.stop(Command::Shutdown);
    }

    /// Refuses new requests, ends all accepted ones with [`Failure::ShuttingDown`] after the
    /// current step, and stops the thread. Also cuts short a [`Handle::shutdown`] that another
    /// thread waits for. Must not be called by a sink.
    pub fn abort(&self) {
        self.stop(Command::Abort);
    }

    fn stop(&self, how: Command) {
        self.shared.draining.store(true, Ordering::Release);
        // If the thread is gone, there is nobody to tell.
        let _ = self.commands.send(how);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // It catches what panics, so there is nothing to learn from how it ended.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The refusal when `in_flight` requests are too many.
    fn full(&self, in_flight: usize) -> Refused {
        let stats = *lock(&self.stats);
        let running = stats.running.min(in_flight);
        Refused::QueueFull {
            running,
            waiting: in_flight - running,
            limit: self.limits.queue,
            retry_after: stats.pace.next_end(running),
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
    /// Requests in the engine that `in_flight` counts.
    counted: usize,
}

impl Worker {
    fn run(mut self) {
        loop {
            self.take_commands();
            if self.engine.is_idle() && self.stopping {
                self.engine.flush();
                return self.publish();
            }
            let step = catch_unwind(AssertUnwindSafe(|| self.engine.step()));
            if let Err(panic) = step {
                let failure = Failure::Internal(panic_text(&*panic).to_owned());
                let mut abandon = || self.engine.abandon(&failure);
                // A sink that panics again costs its own request and no other.
                while catch_unwind(AssertUnwindSafe(&mut abandon)).is_err() {}
            }
            if self.engine.is_idle() {
                self.engine.settle();
            }
            self.publish();
        }
    }

    /// Lets the handles know how things are.
    fn publish(&mut self) {
        let ended = self.counted - self.engine.in_flight();
        self.counted -= ended;
        self.shared.in_flight.fetch_sub(ended, Ordering::AcqRel);
        self.show();
    }

    fn show(&self) {
        *lock(&self.shared.stats) = self.engine.stats();
    }

    /// Takes what is there. With nothing else to do, copies blocks to disk, then sleeps until there
    /// is something.
    fn take_commands(&mut self) {
        while self.engine.is_idle() && !self.stopping {
            match self.commands.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Disconnected) => self.stopping = true,
                Err(TryRecvError::Empty) if self.engine.save_one() => {}
                Err(TryRecvError::Empty) => {
                    self.show();
                    match self.commands.recv() {
                        Ok(command) => self.take(command),
                        Err(_) => self.stopping = true,
                    }
                }
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(request, at) => {
                self.counted += 1;
                self.engine.submit(*request, at.duration_since(self.origin));
            }
            Command::ClearCache(cleared) => {
                let dropped = self.engine.clear_cache();
                self.show();
                // Whoever asked may have left.
                let _ = cleared.send(dropped);
            }
            Command::Flush(done) => {
                self.engine.flush();
                self.show();
                // As above.
                let _ = done.send(());
            }
            Command::Shutdown => self.stopping = true,
            Command::Abort => {
                self.stopping = true;
                while catch_unwind(AssertUnwindSafe(|| self.engine.abort())).is_err() {}
            }
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
