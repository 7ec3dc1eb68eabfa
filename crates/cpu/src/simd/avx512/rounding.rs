//! Rounding with AVX-512, eight groups at a time: what a sum, a largest number and a quotient wait for is
//! then waited for once.

#![allow(clippy::needless_range_loop, reason = "one index walks registers and slices together")]

use std::arch::x86_64::*;

use backend::{BLOCK, WHOLE_CODE};

use super::load_f32;
use crate::rounded::{GROUP, Rounded};
use crate::simd::generic;
use crate::simd::ops::BlockScores;
use crate::simd::ops_whole::{SMALLEST_WEIGHT, TO_WHOLE, WEIGHTS, Weights};

/// Groups, or queries, that are rounded together.
pub(in crate::simd) const TOGETHER: usize = 8;

/// As [`generic::round`], whose way of rounding to a whole number is that of the conversion here.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn round(x: &[f32], out: &mut [Rounded]) {
    let groups = x.as_chunks::<GROUP>().0;
    assert_eq!(groups.len(), out.len());
    let (some, rest) = groups.as_chunks::<TOGETHER>();
    let (some_out, rest_out) = out.as_chunks_mut::<TOGETHER>();
    for (x, out) in some.iter().zip(some_out) {
        round_eight(x, out);
    }
    generic::round(rest.as_flattened(), rest_out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn round_eight(x: &[[f32; GROUP]; TOGETHER], out: &mut [Rounded; TOGETHER]) {
    let sign = _mm512_set1_epi32(i32::MAX);
    // As whole numbers, so that a NaN counts as larger than everything.
    let size = |x| _mm512_and_si512(_mm512_castps_si512(x), sign);
    let mut sizes = [_mm512_setzero_ps(); TOGETHER];
    for i in 0..TOGETHER {
        let [low, high] = halves(&x[i]);
        sizes[i] = _mm512_castsi512_ps(_mm512_max_epu32(size(low), size(high)));
    }
    let largest = fold_eight(sizes, |a, b| {
        _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)))
    });
    let (scales, inverses) = scales_of(largest);
    let inverses = floats(inverses);
    let mut fours = [_mm256_setzero_si256(); TOGETHER];
    for i in 0..TOGETHER {
        let ([low, high], inverse) = (halves(&x[i]), _mm512_set1_ps(inverses[i]));
        // What is no number becomes the smallest whole one, whose low byte is zero.
        let codes = |x| _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)));
        let codes = _mm256_set_m128i(codes(high), codes(low));
        // SAFETY: thirty-two bytes are writable, and this store needs no alignment.
        unsafe { _mm256_storeu_si256(out[i].codes.as_mut_ptr().cast(), codes) };
        fours[i] = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes);
    }
    describe(out, scales, half_sums(fours));
}

/// Sums of the codes of the lower and of the upper half of each group, from sums of four.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn half_sums(fours: [__m256i; TOGETHER]) -> [__m256i; 2] {
    let [a, b, c, d, e, f, g, h] = fours;
    // The first groups' lower halves and upper halves, then the others'.
    let first = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let last = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
    [_mm256_permute2x128_si256::<0x20>(first, last), _mm256_permute2x128_si256::<0x31>(first, last)]
}

/// [`Rounded::describe`] of eight.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn describe(out: &mut [Rounded; TOGETHER], scales: __m256, halves: [__m256i; 2]) {
    let sum = _mm256_add_epi32(halves[0], halves[1]);
    let times_scale = |sum| floats(_mm256_mul_ps(scales, _mm256_cvtepi32_ps(sum)));
    let (sums, weighted) = (wholes(sum), times_scale(sum));
    let half_sums = [wholes(halves[0]), wholes(halves[1])];
    let half_weighted = [times_scale(halves[0]), times_scale(halves[1])];
    let scales = floats(scales);
    for (i, out) in out.iter_mut().enumerate() {
        out.scale = scales[i];
        out.sum = sums[i];
        out.weighted = weighted[i];
        out.half_sums = [half_sums[0][i], half_sums[1][i]];
        out.half_weighted = [half_weighted[0][i], half_weighted[1][i]];
        out.from_eight = -8 * sums[i];
    }
}

