//! The K types: super-blocks of 256 elements whose groups of 16 or 32 have small integer scales
//! under one or two half-precision factors.
//!
//! Blocks of 32 elements are not here.

use super::half_at;

const N: usize = 256;

/// Sixteen groups of 16: a nibble of scale and a nibble of minimum each, 2-bit elements.
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; N]) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (group, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = d * f32::from(scales[group] & 15);
        let min = dmin * f32::from(scales[group] >> 4);
        let (start, shift) = two_bit_plane(group);
        for (out, byte) in out.iter_mut().zip(&quants[start..start + 16]) {
            *out = scale * f32::from(byte >> shift & 3) - min;
        }
    }
}

/// Sixteen groups of 16: 6-bit scales less 32, 2-bit elements whose third bit, when *clear*, takes
/// 4 away.
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; N]) {
    let (high, quants, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half_at(block, 108);
    for (group, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let top = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        let scale = d * f32::from((low | top << 4) as i8 - 32);
        let (start, shift) = two_bit_plane(group);
        let high = &high[group % 2 * 16..][..16];
        for (i, out) in out.iter_mut().enumerate() {
            let low = (quants[start + i] >> shift & 3) as i8;
            let bit = (high[i] >> (group / 2) & 1) as i8;
            *out = scale * f32::from(low - (1 - bit) * 4);
        }
    }
}

/// Eight groups of 32: 6-bit scales and minimums, 4-bit elements.
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; N]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, quants) = (&block[4..16], &block[16..]);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = six_bit_pair(scales, group);
        let (scale, min) = (d * scale, dmin * min);
        let quants = &quants[group / 2 * 32..][..32];
        for (out, byte) in out.iter_mut().zip(quants) {
            *out = scale * f32::from(byte >> (group % 2 * 4) & 15) - min;
        }
    }
}

/// As [`q4_k`], with a fifth bit for every element: bit `group` of byte `i` belongs to element `i`
/// of that group.
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; N]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, high, quants) = (&block[4..16], &block[16..48], &block[48..]);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = six_bit_pair(scales, group);
        let (scale, min) = (d * scale, dmin * min);
        let quants = &quants[group / 2 * 32..][..32];
        for (i, out) in out.iter_mut().enumerate() {
            let low = quants[i] >> (group % 2 * 4) & 15;
            let bit = high[i] >> group & 1;
            *out = scale * f32::from(low | bit << 4) - min;
        }
    }
}

/// Sixteen groups of 16 with a signed byte of scale each; 4 low bits and 2 high bits per element,
/// less 32.
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; N]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half_at(block, 208);
    for (run, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        // A half of 128 elements takes 64 bytes of low and 32 bytes of high bits; its four runs of
        // 32 go through the low nibbles of both low lines, then the high nibbles.
        let (half, quarter) = (run / 4, run % 4);
        let low = &low[half * 64 + quarter % 2 * 32..][..32];
        let high = &high[half * 32..][..32];
        for (i, out) in out.iter_mut().enumerate() {
            let bits = low[i] >> (quarter / 2 * 4) & 15;
            let top = high[i] >> (quarter * 2) & 3;
            let scale = d * f32::from(scales[run * 2 + i / 16] as i8);
            *out = scale * f32::from((bits | top << 4) as i8 - 32);
        }
    }
}

/// Where group `group` of 16 elements starts in the 64 bytes of 2-bit elements, and by how much to
/// shift: 128 elements share 32 bytes in four planes.
fn two_bit_plane(group: usize) -> (usize, usize) {
    (group / 8 * 32 + group % 2 * 16, group % 8 / 2 * 2)
}

/// Scale and minimum of group `group` out of the twelve bytes that hold eight of each.
pub(crate) fn six_bit_pair(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, min) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (low & 15 | packed[group - 4] >> 2 & 48, low >> 4 | packed[group] >> 2 & 48)
    };
    (f32::from(scale), f32::from(min))
}
