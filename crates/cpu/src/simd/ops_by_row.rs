//! Scores with keys that lie row by row, because their first columns are the values too, in vector
//! instructions of any width. Not here: keys that are not values, which lie by column.

use backend::BLOCK;

use super::ops::{BlockScores, LANES, fold};
use super::ops_wide::{ValueSource, Wide};

/// Scores of `N` queries with the keys of a block, `K` keys at a time.
///
/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
pub(super) unsafe fn dot_some<W: Wide, const N: usize, const K: usize>(
    q: &[f32],
    keys: impl ValueSource,
    out: &mut [BlockScores],
) {
    let cols = q.len() / N;
    assert!(q.len() == N * cols && out.len() == N && BLOCK.is_multiple_of(K));
    assert!(cols.is_multiple_of(LANES) && LANES.is_multiple_of(W::LANES) && keys.holds(cols));
    for first in (0..BLOCK).step_by(K) {
        let mut lanes = [[[0.0f32; LANES]; K]; N];
        for part in (0..LANES).step_by(W::LANES) {
            // SAFETY: the instructions are there, here and below.
            let mut sums = [[unsafe { W::zero() }; K]; N];
            for at in (part..cols).step_by(LANES) {
                // SAFETY: as above.
                let mut wide = [unsafe { W::zero() }; K];
                for (k, wide) in wide.iter_mut().enumerate() {
                    let key = first + k;
                    // SAFETY: `key < BLOCK` and `at + W::LANES <= cols`, for both are cut at multiples
                    // of `LANES`.
                    let [scale] = unsafe { keys.scales::<W, 1>(key, at) };
                    // SAFETY: as above.
                    *wide = unsafe { keys.read(key * cols + at, scale) };
                }
                for (n, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `n < N`, and `q` has `N * cols` numbers.
                    let q = unsafe { W::load(q.as_ptr().add(n * cols + at)) };
                    for (sum, wide) in sums.iter_mut().zip(wide) {
                        // SAFETY: as above.
                        *sum = unsafe { q.multiply_add(wide, *sum) };
                    }
                }
            }
            for (lanes, sums) in lanes.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                // SAFETY: `part + W::LANES <= LANES`, the length of what is written to.
                unsafe { sums.store(lanes.as_mut_ptr().add(part)) };
            }
        }
        for (out, lanes) in out.iter_mut().zip(lanes) {
            for (out, lanes) in out[first..].iter_mut().zip(lanes) {
                *out = fold(lanes, |a, b| a + b);
            }
        }
    }
}
