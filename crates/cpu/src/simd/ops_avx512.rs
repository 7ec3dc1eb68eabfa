//! The ops with AVX-512.

use std::arch::x86_64::*;
use std::ops::Range;

use super::avx512::rounding::{self, TOGETHER};
use super::ops::{self, BlockScores, OpKernels, ops_table, runs};
use super::ops_by_row::dot_some;
use super::ops_whole::{self, Weights, Whole};
use super::ops_wide::{KeySource, ValueSource, Wide, add_some, score_some};
use super::stored::Wholes;
use super::{Keys, Queries, Values};

ops_table!("avx512f,avx512bw,avx512vl,avx512vnni,fma");

/// Queries whose sums stay in registers, with two vectors of each.
const QUERIES: usize = 8;
/// Queries whose sums with four keys stay in registers.
const ROWWISE: usize = 4;

impl Wide for __m512 {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the instructions are there by the trait's contract, here and below.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn all(x: f32) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: readable by the trait's contract.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: writable by the trait's contract.
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn from_f16(from: *const u16) -> Self {
        // SAFETY: readable by the trait's contract.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn from_bf16(from: *const u16) -> Self {
        // SAFETY: readable by the trait's contract.
        unsafe {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
                from.cast(),
            ))))
        }
    }

    #[inline(always)]
    unsafe fn from_i8(from: *const i8) -> Self {
        // SAFETY: readable by the trait's contract.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn multiply(self, by: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(self, by) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, by: Self, to: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(self, by, to) }
    }
}

impl Whole for __m512 {
    type Register = __m512i;

    #[inline(always)]
    unsafe fn nothing() -> __m512i {
        // SAFETY: the instructions are there by the trait's contract, here and below.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn pairs(from: *const i16) -> __m512i {
        // SAFETY: readable by the trait's contract.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn pair(bits: i32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi32(bits) }
    }

