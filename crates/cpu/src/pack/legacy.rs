//! GGUF blocks of 32 elements with one scale, and at most one minimum, each.
//!
//! All 4- and 5-bit layouts put elements 0..16 into the low nibbles and 16..32 into the high nibbles
//! of the same sixteen bytes.

use super::{Codes, LOW_NIBBLES, Out};
use crate::simd::{Side, Words};

/// The values of IQ4_NL, 128 added.
const IQ4_NL: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

#[inline(always)]
pub(super) fn q4_0<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    out.run(0, nibbles(rows, at + 2));
    out.scale::<W>(0, rows.word(at).f16());
}

#[inline(always)]
pub(super) fn q4_1<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    out.run(0, nibbles(rows, at + 4));
    scale_and_min(rows.word(at), out);
}

#[inline(always)]
pub(super) fn q5_0<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    five_bits(nibbles(rows, at + 6), rows.word(at + 2), out);
    out.scale::<W>(0, rows.half(at).f16());
}

#[inline(always)]
pub(super) fn q5_1<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    five_bits(nibbles(rows, at + 8), rows.word(at + 4), out);
    scale_and_min(rows.word(at), out);
}

#[inline(always)]
pub(super) fn q8_0<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    out.run(0, signed_bytes(rows, at + 2));
    out.scale::<W>(0, rows.half(at).f16());
}

/// 32 signed bytes, 128 added.
#[inline(always)]
pub(super) fn signed_bytes<W: Words>(rows: &Side<'_, W>, at: usize) -> [W; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (rows.quad(at), rows.quad(at + 16));
    let mut codes = [a, b, c, d, e, f, g, h];
    for codes in &mut codes {
        *codes = codes.xor(0x8080_8080);
    }
    codes
}

#[inline(always)]
pub(super) fn iq4_nl<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    out.run(0, look_up(nibbles(rows, at + 2), &IQ4_NL));
    out.scale::<W>(0, rows.half(at).f16());
}

/// Low nibbles of sixteen bytes, then their high nibbles.
#[inline(always)]
pub(super) fn nibbles<W: Words>(rows: &Side<'_, W>, at: usize) -> [W; 8] {
    let [a, b, c, d] = rows.quad(at);
    let mut nibbles = [a, b, c, d, a.shr(4), b.shr(4), c.shr(4), d.shr(4)];
    for nibbles in &mut nibbles {
        *nibbles = nibbles.and(LOW_NIBBLES);
    }
    nibbles
}

/// Every nibble by its value in a table. A loop, because a closure would not be compiled for the
/// instruction set.
#[inline(always)]
pub(super) fn look_up<W: Words>(mut nibbles: [W; 8], table: &[u8; 16]) -> [W; 8] {
    for nibbles in &mut nibbles {
        *nibbles = nibbles.lookup(table);
    }
    nibbles
}

#[inline(always)]
fn scale_and_min<W: Words>(both: W, out: &mut Out<'_, impl Codes<W>>) {
    out.scale::<W>(0, both.f16());
    out.min::<W>(0, both.shr(16).f16());
}

/// Nibbles with bit 4 of element `i` from bit `i` of a word.
#[inline(always)]
fn five_bits<W: Words>(nibbles: [W; 8], fifths: W, out: &mut Out<'_, impl Codes<W>>) {
    // Line `j` wants bits `4 j..4 j + 4` in four bytes. As `i` and `j`, positions are j2 j1 j0 i1 i0;
    // two exchanges of position bits make them i1 i0 j0 j2 j1.
    let fifths = exchange(fifths, 14, 0x0000_cccc);
    let fifths = exchange(fifths, 7, 0x00aa_00aa);
    let mut codes = nibbles;
    for (line, codes) in codes.iter_mut().enumerate() {
        let place = (line as u32 & 1) << 2 | line as u32 >> 1;
        let fifth = if place < 4 { fifths.shl(4 - place) } else { fifths.shr(place - 4) };
        *codes = codes.or(fifth.and(0x1010_1010));
    }
    out.run(0, codes);
}

/// Exchanges the bits of `mask` with those `distance` above them.
#[inline(always)]
fn exchange<W: Words>(x: W, distance: u32, mask: u32) -> W {
    let kept = x.and(!(mask | mask << distance));
    kept.or(x.shr(distance).and(mask)).or(x.and(mask).shl(distance))
}
