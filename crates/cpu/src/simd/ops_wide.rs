//! Attention's two products in vector instructions, for any width: several queries at a time, so
//! that a key or value is widened once for all of them and as many sums grow side by side as
//! registers hold. How many that is says the file of each instruction set.

use std::ops::Range;

use backend::BLOCK;

use super::ops::BlockScores;

/// A vector register of f32.
///
/// # Safety
/// Everything here needs a machine that has the instructions, and pointers to [`Wide::LANES`]
/// numbers, of any alignment.
#[allow(clippy::missing_safety_doc, reason = "the trait says it for all")]
pub(super) trait Wide: Copy {
    /// Numbers in it.
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn all(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// From f16.
    unsafe fn widen(from: *const u16) -> Self;
    /// `self * by + to`, rounded once.
    unsafe fn multiply_add(self, by: Self, to: Self) -> Self;
}

/// Numbers of f16 in a line of the cache.
const LINE: usize = 32;
/// From so many queries on it pays to ask for the keys or values of the block that lies behind the
/// one at work, probably the next one. With fewer they are wanted so soon that the machine guesses
/// better by itself.
const BUSY: usize = 5;

/// Scores of `N` queries with the keys of a block, `V` vectors of keys at a time.
///
/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
pub(super) unsafe fn score_some<W: Wide, const N: usize, const V: usize>(
    q: &[f32],
    keys: &[u16],
    out: &mut [BlockScores],
) {
    let head_dim = keys.len() / BLOCK;
    assert!(q.len() == N * head_dim && out.len() == N && BLOCK.is_multiple_of(V * W::LANES));
    for first in (0..BLOCK).step_by(V * W::LANES) {
        // SAFETY: the instructions are there, here and below.
        let mut sums = [[unsafe { W::zero() }; V]; N];
        for d in 0..head_dim {
            // SAFETY: `d < head_dim` and `first + V * LANES <= BLOCK`.
            let wide = unsafe { widen::<W, N, V>(keys, d * BLOCK + first) };
            for (n, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `n < N` and `d < head_dim`, and `q` has `N * head_dim` numbers.
                let q = unsafe { W::all(*q.get_unchecked(n * head_dim + d)) };
                for (sum, wide) in sums.iter_mut().zip(wide) {
                    // SAFETY: as above.
                    *sum = unsafe { q.multiply_add(wide, *sum) };
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: `first + V * LANES <= BLOCK`, the length of `out`.
                unsafe { sum.store(out.as_mut_ptr().add(first + v * W::LANES)) };
            }
        }
    }
}

/// Sums of `N` queries, `V` vectors of columns at a time while there are so many, then two, then one.
///
/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
pub(super) unsafe fn add_some<W: Wide, const N: usize, const V: usize>(
    weights: &[BlockScores],
    seen: Range<usize>,
    values: &[u16],
    sums: &mut [f32],
) {
    let cols = values.len() / BLOCK;
    let mut first = 0;
    while first + V * W::LANES <= cols {
        // SAFETY: the instructions are there.
        unsafe { add_columns::<W, N, V>(weights, seen.clone(), values, first, sums) };
        first += V * W::LANES;
    }
    if V > 2 && first + 2 * W::LANES <= cols {
        // SAFETY: as above.
        unsafe { add_columns::<W, N, 2>(weights, seen.clone(), values, first, sums) };
        first += 2 * W::LANES;
    }
    if first < cols {
        // SAFETY: as above.
        unsafe { add_columns::<W, N, 1>(weights, seen, values, first, sums) };
    }
}

/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
unsafe fn add_columns<W: Wide, const N: usize, const V: usize>(
    weights: &[BlockScores],
    seen: Range<usize>,
    values: &[u16],
    first: usize,
    sums: &mut [f32],
) {
    let cols = values.len() / BLOCK;
    assert!(weights.len() == N && sums.len() == N * cols && first + V * W::LANES <= cols);
    assert!(seen.end <= BLOCK);
    // SAFETY: the instructions are there, here and below.
    let mut wide_sums = [[unsafe { W::zero() }; V]; N];
    for (n, wide_sums) in wide_sums.iter_mut().enumerate() {
        for (v, sum) in wide_sums.iter_mut().enumerate() {
            let at = n * cols + first + v * W::LANES;
            // SAFETY: `n < N` and `first + V * LANES <= cols`, and `sums` has `N * cols` numbers.
            *sum = unsafe { W::load(sums.as_ptr().add(at)) };
        }
    }
    for key in seen {
        // SAFETY: `key < BLOCK` and `first + V * LANES <= cols`.
        let wide = unsafe { widen::<W, N, V>(values, key * cols + first) };
        for (n, wide_sums) in wide_sums.iter_mut().enumerate() {
            // SAFETY: `n < N`, the length of `weights`, and `key < BLOCK`.
            let weight = unsafe { W::all(*weights.get_unchecked(n).get_unchecked(key)) };
            for (sum, wide) in wide_sums.iter_mut().zip(wide) {
                // SAFETY: as above.
                *sum = unsafe { weight.multiply_add(wide, *sum) };
            }
        }
    }
    for (n, wide_sums) in wide_sums.into_iter().enumerate() {
        for (v, sum) in wide_sums.into_iter().enumerate() {
            let at = n * cols + first + v * W::LANES;
            // SAFETY: as for the loads above.
            unsafe { sum.store(sums.as_mut_ptr().add(at)) };
        }
    }
}

/// Widens `V` vectors for `N` queries, and asks for what will be wanted later.
///
/// # Safety
/// `V * LANES` numbers are there from `at` on, and the machine has the instructions of `W`.
#[inline(always)]
unsafe fn widen<W: Wide, const N: usize, const V: usize>(halfs: &[u16], at: usize) -> [W; V] {
    if N >= BUSY {
        for line in (0..V * W::LANES).step_by(LINE) {
            ask(halfs.as_ptr().wrapping_add(at + halfs.len() + line));
        }
    }
    // SAFETY: the instructions are there.
    let mut wide = [unsafe { W::zero() }; V];
    for (v, wide) in wide.iter_mut().enumerate() {
        // SAFETY: `V * LANES` numbers are readable by this function's contract.
        *wide = unsafe { W::widen(halfs.as_ptr().add(at + v * W::LANES)) };
    }
    wide
}

/// Asks for a line to be brought into the L1 cache. Nothing depends on it but time, of which it was
/// seen to save some on x86-64 alone.
#[inline(always)]
fn ask(line: *const u16) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction may be given any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
