//! Counts of how often a measurement fell below each of a row of bounds.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A histogram. Observing takes a lock for some nanoseconds.
pub(crate) struct Histogram {
    /// Ascending.
    bounds: Vec<f64>,
    counts: Mutex<Counts>,
}

/// What a histogram holds at one moment.
#[derive(Clone)]
pub(crate) struct Counts {
    /// Per bound the measurements above the bound before and not above this one, and at the end
    /// those above all.
    pub(crate) buckets: Vec<u64>,
    /// Of all measurements.
    pub(crate) sum: f64,
}

impl Histogram {
    /// An empty one with these upper bounds, which must ascend.
    pub(crate) fn new(bounds: impl Into<Vec<f64>>) -> Histogram {
        let bounds = bounds.into();
        debug_assert!(bounds.is_sorted_by(|a, b| a < b));
        let counts = Counts { buckets: vec![0; bounds.len() + 1], sum: 0.0 };
        Histogram { bounds, counts: Mutex::new(counts) }
    }

    /// One measurement.
    pub(crate) fn observe(&self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        let mut counts = self.lock();
        counts.buckets[bucket] += 1;
        counts.sum += value;
    }

    pub(crate) fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let histogram = Histogram::new([1.0, 2.0, 5.0]);
        for value in [0.5, 1.0, 1.5, 2.0, 5.0, 6.0] {
            histogram.observe(value);
        }
        let counts = histogram.counts();
        assert_eq!((counts.buckets, counts.sum), (vec![2, 2, 1, 1], 16.0));
    }
}