/// [`Rounded::scale_of`] of eight.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn scales_of(largest: __m256) -> (__m256, __m256) {
    let counts = _mm256_cmp_ps_mask::<_CMP_NLT_UQ>(largest, _mm256_set1_ps(Rounded::SMALLEST));
    let finite = _mm256_cmp_ps_mask::<_CMP_LT_OQ>(largest, _mm256_set1_ps(f32::INFINITY));
    let (most, none) = (_mm256_set1_ps(Rounded::LARGEST_CODE), _mm256_set1_ps(f32::NAN));
    let scales = _mm256_mask_div_ps(none, finite, largest, most);
    let inverses = _mm256_maskz_div_ps(counts & finite, most, largest);
    (_mm256_maskz_mov_ps(counts, scales), inverses)
}

/// What [`super::super::ops_whole::round_weights`] makes of eight queries' weights for a block.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(in crate::simd) fn round_weights(
    weights: &[BlockScores; TOGETHER],
    scales: &BlockScores,
    out: &mut [Weights; TOGETHER],
) {
    let scales = halves(scales);
    let mut parts = [[_mm512_setzero_ps(); 2]; TOGETHER];
    let (mut sums, mut largest) =
        ([_mm512_setzero_ps(); TOGETHER], [_mm512_setzero_ps(); TOGETHER]);
    for i in 0..TOGETHER {
        let weights = halves(&weights[i]);
        for half in 0..2 {
            let seen = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(weights[half], _mm512_setzero_ps());
            parts[i][half] = _mm512_maskz_mul_ps(seen, weights[half], scales[half]);
        }
        sums[i] = _mm512_add_ps(parts[i][0], parts[i][1]);
        largest[i] = _mm512_max_ps(parts[i][0], parts[i][1]);
    }
    let sum = fold_eight(sums, |a, b| _mm512_add_ps(a, b));
    let largest = fold_eight(largest, |a, b| _mm512_max_ps(a, b));
    let scale = _mm256_max_ps(
        _mm256_mul_ps(largest, _mm256_set1_ps(1.0 / WHOLE_CODE)),
        _mm256_mul_ps(sum, _mm256_set1_ps(1.0 / WEIGHTS)),
    );
    let counts = _mm256_cmp_ps_mask::<_CMP_NLT_UQ>(sum, _mm256_set1_ps(SMALLEST_WEIGHT));
    let inverse = floats(_mm256_maskz_div_ps(counts, _mm256_set1_ps(1.0), scale));
    let scale = floats(scale);
    for i in 0..TOGETHER {
        let codes = out[i].codes.as_chunks_mut::<{ BLOCK / 2 }>().0;
        for half in 0..2 {
            let whole = _mm512_mul_ps(parts[i][half], _mm512_set1_ps(inverse[i]));
            let whole = _mm512_castps_si512(_mm512_add_ps(whole, _mm512_set1_ps(TO_WHOLE)));
            let (to, whole) = (codes[half].as_mut_ptr(), _mm512_cvtepi32_epi16(whole));
            // SAFETY: sixteen numbers of 16 bits are writable, and this store needs no alignment.
            unsafe { _mm256_storeu_si256(to.cast(), whole) };
        }
        out[i].scale = scale[i];
    }
}

/// Thirty-two numbers in two registers.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn halves(x: &[f32; 32]) -> [__m512; 2] {
    let halves = x.as_chunks().0;
    [load_f32(&halves[0]), load_f32(&halves[1])]
}

/// Each one's lanes folded in the order of [`super::super::ops::fold`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn fold_eight(x: [__m512; TOGETHER], with: impl Fn(__m512, __m512) -> __m512) -> __m256 {
    // Quarters of two at a time, then of four, in which lanes that are folded lie below each other.
    let eights =
        |a, b| with(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
    let fours = |a, b| with(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
    let [a, b, c, d, e, f, g, h] = x;
    let first = fours(eights(a, b), eights(c, d));
    let last = fours(eights(e, f), eights(g, h));
    let twos = with(_mm512_shuffle_ps::<0x44>(first, last), _mm512_shuffle_ps::<0xee>(first, last));
    let ones = with(_mm512_shuffle_ps::<0x88>(twos, twos), _mm512_shuffle_ps::<0xdd>(twos, twos));
    // Now each quarter begins with one of the first four and one of the last four.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm512_castps512_ps256(_mm512_permutexvar_ps(order, ones))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn floats(x: __m256) -> [f32; TOGETHER] {
    // SAFETY: both are eight f32, of which every pattern of bits is one.
    unsafe { std::mem::transmute(x) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn wholes(x: __m256i) -> [i32; TOGETHER] {
    // SAFETY: both are 32 bytes, of which every pattern is eight whole numbers.
    unsafe { std::mem::transmute(x) }
}
