//! Four-bit floats: sign, two bits of exponent, one of fraction. Twice their values are whole
//! numbers from -12 to 12, so they become codes, and their scales are halved.

use super::bytes::spread_nibbles;
use super::{Level, RowOut, legacy};
use crate::float::{e4m3_to_f32, e8m0_to_f32, half_of_e8m0};

/// The code of zero.
pub(super) const ZERO: u8 = 12;
/// What the codes mean.
pub(super) const LEVEL: Level = Level::Zero(ZERO as i32);

/// MLX: low nibble first, a power of two per 32 elements.
#[inline(always)]
pub(super) fn mxfp4(data: &[u8], scales: &[u8], mut out: RowOut<'_>) {
    alternating(data, out.codes);
    for (group, scale) in scales.iter().enumerate() {
        out.scale(group, 0.5 * e8m0_to_f32(*scale));
    }
}

/// MLX: low nibble first, an 8-bit float per 16 elements.
#[inline(always)]
pub(super) fn nvfp4(data: &[u8], scales: &[u8], mut out: RowOut<'_>) {
    alternating(data, out.codes);
    for (group, scale) in scales.iter().enumerate() {
        out.scale(group, 0.5 * e4m3_to_f32(*scale));
    }
}

/// GGUF: the scale in front of sixteen bytes, whose low nibbles come first.
#[inline(always)]
pub(super) fn gguf_mxfp4(data: &[u8], mut out: RowOut<'_>) {
    for (group, block) in data.as_chunks::<17>().0.iter().enumerate() {
        let Some(codes) = out.codes[group * 32..].first_chunk_mut() else { return };
        legacy::nibbles(&block[1..], codes);
        from_nibbles(codes);
        out.scale(group, half_of_e8m0(block[0]));
    }
}

#[inline(always)]
fn alternating(data: &[u8], codes: &mut [u8]) {
    for (codes, packed) in codes.as_chunks_mut::<8>().0.iter_mut().zip(data.as_chunks().0) {
        *codes = spread_nibbles(*packed).to_le_bytes();
    }
    from_nibbles(codes);
}

/// Doubled values are 0, 1, 2, 3, 4, 6, 8, 12 by the low three bits. Arithmetic rather than a table,
/// so that it is done for many at once.
#[inline(always)]
fn from_nibbles(codes: &mut [u8]) {
    for code in codes {
        let n = *code & 7;
        let size = n + n.saturating_sub(4) + 2 * u8::from(n == 7);
        *code = if *code & 8 == 0 { ZERO + size } else { ZERO - size };
    }
}
