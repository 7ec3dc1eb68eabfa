//! What time it is, as an argument: tests bring a clock of their own and wait for nothing.
//!
//! Times are microseconds since some beginning, never the time of day.

use std::thread;
use std::time::{Duration, Instant};

/// A monotonic clock.
pub trait Clock: Send + Sync {
    /// Microseconds since the clock was made.
    fn now(&self) -> u64;
    /// Returns when the clock shows `at` or more.
    fn wait_until(&self, at: u64);
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic(Instant);

impl Monotonic {
    /// Shows zero now.
    pub fn start() -> Monotonic {
        Monotonic(Instant::now())
    }
}

impl Clock for Monotonic {
    fn now(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }

    fn wait_until(&self, at: u64) {
        let left = at.saturating_sub(self.now());
        if left > 0 {
            thread::sleep(Duration::from_micros(left));
        }
    }
}
