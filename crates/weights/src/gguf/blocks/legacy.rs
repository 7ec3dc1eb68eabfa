//! The 32-element blocks with one scale, and at most one minimum, each.
//!
//! All 4 and 5-bit layouts here put elements 0..16 into the low nibbles and 16..32 into the high
//! nibbles of the same sixteen bytes. Super-blocks of 256 elements are not here.

use super::half_at;

const N: usize = 32;

/// `w = d * (q - 8)`.
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; N]) {
    let d = half_at(block, 0);
    for (i, byte) in block[2..].iter().enumerate() {
        out[i] = d * f32::from((byte & 15) as i8 - 8);
        out[i + 16] = d * f32::from((byte >> 4) as i8 - 8);
    }
}

/// `w = d * q + m`.
pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; N]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, byte) in block[4..].iter().enumerate() {
        out[i] = d * f32::from(byte & 15) + m;
        out[i + 16] = d * f32::from(byte >> 4) + m;
    }
}

/// `w = d * (q - 16)`, the fifth bits lying together in front of the nibbles.
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; N]) {
    let d = half_at(block, 0);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    for (i, byte) in block[6..].iter().enumerate() {
        out[i] = d * f32::from(fifth_bit(byte & 15, high, i) as i8 - 16);
        out[i + 16] = d * f32::from(fifth_bit(byte >> 4, high, i + 16) as i8 - 16);
    }
}

/// `w = d * q + m`, the fifth bits lying together in front of the nibbles.
pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; N]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    for (i, byte) in block[8..].iter().enumerate() {
        out[i] = d * f32::from(fifth_bit(byte & 15, high, i)) + m;
        out[i + 16] = d * f32::from(fifth_bit(byte >> 4, high, i + 16)) + m;
    }
}

/// `w = d * q`, `q` a signed byte.
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; N]) {
    let d = half_at(block, 0);
    for (out, &byte) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(byte as i8) * d;
    }
}

fn fifth_bit(nibble: u8, high: u32, element: usize) -> u8 {
    nibble | ((high >> element & 1) as u8) << 4
}
