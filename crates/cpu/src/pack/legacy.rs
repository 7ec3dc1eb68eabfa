//! GGUF blocks of 32 elements with one scale, and at most one minimum, each.
//!
//! All 4- and 5-bit layouts put elements 0..16 into the low nibbles and 16..32 into the high nibbles
//! of the same sixteen bytes.

use super::RowOut;
use super::bytes::{LOW_NIBBLES, bytewise};
use crate::float::f16_at;

/// The values of IQ4_NL, 128 added.
const IQ4_NL: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

#[inline(always)]
pub(super) fn q4_0(data: &[u8], mut out: RowOut<'_>) {
    each::<18>(data, &mut out, |block, codes| {
        nibbles(&block[2..], codes);
        (f16_at(block, 0), None)
    });
}

#[inline(always)]
pub(super) fn q4_1(data: &[u8], mut out: RowOut<'_>) {
    each::<20>(data, &mut out, |block, codes| {
        nibbles(&block[4..], codes);
        (f16_at(block, 0), Some(f16_at(block, 2)))
    });
}

#[inline(always)]
pub(super) fn q5_0(data: &[u8], mut out: RowOut<'_>) {
    each::<22>(data, &mut out, |block, codes| {
        nibbles(&block[6..], codes);
        fifth_bits([block[2], block[3], block[4], block[5]], codes);
        (f16_at(block, 0), None)
    });
}

#[inline(always)]
pub(super) fn q5_1(data: &[u8], mut out: RowOut<'_>) {
    each::<24>(data, &mut out, |block, codes| {
        nibbles(&block[8..], codes);
        fifth_bits([block[4], block[5], block[6], block[7]], codes);
        (f16_at(block, 0), Some(f16_at(block, 2)))
    });
}

#[inline(always)]
pub(super) fn q8_0(data: &[u8], mut out: RowOut<'_>) {
    each::<34>(data, &mut out, |block, codes| {
        bytewise(&block[2..], codes, |word| word ^ 0x8080_8080_8080_8080);
        (f16_at(block, 0), None)
    });
}

#[inline(always)]
pub(super) fn iq4_nl(data: &[u8], mut out: RowOut<'_>) {
    each::<18>(data, &mut out, |block, codes| {
        nibbles(&block[2..], codes);
        for code in codes {
            *code = IQ4_NL[usize::from(*code & 15)];
        }
        (f16_at(block, 0), None)
    });
}

/// Calls `unpack` for every block; it fills the codes and returns the scale and the minimum.
#[inline(always)]
fn each<const BYTES: usize>(
    data: &[u8],
    out: &mut RowOut<'_>,
    unpack: impl Fn(&[u8; BYTES], &mut [u8; 32]) -> (f32, Option<f32>),
) {
    let n = data.len() / BYTES;
    for (group, block) in data.as_chunks::<BYTES>().0.iter().enumerate().take(n) {
        let Some(codes) = out.codes[group * 32..].first_chunk_mut() else { return };
        match unpack(block, codes) {
            (scale, None) => out.scale(group, scale),
            (scale, Some(min)) => out.scale_and_min(group, scale, min),
        }
    }
}

/// Low nibbles, then high nibbles.
#[inline(always)]
pub(super) fn nibbles(packed: &[u8], codes: &mut [u8; 32]) {
    let (low, high) = codes.split_at_mut(16);
    bytewise(packed, low, |word| word & LOW_NIBBLES);
    bytewise(packed, high, |word| word >> 4 & LOW_NIBBLES);
}

/// Byte `i` of entry `b` is 16 where bit `i` of `b` is set.
const FIFTH_BITS: [u64; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 * 8 {
        let (byte, bit) = (at / 8, at % 8);
        table[byte] |= (byte as u64 >> bit & 1) << (8 * bit + 4);
        at += 1;
    }
    table
};

/// Sets bit 4 of every code from its bit in a word.
#[inline(always)]
fn fifth_bits(bytes: [u8; 4], codes: &mut [u8; 32]) {
    for (codes, byte) in codes.as_chunks_mut().0.iter_mut().zip(bytes) {
        *codes = (u64::from_le_bytes(*codes) | FIFTH_BITS[usize::from(byte)]).to_le_bytes();
    }
}
