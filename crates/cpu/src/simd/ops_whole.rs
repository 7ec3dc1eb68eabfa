//! Attention in whole numbers, which [`KvFormat::Int16`](backend::KvFormat::Int16) is made for: queries
//! and weights become codes of 16 bits too, and sums of products are whole numbers of 32 bits. So their
//! order shows in nothing, and an instruction multiplies twice as many as in f32, or more.
//!
//! A query's codes have a length of at most [`QUERY_LENGTH`], a key's of [`WHOLE_LENGTH`], rounding
//! left aside: no sum of their products, complete or not, leaves 32 bits. The weights of a block's keys,
//! each times the scale of its value, get codes of at most [`WHOLE_CODE`] whose sum is at most
//! [`WEIGHTS`], rounding left aside; no sum of theirs with values' codes leaves 32 bits either.
//!
//! First the plain definitions, then the products in vector instructions, for any width.

use backend::{BLOCK, QUERY_LENGTH, WHOLE_CODE, WHOLE_LENGTH};

use super::ops::{BlockScores, LANES, VALUE_PAD, fold, greater};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::ops_wide::{BUSY, Wide, ask};
use super::stored::{Wholes, bf16_at};

/// A key or value that is nowhere as large counts as zeros, and so does a query that is not as long.
const SMALLEST: f32 = 1e-15;
/// What codes of weights add up to at most, a little less than twice [`WHOLE_CODE`].
pub(super) const WEIGHTS: f32 = 65_000.0;
/// Weights that all together are less, relative to the largest one of a segment, count as zeros.
pub(super) const SMALLEST_WEIGHT: f32 = 1e-30;
/// Adding it rounds to a whole number, ties to even, which is then in the low bits.
pub(super) const TO_WHOLE: f32 = 12_582_912.0;

/// Some queries, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queries<'a> {
    /// Their numbers, if keys are read as floats.
    pub(crate) floats: &'a [f32],
    /// Their codes, each query's of an even number, if keys are whole numbers.
    pub(crate) codes: &'a [i16],
    /// A scale for each query then.
    pub(crate) scales: &'a [f32],
}

/// What a query weighs the values of a block with.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    pub(super) codes: [i16; BLOCK],
    /// What a sum of products with values' codes is to be multiplied with.
    pub(super) scale: f32,
}

impl Weights {
    pub(super) const NONE: Weights = Weights { codes: [0; BLOCK], scale: 0.0 };
}

/// Root of the sum of squares, in the order that [`backend::KvFormat::Int16`] says.
#[inline(always)]
fn length(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = x.mul_add(*x, *lane);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = x.mul_add(*x, *lane);
    }
    fold(lanes, |a, b| a + b).sqrt()
}

#[inline(always)]
fn put_codes(x: &[f32], inverse: f32, codes: &mut [i16]) {
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (x * inverse + TO_WHOLE).to_bits() as i16;
    }
}

/// Makes the codes of a key or value, and gives their scale as the bits of a bf16.
#[inline(always)]
pub(super) fn round_stored(x: &[f32], codes: &mut [i16]) -> u16 {
    const NOT_A_NUMBER: u16 = 0x7fc0;
    let length = length(x);
    let mut lanes = [0.0f32; LANES];
    for x in x.chunks(LANES) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane = greater(*lane, x.abs()));
    }
    let largest = fold(lanes, greater);
    let scale = if !length.is_finite() {
        NOT_A_NUMBER
    } else if largest < SMALLEST {
        0
    } else {
        let exact = greater(length / WHOLE_LENGTH, largest / WHOLE_CODE);
        (exact.to_bits().wrapping_add(0xffff) >> 16) as u16
    };
    let inverse = if scale == 0 { 0.0 } else { 1.0 / f32::from_bits(u32::from(scale) << 16) };
    put_codes(x, inverse, codes);
    scale
}

/// Makes the codes of a query, and gives their scale.
#[inline(always)]
pub(super) fn round_query(x: &[f32], codes: &mut [i16]) -> f32 {
    let length = length(x);
    let (scale, inverse) = if !length.is_finite() {
        (f32::NAN, 0.0)
    } else if length < SMALLEST {
        (0.0, 0.0)
    } else {
        (length / QUERY_LENGTH, QUERY_LENGTH / length)
    };
    put_codes(x, inverse, codes);
    scale
}

