//! Some columns of a row as f32, with the bits of [`Matrix::dequantize_row`].

use std::ops::Range;

use weights::{Float, Matrix, Packing, gguf};

use super::{data_of, part_of_row};
use crate::float::{e4m3_to_f32, e8m0_to_f32, f16_to_f32, f32_at, float_at};

/// Twice the value of a four-bit float; see [`super::fp4`].
const E2M1_DOUBLED: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// Columns `cols` of row `row`. `cols` starts and ends at blocks of the packing.
#[inline(always)]
pub(crate) fn widen_row(matrix: &Matrix, row: usize, cols: Range<usize>, out: &mut [f32]) {
    let packing = matrix.packing;
    let data = data_of(matrix, row, &cols);
    let place = (row, matrix.cols);
    let scale_bytes = |cols| matrix.packing.row_scale_bytes(cols);
    let scales = part_of_row(&matrix.scales, place, &cols, scale_bytes);
    match packing {
        Packing::Plain(float) => plain(float, data, out),
        Packing::Affine { bits, group, scale } => {
            let mins = part_of_row(&matrix.biases, place, &cols, scale_bytes);
            let group = usize::from(group);
            for (g, out) in out.chunks_mut(group).enumerate() {
                let (s, b) = (float_at(scale, scales, g), float_at(scale, mins, g));
                for (i, out) in out.iter_mut().enumerate() {
                    *out = s * f32::from(code_at(data, bits, g * group + i)) + b;
                }
            }
        }
        Packing::Mxfp4 => fp4(data, scales, |s| 0.5 * e8m0_to_f32(s), out),
        Packing::Nvfp4 => fp4(data, scales, |s| 0.5 * e4m3_to_f32(s), out),
        Packing::DividedNvfp4(by) => {
            fp4(data, scales, |s| 0.5 * (e4m3_to_f32(s) / by.get()), out);
        }
        Packing::Int8 { group, scale } => {
            let group = usize::from(group);
            for (g, (out, data)) in out.chunks_mut(group).zip(data.chunks(group)).enumerate() {
                let s = float_at(scale, scales, g);
                out.iter_mut().zip(data).for_each(|(out, q)| *out = s * f32::from(*q as i8));
            }
        }
        Packing::Mxfp8 => {
            for ((out, data), scale) in out.chunks_mut(32).zip(data.chunks(32)).zip(scales) {
                fp8(data, e8m0_to_f32(*scale), out);
            }
        }
        Packing::Fp8Blocks { rows, cols: block } => {
            let block = block as usize;
            let line = row / rows as usize * matrix.cols.div_ceil(block);
            let mut at = 0;
            while at < out.len() {
                let column = cols.start + at;
                let n = (block - column % block).min(out.len() - at);
                let scale = f32_at(&matrix.scales, line + column / block);
                fp8(&data[at..at + n], scale, &mut out[at..at + n]);
                at += n;
            }
        }
        Packing::Gguf(ty) => gguf::blocks::dequantize(ty, data, out),
    }
}

/// Code `index` of a little-endian stream of codes of so many bits.
#[inline(always)]
fn code_at(stream: &[u8], bits: u8, index: usize) -> u8 {
    let at = index * usize::from(bits);
    let high = stream.get(at / 8 + 1).copied().unwrap_or(0);
    let word = u16::from_le_bytes([stream[at / 8], high]);
    (word >> (at % 8)) as u8 & (u8::MAX >> (8 - bits))
}

#[inline(always)]
fn plain(float: Float, data: &[u8], out: &mut [f32]) {
    match float {
        Float::F32 => {
            for (out, x) in out.iter_mut().zip(data.as_chunks().0) {
                *out = f32::from_le_bytes(*x);
            }
        }
        Float::F16 => {
            for (out, x) in out.iter_mut().zip(data.as_chunks().0) {
                *out = f16_to_f32(u16::from_le_bytes(*x));
            }
        }
        Float::Bf16 => {
            for (out, [low, high]) in out.iter_mut().zip(data.as_chunks().0) {
                *out = f32::from_le_bytes([0, 0, *low, *high]);
            }
        }
    }
}

/// Low nibble first; every scale byte stands for as many elements as the others.
#[inline(always)]
fn fp4(data: &[u8], scales: &[u8], half: impl Fn(u8) -> f32, out: &mut [f32]) {
    let group = out.len() / scales.len().max(1);
    let groups = out.chunks_mut(group).zip(data.chunks(group / 2)).zip(scales);
    for ((out, data), scale) in groups {
        let scale = half(*scale);
        for (out, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(data) {
            let (low, high) = (usize::from(byte & 15), usize::from(byte >> 4));
            *out = [E2M1_DOUBLED[low] * scale, E2M1_DOUBLED[high] * scale];
        }
    }
}

#[inline(always)]
fn fp8(data: &[u8], scale: f32, out: &mut [f32]) {
    for (out, byte) in out.iter_mut().zip(data) {
        *out = e4m3_to_f32(*byte) * scale;
    }
}
