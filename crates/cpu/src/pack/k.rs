//! The K types of GGUF: super-blocks of 256 elements whose groups of 16 or 32 have small integer
//! scales under one or two half-precision factors.

use super::{Codes, LOW_BITS, LOW_NIBBLES, LOW_PAIRS, Out};
use crate::simd::{Side, Words};

/// A nibble of scale and a nibble of minimum per 16 elements of 2 bits.
#[inline(always)]
pub(super) fn q2_k<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    for part in 0..4 {
        let packed = rows.quad(at + 16 + 16 * part);
        for run in 0..4 {
            for (i, packed) in packed.iter().enumerate() {
                let codes = packed.shr(2 * run as u32).and(LOW_PAIRS);
                out.codes(line_of_two_bits(part, run) + i, codes);
            }
        }
    }
    let factors = rows.word(at + 80);
    let (d, dmin) = (factors.f16(), factors.shr(16).f16());
    for (i, both) in rows.quad(at).into_iter().enumerate() {
        for k in 0..4 {
            let (scale, min) = (both.shr(8 * k).and(15), both.shr(8 * k + 4).and(15));
            let group = 4 * i + k as usize;
            out.scale::<W>(group, W::times(d, scale.number()));
            out.min::<W>(group, W::minus(W::times(dmin, min.number())));
        }
    }
}

/// A 6-bit scale less 32 per 16 elements of 2 bits and a third bit that, when clear, takes 4 away.
#[inline(always)]
pub(super) fn q3_k<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    let thirds = [rows.quad(at), rows.quad(at + 16)];
    for part in 0..4 {
        let packed = rows.quad(at + 32 + 16 * part);
        for run in 0..4 {
            let line = line_of_two_bits(part, run);
            for i in 0..4 {
                let codes = packed[i].shr(2 * run as u32).and(LOW_PAIRS);
                let third = thirds[part % 2][i].shr(line as u32 / 8).and(LOW_BITS);
                out.codes(line + i, codes.or(third.shl(2)));
            }
        }
    }
    let d = rows.word(at + 106).shr(16).f16();
    let [low0, low1, high] = [rows.word(at + 96), rows.word(at + 100), rows.word(at + 104)];
    for group in 0..16 {
        let low = if group % 8 < 4 { low0 } else { low1 };
        let low = low.shr(group % 4 * 8 + group / 8 * 4).and(15);
        let top = high.shr(group % 4 * 8 + group / 4 * 2).and(3);
        // Less 32: from 0..64 to a signed number of six bits, by turning its highest bit over.
        let scale = low.or(top.shl(4)).xor(32).shl(26).sar(26);
        out.scale::<W>(group as usize, W::times(d, scale.number()));
    }
}

/// A 6-bit scale and a 6-bit minimum per 32 elements of 4 bits.
#[inline(always)]
pub(super) fn q4_k<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    six_bit_scales(rows.quad(at), out);
    for part in 0..8 {
        let packed = rows.quad(at + 16 + 16 * part);
        let line = line_of_four_bits(part);
        for (i, packed) in packed.into_iter().enumerate() {
            out.codes(line + i, packed.and(LOW_NIBBLES));
            out.codes(line + 8 + i, packed.shr(4).and(LOW_NIBBLES));
        }
    }
}

/// As [`q4_k`], with a fifth bit: bit `group` of byte `i` belongs to element `i` of that group.
#[inline(always)]
pub(super) fn q5_k<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    six_bit_scales(rows.quad(at), out);
    let fifths = [rows.quad(at + 16), rows.quad(at + 32)];
    for part in 0..8 {
        let packed = rows.quad(at + 48 + 16 * part);
        let line = line_of_four_bits(part);
        for i in 0..4 {
            let fifths = fifths[part % 2][i].shr(line as u32 / 8);
            let (low, high) = (packed[i].and(LOW_NIBBLES), packed[i].shr(4).and(LOW_NIBBLES));
            out.codes(line + i, low.or(fifths.and(LOW_BITS).shl(4)));
            out.codes(line + 8 + i, high.or(fifths.shr(1).and(LOW_BITS).shl(4)));
        }
    }
}

/// A signed byte of scale per 16 elements of 6 bits, in 4 low and 2 high ones.
#[inline(always)]
pub(super) fn q6_k<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    for half in 0..2 {
        for part in 0..2 {
            // 16 bytes of every run of 32: the low nibbles of runs 0 and 1 lie below those of 2 and
            // 3, the high pairs of all four runs in the same byte.
            let even = rows.quad(at + 64 * half + 16 * part);
            let odd = rows.quad(at + 64 * half + 32 + 16 * part);
            let high = rows.quad(at + 128 + 32 * half + 16 * part);
            for run in 0..4 {
                let low = if run % 2 == 0 { even } else { odd };
                for i in 0..4 {
                    let low = low[i].shr(run / 2 * 4).and(LOW_NIBBLES);
                    let high = high[i].shr(run * 2).and(LOW_PAIRS).shl(4);
                    out.codes(32 * half + 8 * run as usize + 4 * part + i, low.or(high));
                }
            }
        }
    }
    let d = rows.word(at + 206).shr(16).f16();
    for (i, scales) in rows.quad(at + 192).into_iter().enumerate() {
        for k in 0..4 {
            let scale = scales.shl(24 - 8 * k).sar(24);
            out.scale::<W>(4 * i + k as usize, W::times(d, scale.number()));
        }
    }
}

/// Where run `run` of the four that lie in sixteen bytes begins, those being `part` of the four
/// that 256 elements take.
#[inline(always)]
fn line_of_two_bits(part: usize, run: usize) -> usize {
    8 * (part / 2 * 4 + run) + 4 * (part % 2)
}

/// Where the low nibbles of sixteen bytes go, those being `part` of the eight that 256 elements
/// take: 64 of them share 32 bytes. The high nibbles come eight lines later.
#[inline(always)]
fn line_of_four_bits(part: usize) -> usize {
    16 * (part / 2) + 4 * (part % 2)
}

/// Two factors, then eight scales and eight minimums of 6 bits in twelve bytes.
#[inline(always)]
fn six_bit_scales<W: Words>(
    [factors, scales, mins, both]: [W; 4],
    out: &mut Out<'_, impl Codes<W>>,
) {
    let (d, dmin) = (factors.f16(), factors.shr(16).f16());
    for group in 0..8 {
        let at = group as u32 % 4 * 8;
        let (scale, min) = match group {
            0..4 => (scales.shr(at).and(63), mins.shr(at).and(63)),
            // The upper two bits are those that the first four left over.
            _ => (
                both.shr(at).and(15).or(scales.shr(at + 2).and(48)),
                both.shr(at + 4).and(15).or(mins.shr(at + 2).and(48)),
            ),
        };
        out.scale::<W>(group, W::times(d, scale.number()));
        out.min::<W>(group, W::minus(W::times(dmin, min.number())));
    }
}
