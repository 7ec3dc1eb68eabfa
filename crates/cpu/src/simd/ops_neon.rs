//! The ops with NEON.

use std::arch::aarch64::*;
use std::ops::Range;

use super::neon::{all_f32, float, multiply, multiply_add, widen, widen_s8};
use super::ops::{self, BlockScores, OpKernels, ops_table, runs};
use super::ops_by_row::dot_some;
use super::ops_whole::{self, Whole};
use super::ops_wide::{KeySource, ValueSource, Wide, add_some, score_some};
use super::stored::Wholes;
use super::{Keys, Queries, Values};

ops_table!("neon");

/// Queries whose sums stay in registers, with four vectors of each.
const QUERIES: usize = 6;
/// Queries whose sums with four keys stay in registers.
const ROWWISE: usize = 4;

impl Wide for float32x4_t {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        all_f32(0.0)
    }

    #[inline(always)]
    unsafe fn all(x: f32) -> Self {
        all_f32(x)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: readable by the trait's contract.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: writable by the trait's contract.
        unsafe { vst1q_f32(to, self) }
    }

    #[inline(always)]
    unsafe fn from_f16(from: *const u16) -> Self {
        // SAFETY: readable by the trait's contract.
        widen(unsafe { vld1_u16(from) })
    }

    #[inline(always)]
    unsafe fn from_bf16(from: *const u16) -> Self {
        // SAFETY: readable by the trait's contract.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from))) }
    }

    #[inline(always)]
    unsafe fn from_i8(from: *const i8) -> Self {
        // SAFETY: as above; this load needs no alignment.
        let four = unsafe { from.cast::<i32>().read_unaligned() };
        float(widen_s8(four))
    }

    #[inline(always)]
    unsafe fn multiply(self, by: Self) -> Self {
        multiply(self, by)
    }

    #[inline(always)]
    unsafe fn multiply_add(self, by: Self, to: Self) -> Self {
        multiply_add(self, by, to)
    }
}

impl Whole for float32x4_t {
    type Register = int32x4_t;

    #[inline(always)]
    unsafe fn nothing() -> int32x4_t {
        // SAFETY: every AArch64 machine that runs a system has NEON, here and below.
        unsafe { vdupq_n_s32(0) }
    }

    #[inline(always)]
    unsafe fn pairs(from: *const i16) -> int32x4_t {
        // SAFETY: readable by the trait's contract.
        unsafe { vreinterpretq_s32_s16(vld1q_s16(from)) }
    }

    #[inline(always)]
    unsafe fn pair(bits: i32) -> int32x4_t {
        // SAFETY: as above.
        unsafe { vdupq_n_s32(bits) }
    }

    #[inline(always)]
    unsafe fn add_products(a: int32x4_t, b: int32x4_t, to: int32x4_t) -> int32x4_t {
        // SAFETY: as above.
        unsafe {
            let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
            vaddq_s32(to, vpaddq_s32(low, vmull_high_s16(a, b)))
        }
    }

    #[inline(always)]
    unsafe fn float(whole: int32x4_t) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vcvtq_f32_s32(whole) }
    }
}

