//! MLX affine groups: a little-endian stream of 2, 3, 4, 5, 6 or 8-bit codes per row; scales and
//! biases apart.

use weights::Float;

use super::RowOut;
use super::bytes::{LOW_PAIRS, spread_nibbles};
use crate::float::float_at;

/// Unpacks a stream that starts at a byte. `codes` is a multiple of 32 long.
#[inline(always)]
pub(super) fn unpack(bits: u8, data: &[u8], codes: &mut [u8]) {
    match bits {
        2 => each::<2, 8>(data, codes, |[a, b]| {
            let x = u64::from(u16::from_le_bytes([a, b]));
            let x = (x | x << 24) & 0x0000_00ff_0000_00ff;
            let x = (x | x << 12) & 0x000f_000f_000f_000f;
            ((x | x << 6) & LOW_PAIRS).to_le_bytes()
        }),
        3 => each::<3, 8>(data, codes, |[a, b, c]| {
            let word = u32::from_le_bytes([a, b, c, 0]);
            std::array::from_fn(|i| (word >> (3 * i)) as u8 & 7)
        }),
        4 => each::<4, 8>(data, codes, |packed| spread_nibbles(packed).to_le_bytes()),
        5 => each::<5, 8>(data, codes, |[a, b, c, d, e]| {
            let word = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
            std::array::from_fn(|i| (word >> (5 * i)) as u8 & 31)
        }),
        6 => each::<3, 4>(data, codes, |[a, b, c]| {
            [a & 63, a >> 6 | b << 2 & 63, b >> 4 | c << 4 & 63, c >> 2]
        }),
        8 => codes.copy_from_slice(data),
        _ => unreachable!("affine codes of {bits} bits are refused when a model is opened"),
    }
}

/// Repeats the scale and bias of every group for its runs of 32.
#[inline(always)]
pub(super) fn scales(float: Float, group: usize, packed: (&[u8], &[u8]), mut out: RowOut<'_>) {
    let runs = group / 32;
    for run in 0..out.codes.len() / 32 {
        let (scale, min) =
            (float_at(float, packed.0, run / runs), float_at(float, packed.1, run / runs));
        out.scale_and_min(run, scale, min);
    }
}

/// Turns every `BYTES` bytes into `N` codes.
#[inline(always)]
fn each<const BYTES: usize, const N: usize>(
    data: &[u8],
    codes: &mut [u8],
    unpack: impl Fn([u8; BYTES]) -> [u8; N],
) {
    let (data, codes) = (data.as_chunks::<BYTES>().0, codes.as_chunks_mut::<N>().0);
    for (codes, data) in codes.iter_mut().zip(data) {
        *codes = unpack(*data);
    }
}