/// Makes codes of the weights of a block's keys: those of keys that are not seen are zero, whatever
/// their values' scales may be.
#[inline(always)]
pub(super) fn round_weights(weights: &BlockScores, scales: &BlockScores) -> Weights {
    let mut parts = [0.0f32; BLOCK];
    for ((part, weight), scale) in parts.iter_mut().zip(weights).zip(scales) {
        *part = if *weight == 0.0 { 0.0 } else { weight * scale };
    }
    let (sum, largest) = (fold(parts, |a, b| a + b), fold(parts, greater));
    // In this order, a sum that is not a number makes the scale none.
    let scale = greater(largest * (1.0 / WHOLE_CODE), sum * (1.0 / WEIGHTS));
    let inverse = if sum < SMALLEST_WEIGHT { 0.0 } else { 1.0 / scale };
    let mut out = Weights { scale, ..Weights::NONE };
    put_codes(&parts, inverse, &mut out.codes);
    out
}

/// The scales of a block's keys or values.
#[inline(always)]
fn scales(wholes: Wholes<'_>) -> BlockScores {
    std::array::from_fn(|key| bf16_at(wholes.scales, key))
}

/// Scores of some queries with the keys of a block: the sum of products, times the key's scale, times
/// the query's.
pub(super) fn scores(queries: Queries<'_>, keys: Wholes<'_>, out: &mut [BlockScores]) {
    let cols = queries.codes.len() / out.len();
    let scales = scales(keys);
    let codes = queries.codes.chunks_exact(cols).zip(queries.scales);
    for ((q, scale), out) in codes.zip(out) {
        for (key, score) in out.iter_mut().enumerate() {
            let product = |(column, q): (usize, &i16)| {
                i32::from(*q).wrapping_mul(i32::from(keys.key_code(column, key)))
            };
            let sum = q.iter().enumerate().map(product).fold(0, i32::wrapping_add);
            *score = sum as f32 * scales[key] * scale;
        }
    }
}

/// Adds the values of a block, weighted, to the sum of each query, fused: a sum of products, times the
/// scale of the query's weights.
pub(super) fn add_values(weights: &[BlockScores], values: Wholes<'_>, sums: &mut [f32]) {
    let cols = sums.len() / weights.len();
    let scales = scales(values);
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(cols)) {
        let Weights { codes, scale } = round_weights(weights, &scales);
        for (column, sum) in sums.iter_mut().enumerate() {
            let product = |(key, weight): (usize, &i16)| {
                i32::from(*weight).wrapping_mul(i32::from(values.value_code(column, key, cols)))
            };
            let whole = codes.iter().enumerate().map(product).fold(0, i32::wrapping_add);
            *sum = (whole as f32).mul_add(scale, *sum);
        }
    }
}

/// A vector register of f32 and one of as many whole numbers of 32 bits, or twice as many of 16.
///
/// # Safety
/// As of [`Wide`]; pointers are to twice [`Wide::LANES`] numbers of 16 bits.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(clippy::missing_safety_doc, reason = "the trait says it for all")]
pub(super) trait Whole: Wide {
    /// The register of whole numbers.
    type Register: Copy;
    unsafe fn nothing() -> Self::Register;
    unsafe fn pairs(from: *const i16) -> Self::Register;
    /// All lanes one pair of numbers.
    unsafe fn pair(bits: i32) -> Self::Register;
    /// Adds, in each lane of 32 bits, both products of two pairs. Wraps.
    unsafe fn add_products(
        a: Self::Register,
        b: Self::Register,
        to: Self::Register,
    ) -> Self::Register;
    /// The nearest f32, ties to even.
    unsafe fn float(whole: Self::Register) -> Self;
    /// [`round_weights`] of each query.
    #[inline(always)]
    unsafe fn round_weights<const N: usize>(
        weights: &[BlockScores; N],
        scales: &BlockScores,
    ) -> [Weights; N] {
        weights.each_ref().map(|weights| round_weights(weights, scales))
    }
}

/// The pair of codes that begins at `from`, which need not be aligned.
///
/// # Safety
/// There are two.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn pair_at(from: *const i16) -> i32 {
    // SAFETY: there are two by this function's contract.
    unsafe { from.cast::<i32>().read_unaligned() }
}