#[target_feature(enable = "neon")]
fn scores_of(q: &[f32], keys: impl KeySource, out: &mut [BlockScores]) {
    let head_dim = q.len() / out.len();
    assert_eq!(q.len(), out.len() * head_dim, "one row of scores per query");
    for run in runs(out.len(), QUERIES) {
        let (q, out) = (&q[run.start * head_dim..run.end * head_dim], &mut out[run]);
        // SAFETY: every AArch64 machine that runs a system has NEON.
        unsafe {
            match out.len() {
                1 => score_some::<float32x4_t, 1, 8>(q, keys, out),
                2 => score_some::<float32x4_t, 2, 8>(q, keys, out),
                3 => score_some::<float32x4_t, 3, 4>(q, keys, out),
                4 => score_some::<float32x4_t, 4, 4>(q, keys, out),
                5 => score_some::<float32x4_t, 5, 4>(q, keys, out),
                _ => score_some::<float32x4_t, QUERIES, 4>(q, keys, out),
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn by_row_of(q: &[f32], keys: impl ValueSource, out: &mut [BlockScores]) {
    let cols = q.len() / out.len();
    assert_eq!(q.len(), out.len() * cols, "one row of scores per query");
    for run in runs(out.len(), ROWWISE) {
        let (q, out) = (&q[run.start * cols..run.end * cols], &mut out[run]);
        // SAFETY: every AArch64 machine that runs a system has NEON.
        unsafe {
            match out.len() {
                1 => dot_some::<float32x4_t, 1, 4>(q, keys, out),
                2 => dot_some::<float32x4_t, 2, 4>(q, keys, out),
                3 => dot_some::<float32x4_t, 3, 4>(q, keys, out),
                _ => dot_some::<float32x4_t, ROWWISE, 4>(q, keys, out),
            }
        }
    }
}

/// Rows of values are a multiple of four vectors long, so four at a time leave no rest.
#[target_feature(enable = "neon")]
fn add_values_of(
    weights: &[BlockScores],
    seen: Range<usize>,
    values: impl ValueSource,
    sums: &mut [f32],
) {
    let cols = sums.len() / weights.len();
    assert_eq!(sums.len(), weights.len() * cols, "one row of sums per query");
    for run in runs(weights.len(), QUERIES) {
        let (sums, weights) = (&mut sums[run.start * cols..run.end * cols], &weights[run]);
        let seen = seen.clone();
        // SAFETY: every AArch64 machine that runs a system has NEON.
        unsafe {
            match weights.len() {
                1 if cols.is_multiple_of(32) => {
                    add_some::<float32x4_t, 1, 8>(weights, seen, values, sums);
                }
                1 => add_some::<float32x4_t, 1, 4>(weights, seen, values, sums),
                2 => add_some::<float32x4_t, 2, 4>(weights, seen, values, sums),
                3 => add_some::<float32x4_t, 3, 4>(weights, seen, values, sums),
                4 => add_some::<float32x4_t, 4, 4>(weights, seen, values, sums),
                5 => add_some::<float32x4_t, 5, 4>(weights, seen, values, sums),
                _ => add_some::<float32x4_t, QUERIES, 4>(weights, seen, values, sums),
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn whole_scores_of(queries: Queries<'_>, keys: Wholes<'_>, out: &mut [BlockScores]) {
    let cols = queries.codes.len() / out.len();
    assert_eq!(queries.codes.len(), out.len() * cols, "one row of scores per query");
    for run in runs(out.len(), QUERIES) {
        let codes = &queries.codes[run.start * cols..run.end * cols];
        let some = Queries { codes, scales: &queries.scales[run.clone()], ..queries };
        let out = &mut out[run];
        match out.len() {
            // SAFETY: the instructions are there.
            1 => unsafe { ops_whole::score_some::<float32x4_t, 1, 8>(some, keys, out) },
            // SAFETY: the instructions are there.
            2 => unsafe { ops_whole::score_some::<float32x4_t, 2, 8>(some, keys, out) },
            // SAFETY: the instructions are there.
            3 => unsafe { ops_whole::score_some::<float32x4_t, 3, 4>(some, keys, out) },
            // SAFETY: the instructions are there.
            4 => unsafe { ops_whole::score_some::<float32x4_t, 4, 4>(some, keys, out) },
            // SAFETY: the instructions are there.
            5 => unsafe { ops_whole::score_some::<float32x4_t, 5, 4>(some, keys, out) },
            // SAFETY: as above.
            _ => unsafe { ops_whole::score_some::<float32x4_t, QUERIES, 4>(some, keys, out) },
        }
    }
}

#[target_feature(enable = "neon")]
fn add_wholes_of(weights: &[BlockScores], values: Wholes<'_>, sums: &mut [f32]) {
    let cols = sums.len() / weights.len();
    assert_eq!(sums.len(), weights.len() * cols, "one row of sums per query");
    for run in runs(weights.len(), QUERIES) {
        let (sums, weights) = (&mut sums[run.start * cols..run.end * cols], &weights[run]);
        match weights.len() {
            // SAFETY: the instructions are there.
            1 => unsafe { ops_whole::add_some::<float32x4_t, 1, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            2 => unsafe { ops_whole::add_some::<float32x4_t, 2, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            3 => unsafe { ops_whole::add_some::<float32x4_t, 3, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            4 => unsafe { ops_whole::add_some::<float32x4_t, 4, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            5 => unsafe { ops_whole::add_some::<float32x4_t, 5, 4>(weights, values, sums) },
            // SAFETY: as above.
            _ => unsafe { ops_whole::add_some::<float32x4_t, QUERIES, 4>(weights, values, sums) },
        }
    }
}
