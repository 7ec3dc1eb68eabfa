//! Where a worker wakes up: not on the processor of whoever wakes it.
//!
//! After a rest the system often puts both on one processor, because another program, say the one that
//! reads the request, is on the other for a moment. Two threads that never wait are then moved apart only
//! after some ten milliseconds, which a short prompt pays for in full. So a worker that is woken up may
//! go anywhere else, and when it runs, anywhere. Nobody is tied to a processor for longer than that.
//!
//! On Linux; other systems have no such choice, and nothing happens there.

#[cfg(target_os = "linux")]
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
use rustix::thread::{self, CpuSet, Pid};

/// The processors of a pool, and who its workers are.
#[derive(Default)]
pub(super) struct Places {
    /// Where threads of this process may run, as of the start of the pool.
    #[cfg(target_os = "linux")]
    all: Option<CpuSet>,
    #[cfg(target_os = "linux")]
    workers: Vec<OnceLock<Pid>>,
}

#[cfg(target_os = "linux")]
impl Places {
    pub(super) fn new(n_workers: usize) -> Places {
        let all = thread::sched_getaffinity(None).ok().filter(|all| all.count() > 1);
        Places { all, workers: (0..n_workers).map(|_| OnceLock::new()).collect() }
    }

    /// The calling thread is this worker.
    pub(super) fn enter(&self, worker: usize) {
        self.workers[worker].get_or_init(thread::gettid);
    }

    /// Sends a worker that sleeps away from the processor of the calling thread. What the system refuses
    /// it had a reason for, and costs time alone.
    pub(super) fn send_away(&self, worker: usize) {
        if let (Some(mut others), Some(&worker)) = (self.all, self.workers[worker].get()) {
            others.unset(thread::sched_getcpu());
            let _ = thread::sched_setaffinity(Some(worker), &others);
        }
    }

    /// Lets the calling worker, which has just been woken up, run anywhere.
    pub(super) fn set_free(&self) {
        if let Some(all) = &self.all {
            let _ = thread::sched_setaffinity(None, all);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Places {
    pub(super) fn new(_: usize) -> Places {
        Places::default()
    }

    pub(super) fn enter(&self, _: usize) {}

    pub(super) fn send_away(&self, _: usize) {}

    pub(super) fn set_free(&self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_goes_elsewhere_and_is_free_again() {
        let Some(all) = Places::new(1).all else { return };
        let places = Places::new(1);
        std::thread::scope(|scope| {
            let (started, starts) = std::sync::mpsc::channel();
            let (go, goes) = std::sync::mpsc::channel();
            let worker = scope.spawn({
                let places = &places;
                move || {
                    places.enter(0);
                    started.send(()).unwrap();
                    let here: usize = goes.recv().unwrap();
                    let away = thread::sched_getaffinity(None).unwrap();
                    let at = thread::sched_getcpu();
                    places.set_free();
                    (here, away, at, thread::sched_getaffinity(None).unwrap())
                }
            });
            starts.recv().unwrap();
            // This thread stays where it is for as long as it asks for that.
            let mut one = CpuSet::new();
            let here = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            one.set(here);
            thread::sched_setaffinity(None, &one).unwrap();
            places.send_away(0);
            go.send(here).unwrap();
            let (here, away, at, after) = worker.join().unwrap();
            thread::sched_setaffinity(None, &all).unwrap();
            assert!(!away.is_set(here) && away.count() == all.count() - 1);
            assert_ne!(at, here);
            assert_eq!(after, all);
        });
    }
}
