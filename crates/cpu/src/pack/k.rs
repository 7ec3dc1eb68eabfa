//! The K types of GGUF: super-blocks of 256 elements whose groups of 16 or 32 have small integer
//! scales under one or two half-precision factors.

use super::RowOut;
use super::bytes::{LOW_BITS, LOW_NIBBLES, LOW_PAIRS, bytewise, merge};
use crate::float::f16_at;

/// A nibble of scale and a nibble of minimum per 16 elements of 2 bits.
#[inline(always)]
pub(super) fn q2_k(data: &[u8], mut out: RowOut<'_>) {
    for (i, block) in data.as_chunks::<84>().0.iter().enumerate() {
        let Some(codes) = codes_of(&mut out, i) else { return };
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            two_bits(&block[16..80], run, codes);
        }
        let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
        for (group, byte) in block[..16].iter().enumerate() {
            let (scale, min) = (d * f32::from(byte & 15), dmin * f32::from(byte >> 4));
            out.scale_and_min(i * 16 + group, scale, -min);
        }
    }
}

/// A 6-bit scale less 32 per 16 elements of 2 bits and a third bit that, when clear, takes 4 away.
#[inline(always)]
pub(super) fn q3_k(data: &[u8], mut out: RowOut<'_>) {
    for (i, block) in data.as_chunks::<110>().0.iter().enumerate() {
        let Some(codes) = codes_of(&mut out, i) else { return };
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            two_bits(&block[32..96], run, codes);
            merge(&block[..32], codes, |word| (word >> run & LOW_BITS) << 2);
        }
        let (scales, d) = (&block[96..108], f16_at(block, 108));
        for group in 0..16 {
            let low = scales[group % 8] >> (group / 8 * 4) & 15;
            let top = scales[8 + group % 4] >> (group / 4 * 2) & 3;
            out.scale(i * 16 + group, d * (f32::from(low | top << 4) - 32.0));
        }
    }
}

/// A 6-bit scale and a 6-bit minimum per 32 elements of 4 bits.
#[inline(always)]
pub(super) fn q4_k(data: &[u8], mut out: RowOut<'_>) {
    for (i, block) in data.as_chunks::<144>().0.iter().enumerate() {
        let Some(codes) = codes_of(&mut out, i) else { return };
        four_bits(&block[16..144], codes);
        six_bit_scales(&block[..16], i, &mut out);
    }
}

/// As [`q4_k`], with a fifth bit: bit `group` of byte `i` belongs to element `i` of that group.
#[inline(always)]
pub(super) fn q5_k(data: &[u8], mut out: RowOut<'_>) {
    for (i, block) in data.as_chunks::<176>().0.iter().enumerate() {
        let Some(codes) = codes_of(&mut out, i) else { return };
        four_bits(&block[48..176], codes);
        for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            merge(&block[16..48], codes, |word| (word >> group & LOW_BITS) << 4);
        }
        six_bit_scales(&block[..16], i, &mut out);
    }
}

/// A signed byte of scale per 16 elements of 6 bits, in 4 low and 2 high ones.
#[inline(always)]
pub(super) fn q6_k(data: &[u8], mut out: RowOut<'_>) {
    for (i, block) in data.as_chunks::<210>().0.iter().enumerate() {
        let Some(codes) = codes_of(&mut out, i) else { return };
        for (half, codes) in codes.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let (low, high) = (&block[half * 64..][..64], &block[128 + half * 32..][..32]);
            let (first, second) = codes.split_at_mut(64);
            bytewise(low, first, |word| word & LOW_NIBBLES);
            bytewise(low, second, |word| word >> 4 & LOW_NIBBLES);
            for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                merge(high, codes, |word| (word >> (run * 2) & LOW_PAIRS) << 4);
            }
        }
        let d = f16_at(block, 208);
        for (group, scale) in block[192..208].iter().enumerate() {
            out.scale(i * 16 + group, d * f32::from(*scale as i8));
        }
    }
}

#[inline(always)]
fn codes_of<'a>(out: &'a mut RowOut<'_>, block: usize) -> Option<&'a mut [u8; 256]> {
    out.codes[block * 256..].first_chunk_mut()
}

/// Run `run` of 32 elements: 128 elements share 32 bytes in four planes.
#[inline(always)]
fn two_bits(packed: &[u8], run: usize, codes: &mut [u8; 32]) {
    bytewise(&packed[run / 4 * 32..], codes, |word| word >> (run % 4 * 2) & LOW_PAIRS);
}

/// 64 elements share 32 bytes: low nibbles first.
#[inline(always)]
fn four_bits(packed: &[u8], codes: &mut [u8; 256]) {
    let packed = packed.as_chunks::<32>().0;
    for (codes, packed) in codes.as_chunks_mut::<64>().0.iter_mut().zip(packed) {
        let (low, high) = codes.split_at_mut(32);
        bytewise(packed, low, |word| word & LOW_NIBBLES);
        bytewise(packed, high, |word| word >> 4 & LOW_NIBBLES);
    }
}

/// Two factors, then eight scales and eight minimums of 6 bits in twelve bytes.
#[inline(always)]
fn six_bit_scales(head: &[u8], block: usize, out: &mut RowOut<'_>) {
    let (d, dmin, packed) = (f16_at(head, 0), f16_at(head, 2), &head[4..16]);
    for group in 0..4 {
        let (scale, min) = (packed[group] & 63, packed[group + 4] & 63);
        out.scale_and_min(block * 8 + group, d * f32::from(scale), -(dmin * f32::from(min)));
        let low = packed[group + 8];
        let scale = low & 15 | packed[group] >> 2 & 48;
        let min = low >> 4 | packed[group + 4] >> 2 & 48;
        out.scale_and_min(block * 8 + group + 4, d * f32::from(scale), -(dmin * f32::from(min)));
    }
}
