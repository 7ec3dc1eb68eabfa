//! The ops with AVX2, FMA and F16C. Attention's two products are made by hand, for up to four
//! queries at a time, so that a key or value is widened once for all of them.

use std::arch::x86_64::*;
use std::ops::Range;

use backend::{Activation, BLOCK, NormGain, RopeLayout};

use super::ops::{self, BlockScores, OpKernels, Running, Scoring};

/// Only for machines that have avx2, fma and f16c.
pub(super) static OPS: OpKernels = OpKernels {
    // SAFETY: this table is for machines that have the instructions.
    normalize: |x, gain, kind, eps| unsafe { normalize(x, gain, kind, eps) },
    // SAFETY: as above.
    glu: |act, gate, up, out| unsafe { glu(act, gate, up, out) },
    // SAFETY: as above.
    soft_cap: |x, cap| unsafe { soft_cap(x, cap) },
    // SAFETY: as above.
    softmax: |x| unsafe { softmax(x) },
    // SAFETY: as above.
    rotate: |head, layout, angles| unsafe { rotate(head, layout, angles) },
    // SAFETY: as above.
    scores: |q, keys, out| unsafe { scores(q, keys, out) },
    // SAFETY: as above.
    weigh: |scores, seen, scoring, running| unsafe { weigh(scores, seen, scoring, running) },
    // SAFETY: as above.
    add_values: |weights, seen, values, sums| unsafe { add_values(weights, seen, values, sums) },
};

#[target_feature(enable = "avx2,fma")]
fn normalize(x: &mut [f32], gain: &[f32], kind: NormGain, eps: f32) {
    ops::normalize(x, gain, kind, eps);
}

#[target_feature(enable = "avx2,fma")]
fn glu(act: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    ops::glu(act, gate, up, out);
}

#[target_feature(enable = "avx2,fma")]
fn soft_cap(x: &mut [f32], cap: f32) {
    ops::soft_cap(x, cap);
}

#[target_feature(enable = "avx2,fma")]
fn softmax(x: &mut [f32]) {
    ops::softmax(x);
}

#[target_feature(enable = "avx2,fma")]
fn rotate(head: &mut [f32], layout: RopeLayout, angles: &[f32]) {
    ops::rotate(head, layout, angles);
}

#[target_feature(enable = "avx2,fma")]
fn weigh(
    scores: &mut BlockScores,
    seen: Range<usize>,
    scoring: Scoring,
    running: &mut Running,
) -> f32 {
    ops::weigh(scores, seen, scoring, running)
}

/// Numbers of a vector register.
const WIDE: usize = 8;

#[target_feature(enable = "avx2,fma,f16c")]
fn scores(q: &[f32], keys: &[u16], out: &mut [BlockScores]) {
    let head_dim = keys.len() / BLOCK;
    assert_eq!(q.len(), out.len() * head_dim, "one row of scores per query");
    let (fours, rest) = out.as_chunks_mut::<4>();
    let (q_fours, q_rest) = q.split_at(fours.len() * 4 * head_dim);
    for (q, out) in q_fours.chunks_exact(4 * head_dim).zip(fours) {
        score_some::<4, 2>(q, keys, 0, out);
        score_some::<4, 2>(q, keys, 2 * WIDE, out);
    }
    match rest.len() {
        1 => score_some::<1, 4>(q_rest, keys, 0, rest),
        2 => score_some::<2, 4>(q_rest, keys, 0, rest),
        3 => {
            score_some::<3, 2>(q_rest, keys, 0, rest);
            score_some::<3, 2>(q_rest, keys, 2 * WIDE, rest);
        }
        _ => (),
    }
}