/// [`scores`] of `N` queries, `V` vectors of keys at a time.
///
/// # Safety
/// The machine has the instructions of `W`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) unsafe fn score_some<W: Whole, const N: usize, const V: usize>(
    queries: Queries<'_>,
    keys: Wholes<'_>,
    out: &mut [BlockScores],
) {
    let Queries { codes: q, scales: q_scales, .. } = queries;
    let cols = q.len() / N;
    assert!(q.len() == N * cols && q_scales.len() == N && out.len() == N && cols.is_multiple_of(2));
    assert!(keys.holds(cols) && BLOCK.is_multiple_of(V * W::LANES));
    let codes = keys.codes.as_ptr().cast::<i16>();
    for first in (0..BLOCK).step_by(V * W::LANES) {
        // SAFETY: the instructions are there, here and below.
        let mut sums = [[unsafe { W::nothing() }; V]; N];
        for d in (0..cols).step_by(2) {
            let at = d * BLOCK + 2 * first;
            if N >= BUSY {
                ask_behind::<W, V>(keys, at);
            }
            let mut wide = sums[0];
            for (v, wide) in wide.iter_mut().enumerate() {
                // SAFETY: `d + 2 <= cols` and `first + V * LANES <= BLOCK`.
                *wide = unsafe { W::pairs(codes.add(at + 2 * v * W::LANES)) };
            }
            for (n, sums) in sums.iter_mut().enumerate() {
                // SAFETY: `n < N` and `d + 2 <= cols`, and `q` has `N * cols` numbers.
                let q = unsafe { W::pair(pair_at(q.as_ptr().add(n * cols + d))) };
                for (sum, wide) in sums.iter_mut().zip(wide) {
                    // SAFETY: as above.
                    *sum = unsafe { W::add_products(q, wide, *sum) };
                }
            }
        }
        for v in 0..V {
            let at = first + v * W::LANES;
            // SAFETY: there is a scale for each of `BLOCK` keys.
            let scales = unsafe { W::from_bf16(keys.scales.as_ptr().cast::<u16>().add(at)) };
            for ((out, sums), scale) in out.iter_mut().zip(&sums).zip(q_scales) {
                // SAFETY: `at + LANES <= BLOCK`, the length of `out`.
                unsafe {
                    let score = W::float(sums[v]).multiply(scales).multiply(W::all(*scale));
                    score.store(out.as_mut_ptr().add(at));
                }
            }
        }
    }
}

/// [`add_values`] of `N` queries, `V` vectors of columns at a time while there are so many, then one.
///
/// # Safety
/// The machine has the instructions of `W`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) unsafe fn add_some<W: Whole, const N: usize, const V: usize>(
    weights: &[BlockScores],
    values: Wholes<'_>,
    sums: &mut [f32],
) {
    let cols = sums.len() / N;
    let weights: &[BlockScores; N] = weights.try_into().expect("weights of `N` queries");
    assert!(cols.is_multiple_of(VALUE_PAD));
    // SAFETY: the instructions are there.
    let codes = unsafe { W::round_weights(weights, &scales(values)) };
    let mut first = 0;
    while first + V * W::LANES <= cols {
        // SAFETY: the instructions are there.
        unsafe { add_columns::<W, N, V>(&codes, values, first, sums) };
        first += V * W::LANES;
    }
    while first < cols {
        // SAFETY: as above.
        unsafe { add_columns::<W, N, 1>(&codes, values, first, sums) };
        first += W::LANES;
    }
}

/// # Safety
/// The machine has the instructions of `W`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
unsafe fn add_columns<W: Whole, const N: usize, const V: usize>(
    weights: &[Weights; N],
    values: Wholes<'_>,
    first: usize,
    sums: &mut [f32],
) {
    let cols = sums.len() / N;
    assert!(sums.len() == N * cols && first + V * W::LANES <= cols && values.holds(cols));
    let codes = values.codes.as_ptr().cast::<i16>();
    // SAFETY: the instructions are there, here and below.
    let mut wholes = [[unsafe { W::nothing() }; V]; N];
    for key in (0..BLOCK).step_by(2) {
        let at = key * cols + 2 * first;
        if N >= BUSY {
            ask_behind::<W, V>(values, at);
        }
        let mut wide = wholes[0];
        for (v, wide) in wide.iter_mut().enumerate() {
            // SAFETY: `key + 2 <= BLOCK` and `first + V * LANES <= cols`.
            *wide = unsafe { W::pairs(codes.add(at + 2 * v * W::LANES)) };
        }
        for (wholes, weights) in wholes.iter_mut().zip(weights) {
            // SAFETY: `key + 2 <= BLOCK`.
            let weight = unsafe { W::pair(pair_at(weights.codes.as_ptr().add(key))) };
            for (whole, wide) in wholes.iter_mut().zip(wide) {
                // SAFETY: as above.
                *whole = unsafe { W::add_products(weight, wide, *whole) };
            }
        }
    }
    for (n, (wholes, weights)) in wholes.iter().zip(weights).enumerate() {
        for (v, whole) in wholes.iter().enumerate() {
            // SAFETY: `n < N` and `first + V * LANES <= cols`, and `sums` has `N * cols` numbers.
            unsafe {
                let sum = sums.as_mut_ptr().add(n * cols + first + v * W::LANES);
                W::float(*whole).multiply_add(W::all(weights.scale), W::load(sum)).store(sum);
            }
        }
    }
}

/// Asks for what will be wanted when the block behind this one is at work.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn ask_behind<W: Wide, const V: usize>(wholes: Wholes<'_>, at: usize) {
    let end = wholes.codes.as_ptr().wrapping_add(wholes.codes.len() + wholes.scales.len());
    for line in (0..4 * V * W::LANES).step_by(64) {
        ask(end.wrapping_add(2 * at + line));
    }
}