    #[inline(always)]
    unsafe fn add_products(a: __m512i, b: __m512i, to: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_dpwssd_epi32(to, a, b) }
    }

    #[inline(always)]
    unsafe fn float(whole: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi32_ps(whole) }
    }

    #[inline(always)]
    unsafe fn round_weights<const N: usize>(
        weights: &[BlockScores; N],
        scales: &BlockScores,
    ) -> [Weights; N] {
        let mut out = [Weights::NONE; N];
        let (some, rest) = weights.as_chunks::<TOGETHER>();
        let (some_out, rest_out) = out.as_chunks_mut::<TOGETHER>();
        for (weights, out) in some.iter().zip(some_out) {
            // SAFETY: as above.
            unsafe { rounding::round_weights(weights, scales, out) };
        }
        for (weights, out) in rest.iter().zip(rest_out) {
            *out = ops_whole::round_weights(weights, scales);
        }
        out
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn scores_of(q: &[f32], keys: impl KeySource, out: &mut [BlockScores]) {
    let head_dim = q.len() / out.len();
    assert_eq!(q.len(), out.len() * head_dim, "one row of scores per query");
    for run in runs(out.len(), QUERIES) {
        let (q, out) = (&q[run.start * head_dim..run.end * head_dim], &mut out[run]);
        match out.len() {
            // SAFETY: the instructions are there.
            1 => unsafe { score_some::<__m512, 1, 2>(q, keys, out) },
            // SAFETY: as above.
            2 => unsafe { score_some::<__m512, 2, 2>(q, keys, out) },
            // SAFETY: as above.
            3 => unsafe { score_some::<__m512, 3, 2>(q, keys, out) },
            // SAFETY: as above.
            4 => unsafe { score_some::<__m512, 4, 2>(q, keys, out) },
            // SAFETY: as above.
            5 => unsafe { score_some::<__m512, 5, 2>(q, keys, out) },
            // SAFETY: as above.
            6 => unsafe { score_some::<__m512, 6, 2>(q, keys, out) },
            // SAFETY: as above.
            7 => unsafe { score_some::<__m512, 7, 2>(q, keys, out) },
            // SAFETY: as above.
            _ => unsafe { score_some::<__m512, QUERIES, 2>(q, keys, out) },
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn by_row_of(q: &[f32], keys: impl ValueSource, out: &mut [BlockScores]) {
    let cols = q.len() / out.len();
    assert_eq!(q.len(), out.len() * cols, "one row of scores per query");
    for run in runs(out.len(), ROWWISE) {
        let (q, out) = (&q[run.start * cols..run.end * cols], &mut out[run]);
        // SAFETY: the instructions are there.
        unsafe {
            match out.len() {
                1 => dot_some::<__m512, 1, 4>(q, keys, out),
                2 => dot_some::<__m512, 2, 4>(q, keys, out),
                3 => dot_some::<__m512, 3, 4>(q, keys, out),
                _ => dot_some::<__m512, ROWWISE, 4>(q, keys, out),
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
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
        match weights.len() {
            // SAFETY: the instructions are there.
            1 => unsafe { add_some::<__m512, 1, 4>(weights, seen, values, sums) },
            // SAFETY: as above.
            2 => unsafe { add_some::<__m512, 2, 4>(weights, seen, values, sums) },
            // SAFETY: as above.
            3 => unsafe { add_some::<__m512, 3, 4>(weights, seen, values, sums) },
            // SAFETY: as above.
            4 => unsafe { add_some::<__m512, 4, 4>(weights, seen, values, sums) },
            // SAFETY: as above.
            5 => unsafe { add_some::<__m512, 5, 4>(weights, seen, values, sums) },
            // SAFETY: as above.
            6 => unsafe { add_some::<__m512, 6, 4>(weights, seen, values, sums) },
            // SAFETY: as above.
            7 => unsafe { add_some::<__m512, 7, 2>(weights, seen, values, sums) },
            // SAFETY: as above.
            _ => unsafe { add_some::<__m512, QUERIES, 2>(weights, seen, values, sums) },
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn whole_scores_of(queries: Queries<'_>, keys: Wholes<'_>, out: &mut [BlockScores]) {
    let cols = queries.codes.len() / out.len();
    assert_eq!(queries.codes.len(), out.len() * cols, "one row of scores per query");
    for run in runs(out.len(), QUERIES) {
        let codes = &queries.codes[run.start * cols..run.end * cols];
        let some = Queries { codes, scales: &queries.scales[run.clone()], ..queries };
        let out = &mut out[run];
        match out.len() {
            // SAFETY: the instructions are there.
            1 => unsafe { ops_whole::score_some::<__m512, 1, 2>(some, keys, out) },
            // SAFETY: the instructions are there.
            2 => unsafe { ops_whole::score_some::<__m512, 2, 2>(some, keys, out) },
            // SAFETY: the instructions are there.
            3 => unsafe { ops_whole::score_some::<__m512, 3, 2>(some, keys, out) },
            // SAFETY: the instructions are there.
            4 => unsafe { ops_whole::score_some::<__m512, 4, 2>(some, keys, out) },
            // SAFETY: the instructions are there.
            5 => unsafe { ops_whole::score_some::<__m512, 5, 2>(some, keys, out) },
            // SAFETY: the instructions are there.
            6 => unsafe { ops_whole::score_some::<__m512, 6, 2>(some, keys, out) },
            // SAFETY: the instructions are there.
            7 => unsafe { ops_whole::score_some::<__m512, 7, 2>(some, keys, out) },
            // SAFETY: as above.
            _ => unsafe { ops_whole::score_some::<__m512, QUERIES, 2>(some, keys, out) },
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
fn add_wholes_of(weights: &[BlockScores], values: Wholes<'_>, sums: &mut [f32]) {
    let cols = sums.len() / weights.len();
    assert_eq!(sums.len(), weights.len() * cols, "one row of sums per query");
    for run in runs(weights.len(), QUERIES) {
        let (sums, weights) = (&mut sums[run.start * cols..run.end * cols], &weights[run]);
        match weights.len() {
            // SAFETY: the instructions are there.
            1 => unsafe { ops_whole::add_some::<__m512, 1, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            2 => unsafe { ops_whole::add_some::<__m512, 2, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            3 => unsafe { ops_whole::add_some::<__m512, 3, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            4 => unsafe { ops_whole::add_some::<__m512, 4, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            5 => unsafe { ops_whole::add_some::<__m512, 5, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            6 => unsafe { ops_whole::add_some::<__m512, 6, 4>(weights, values, sums) },
            // SAFETY: the instructions are there.
            7 => unsafe { ops_whole::add_some::<__m512, 7, 2>(weights, values, sums) },
            // SAFETY: as above.
            _ => unsafe { ops_whole::add_some::<__m512, QUERIES, 2>(weights, values, sums) },
        }
    }
}