/// Scores of `N` queries with the `8 * V` keys from `first` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn score_some<const N: usize, const V: usize>(
    q: &[f32],
    keys: &[u16],
    first: usize,
    out: &mut [BlockScores],
) {
    let head_dim = keys.len() / BLOCK;
    assert!(q.len() == N * head_dim && out.len() == N && first + V * WIDE <= BLOCK);
    let mut sums = [[_mm256_setzero_ps(); V]; N];
    for (d, column) in keys.chunks_exact(BLOCK).enumerate() {
        let mut wide = [_mm256_setzero_ps(); V];
        for (v, wide) in wide.iter_mut().enumerate() {
            // SAFETY: `first + 8 * V <= BLOCK` and `column` has `BLOCK` elements, so sixteen bytes
            // are readable; the load needs no alignment.
            let halfs = unsafe { _mm_loadu_si128(column.as_ptr().add(first + v * WIDE).cast()) };
            *wide = _mm256_cvtph_ps(halfs);
        }
        for (n, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `n < N` and `d < head_dim`, and `q` has `N * head_dim` elements.
            let q = _mm256_set1_ps(unsafe { *q.get_unchecked(n * head_dim + d) });
            for (sum, wide) in sums.iter_mut().zip(wide) {
                *sum = _mm256_fmadd_ps(q, wide, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: `first + 8 * V <= BLOCK`, the length of `out`; the store needs no alignment.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(first + v * WIDE), sum) };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_values(weights: &[BlockScores], seen: Range<usize>, values: &[u16], sums: &mut [f32]) {
    let cols = values.len() / BLOCK;
    assert_eq!(sums.len(), weights.len() * cols, "one row of sums per query");
    let some = |weights, sums| Sharing { weights, seen: seen.clone(), values, cols, sums };
    let (fours, rest) = weights.as_chunks::<4>();
    let (sum_fours, sums_rest) = sums.split_at_mut(fours.len() * 4 * cols);
    for (weights, sums) in fours.iter().zip(sum_fours.chunks_exact_mut(4 * cols)) {
        add_some::<4, 2>(some(weights, sums));
    }
    match rest.len() {
        1 => add_some::<1, 4>(some(rest, sums_rest)),
        2 => add_some::<2, 4>(some(rest, sums_rest)),
        3 => add_some::<3, 2>(some(rest, sums_rest)),
        _ => (),
    }
}

/// Some queries that add the same values.
struct Sharing<'a> {
    weights: &'a [BlockScores],
    seen: Range<usize>,
    values: &'a [u16],
    cols: usize,
    sums: &'a mut [f32],
}

/// `V` vectors of columns at a time while there are so many, then one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_some<const N: usize, const V: usize>(mut shared: Sharing<'_>) {
    let mut first = 0;
    while first + V * WIDE <= shared.cols {
        add_columns::<N, V>(&mut shared, first);
        first += V * WIDE;
    }
    while first < shared.cols {
        add_columns::<N, 1>(&mut shared, first);
        first += WIDE;
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_columns<const N: usize, const V: usize>(shared: &mut Sharing<'_>, first: usize) {
    let Sharing { weights, seen, values, cols, sums } = shared;
    let cols = *cols;
    assert!(weights.len() == N && sums.len() == N * cols && first + V * WIDE <= cols);
    assert!(seen.end <= BLOCK && values.len() == BLOCK * cols);
    let mut wide_sums = [[_mm256_setzero_ps(); V]; N];
    for (n, wide_sums) in wide_sums.iter_mut().enumerate() {
        for (v, sum) in wide_sums.iter_mut().enumerate() {
            // SAFETY: `n < N` and `first + 8 * V <= cols`, and `sums` has `N * cols` elements.
            *sum = unsafe { _mm256_loadu_ps(sums.as_ptr().add(n * cols + first + v * WIDE)) };
        }
    }
    for key in seen.clone() {
        let mut wide = [_mm256_setzero_ps(); V];
        for (v, wide) in wide.iter_mut().enumerate() {
            let at = key * cols + first + v * WIDE;
            // SAFETY: `key < BLOCK` and `first + 8 * V <= cols`, and `values` has `BLOCK * cols`
            // elements, so sixteen bytes are readable; the load needs no alignment.
            let halfs = unsafe { _mm_loadu_si128(values.as_ptr().add(at).cast()) };
            *wide = _mm256_cvtph_ps(halfs);
        }
        for (n, wide_sums) in wide_sums.iter_mut().enumerate() {
            // SAFETY: `n < N`, the length of `weights`, and `key < BLOCK`.
            let weight = unsafe { *weights.get_unchecked(n).get_unchecked(key) };
            let weight = _mm256_set1_ps(weight);
            for (sum, wide) in wide_sums.iter_mut().zip(wide) {
                *sum = _mm256_fmadd_ps(weight, wide, *sum);
            }
        }
    }
    for (n, wide_sums) in wide_sums.into_iter().enumerate() {
        for (v, sum) in wide_sums.into_iter().enumerate() {
            // SAFETY: as for the loads above.
            unsafe { _mm256_storeu_ps(sums.as_mut_ptr().add(n * cols + first + v * WIDE), sum) };
        }
    }
}
