//! How values are spread: how many were up to each of a row of bounds.
//!
//! Not a server's histogram: this one is plain numbers, copied with all the others about an engine.

/// Bounds of the times of passes, in microseconds.
pub(crate) const STEP_MICROS: [u64; 16] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
];
/// Bounds of the rows of passes, those that vLLM has for the same.
pub(crate) const STEP_ROWS: [u64; 13] =
    [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// Counts by bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread<const N: usize> {
    /// Ascending; a value that equals a bound is counted there.
    pub bounds: [u64; N],
    /// Values up to each bound and above the one before.
    pub counts: [u64; N],
    /// Values above all bounds.
    pub above: u64,
    /// Of all values.
    pub sum: u64,
}

impl<const N: usize> Spread<N> {
    pub(crate) const fn new(bounds: [u64; N]) -> Spread<N> {
        Spread { bounds, counts: [0; N], above: 0, sum: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        match self.counts.get_mut(at) {
            Some(count) => *count += 1,
            None => self.above += 1,
        }
        self.sum = self.sum.saturating_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_count() {
        let mut spread = Spread::new([1, 8, 16]);
        [0, 1, 2, 8, 9, 16, 17, 1000].into_iter().for_each(|value| spread.add(value));
        assert_eq!((spread.counts, spread.above, spread.sum), ([2, 2, 2], 2, 1053));
        assert!(STEP_MICROS.is_sorted() && STEP_ROWS.is_sorted());
    }
}
