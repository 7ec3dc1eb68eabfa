//! A device that several models share.
//!
//! Their passes take turns: each has the whole device while it lasts. Two passes at once would share
//! its threads region by region, wait for each other in every layer, and push each other's weights
//! out of the caches.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A device and the queue before it. Clones are the same device.
pub struct Device<B> {
    backend: Arc<B>,
    turns: Arc<Turns>,
}

impl<B> Clone for Device<B> {
    fn clone(&self) -> Self {
        Device { backend: Arc::clone(&self.backend), turns: Arc::clone(&self.turns) }
    }
}

impl<B> From<B> for Device<B> {
    fn from(backend: B) -> Self {
        Device { backend: Arc::new(backend), turns: Arc::default() }
    }
}

impl<B> Device<B> {
    /// The device itself, for what need not wait: loading weights.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Waits for everybody who asked before, and has the device until the turn is dropped.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.turns.take()
    }
}

/// First come, first served. A mutex alone lets whoever gave it back have it again at once, and a
/// model that is never idle would keep the others out.
#[derive(Default)]
struct Turns {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Number that the next who asks gets.
    next: u64,
    /// Number whose turn it is.
    current: u64,
}

/// The device is the holder's.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Turn<'_> {
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        let others = |queue: &mut Queue| queue.current != number;
        drop(self.changed.wait_while(queue, others).unwrap_or_else(PoisonError::into_inner));
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().current += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn turns_come_in_the_order_of_asking() {
        let turns = Arc::new(Turns::default());
        let (log, order) = channel();
        let first = turns.take();
        let mut threads = Vec::new();
        for i in 0..5 {
            let (turns, log) = (Arc::clone(&turns), log.clone());
            let asked = turns.lock().next;
            let mine = {
                let turns = Arc::clone(&turns);
                thread::spawn(move || {
                    let _turn = turns.take();
                    log.send(i).unwrap();
                })
            };
            // The next one asks only when this one is in the queue.
            while turns.lock().next == asked {
                thread::yield_now();
            }
            threads.push(mine);
        }
        assert!(order.try_recv().is_err(), "the first has not given it back");
        drop(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_turn_that_panics_is_over() {
        let turns = Arc::new(Turns::default());
        let panicking = Arc::clone(&turns);
        let thread = thread::spawn(move || {
            let _turn = panicking.take();
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        drop(turns.take());
    }
}
