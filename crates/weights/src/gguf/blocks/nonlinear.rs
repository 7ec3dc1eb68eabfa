//! The 32-element blocks whose 4-bit codes look up a fixed table.
//!
//! Elements 0..16 are the low nibbles and 16..32 the high nibbles, unlike in MLX's MXFP4, which
//! alternates them and keeps its scales apart.

use super::half_at;

const N: usize = 32;

const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the E2M1 values, so that they are whole; the scale is halved in turn.
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// A half-precision scale times a table entry.
pub(super) fn iq4_nl(block: &[u8; 18], out: &mut [f32; N]) {
    look_up(half_at(block, 0), &IQ4_NL, &block[2..], out);
}

/// An E8M0 scale times an E2M1 element.
pub(super) fn mxfp4(block: &[u8; 17], out: &mut [f32; N]) {
    look_up(half_of_e8m0(block[0]), &E2M1_DOUBLED, &block[1..], out);
}

fn look_up(scale: f32, table: &[i8; 16], codes: &[u8], out: &mut [f32; N]) {
    for (i, &byte) in codes.iter().enumerate() {
        out[i] = scale * f32::from(table[usize::from(byte & 15)]);
        out[i + 16] = scale * f32::from(table[usize::from(byte >> 4)]);
    }
}

/// `2^(code - 128)`; the two lowest codes are subnormal.
fn half_of_e8m0(code: u8) -> f32 {
    match code {
        0 | 1 => f32::from_bits(0x0020_0000 << code),
        _ => f32::from_bits(u32::from(code - 1) << 23),
    }
}
