//! The threads of the device: started once, spinning for a moment between regions, then parked.
//!
//! A region is `n_tasks` calls of one closure, shared out by a counter; the caller takes part and
//! returns when all are done. Starting a region neither allocates nor locks. Which thread runs which
//! task is chance, so a task must not care: every result of this crate depends on its index alone.
//!
//! Not a scheduler: one region at a time. A region started from inside another, or while another
//! thread's is running, runs on its caller alone.

#![allow(unsafe_code)]

mod split;

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use split::{Block, BlockMut};

/// How long a thread waits for the next region before it parks. Regions of one pass follow each
/// other within microseconds; between passes the caller samples and talks to clients.
const SPIN: Duration = Duration::from_micros(60);
/// Bit of [`Shared::gate`] that says a region may be entered.
const OPEN: usize = 1 << (usize::BITS - 1);

/// A fixed set of threads that run one region at a time together with the caller.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// A region's closure. The lifetime is a lie that [`Pool::run`] makes good by not returning while a
/// worker is inside.
type Task = &'static (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts regions, so that a worker enters each at most once and knows when to look.
    epoch: AtomicUsize,
    /// [`OPEN`] while a region runs, plus the number of workers inside.
    gate: AtomicUsize,
    /// The region; written only while the gate is closed and nobody is inside.
    region: UnsafeCell<Region>,
    /// Next task of the region.
    next: AtomicUsize,
    /// Held by the caller of the running region.
    busy: AtomicBool,
    /// Set when a worker's task panicked; the payload is in `panic`.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// One flag per worker: it is parked, or about to be.
    parked: Vec<AtomicBool>,
}

#[derive(Clone, Copy)]
struct Region {
    task: Task,
    n_tasks: usize,
}

// SAFETY: `region` is the only field that is not `Sync`. It is written by the holder of `busy` while
// `gate` is zero, and read by workers only between their counted entry through an open gate and
// their exit, so a write never meets a read.
unsafe impl Sync for Shared {}

impl Pool {
    /// Starts a pool of `threads` threads, the caller of [`Pool::run`] being one of them. Zero means
    /// one per physical core.
    pub fn new(threads: usize) -> Pool {
        let threads = if threads == 0 { physical_cores() } else { threads };
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            gate: AtomicUsize::new(0),
            region: UnsafeCell::new(Region { task: &|_| (), n_tasks: 0 }),
            next: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            parked: (1..threads).map(|_| AtomicBool::new(false)).collect(),
        });
        // A machine that refuses a thread gets a smaller pool, which is slower and nothing else.
        let start = |index: usize| {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name(format!("cpu-{}", index + 1));
            builder.spawn(move || shared.work(index)).ok()
        };
        let workers = (0..threads - 1).map_while(start).collect();
        Pool { shared, workers }
    }

    /// Threads that take part in a region, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for every `i` in `0..n_tasks` and returns when all calls have returned.
    ///
    /// If a task panics, the tasks that have not started may be left out, and the panic goes on in
    /// the caller once no other thread is inside.
    pub fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let alone = n_tasks < 2 || self.workers.is_empty();
        if alone || self.shared.busy.swap(true, SeqCst) {
            return (0..n_tasks).for_each(task);
        }
        self.shared.open(n_tasks, task);
        for (parked, worker) in self.shared.parked.iter().zip(&self.workers) {
            if parked.load(SeqCst) && parked.swap(false, SeqCst) {
                worker.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(n_tasks, task)));
        let theirs = self.shared.close();
        self.shared.busy.store(false, SeqCst);
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.epoch.fetch_add(1, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches every panic of a task, so there is nothing to hear from it.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Publishes a region. The caller holds `busy`.
    fn open(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes, and `close` waits until no worker holds the reference.
        let task = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(task) };
        // SAFETY: the gate is closed with nobody inside (`close` waited for it), and `busy` keeps
        // other callers out, so nobody else touches `region`.
        unsafe { *self.region.get() = Region { task, n_tasks } };
        self.next.store(0, SeqCst);
        self.gate.fetch_or(OPEN, SeqCst);
        self.epoch.fetch_add(1, SeqCst);
    }

    /// Lets nobody in any more, waits for those inside, and returns what one of them panicked with.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        self.gate.fetch_and(!OPEN, SeqCst);
        let mut spins = 0u32;
        while self.gate.load(SeqCst) != 0 {
            std::hint::spin_loop();
            spins += 1;
            // Where cores are short, the thread waited for may need this one.
            if spins.is_multiple_of(4096) {
                thread::yield_now();
            }
        }
        if !self.panicked.swap(false, SeqCst) {
            return None;
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn take_tasks(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        loop {
            let index = self.next.fetch_add(1, SeqCst);
            if index >= n_tasks {
                return;
            }
            task(index);
        }
    }

    /// The life of worker `index`.
    fn work(&self, index: usize) {
        let mut seen = 0;
        while !self.stop.load(SeqCst) {
            seen = self.wait(index, seen);
            if self.gate.fetch_add(1, SeqCst) & OPEN != 0 {
                // SAFETY: this thread is counted in an open gate, so the region stays as it is until
                // the count goes down again.
                let region = unsafe { *self.region.get() };
                let run = || self.take_tasks(region.n_tasks, region.task);
                if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                    *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
                    self.panicked.store(true, SeqCst);
                }
            }
            self.gate.fetch_sub(1, SeqCst);
        }
    }

    /// Returns the epoch as soon as it is no longer `seen`.
    fn wait(&self, index: usize, seen: usize) -> usize {
        let started = Instant::now();
        loop {
            for _ in 0..64 {
                let epoch = self.epoch.load(SeqCst);
                if epoch != seen {
                    return epoch;
                }
                std::hint::spin_loop();
            }
            if started.elapsed() < SPIN {
                continue;
            }
            // The flag goes up before the last look, the epoch goes up before the caller looks at
            // the flag: one of the two sees the other.
            self.parked[index].store(true, SeqCst);
            if self.epoch.load(SeqCst) == seen {
                thread::park();
            }
            self.parked[index].store(false, SeqCst);
        }
    }
}

/// Physical cores this process may use. Two hardware threads of one core share its vector units, so
/// the second one adds heat and barriers rather than speed.
fn physical_cores() -> usize {
    let usable = thread::available_parallelism().map_or(1, usize::from);
    usable.min(num_cpus::get_physical()).max(1)
}

#[cfg(test)]
mod tests;
