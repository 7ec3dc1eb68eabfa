//! MLX's own quantisers, bit for bit: floats in, packed elements and scales out.
//!
//! They decide nothing about which tensors to pack; that is [`crate::convert()`]'s.

use crate::{
    Float, Scheme,
    float::{E2M1, e4m3, e8m0},
};

/// Packed rows, as a checkpoint stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Elements.
    pub data: Vec<u8>,
    /// Scales, one per group.
    pub scales: Vec<u8>,
    /// Biases, one per group; empty unless the scheme is affine.
    pub biases: Vec<u8>,
}

/// Packs `values`, whole groups of numbers that `float` can hold. Affine scales and biases are
/// stored as `float`; the other schemes compute in `float`, as MLX does.
pub fn quantize(scheme: Scheme, float: Float, values: &[f32]) -> Packed {
    let group = scheme.group();
    assert!(values.len().is_multiple_of(group), "{} numbers in groups of {group}", values.len());
    let mut packed =
        Packed { data: Vec::with_capacity(values.len() * scheme.bits() / 8), ..Packed::default() };
    for values in values.chunks_exact(group) {
        match scheme {
            Scheme::Affine { bits, .. } => affine(bits, float, values, &mut packed),
            Scheme::Mxfp4 => {
                let scale = power_of_two(values, 6.0, float, &mut packed.scales);
                fp4(values, float, scale, &mut packed.data);
            }
            Scheme::Mxfp8 => {
                let scale = power_of_two(values, 448.0, float, &mut packed.scales);
                packed.data.extend(values.iter().map(|v| to_e4m3(float.round(v / scale))));
            }
            Scheme::Nvfp4 => {
                let scale = to_e4m3(float.round(magnitude(values) / 6.0));
                packed.scales.push(scale);
                fp4(values, float, e4m3(scale), &mut packed.data);
            }
        }
    }
    packed
}

/// One group. The end of the range that is farther from zero is met exactly, and so is zero where
/// the range holds it; the scale is negative where that end is the upper one.
fn affine(bits: u8, float: Float, values: &[f32], packed: &mut Packed) {
    const SMALLEST: f32 = 1e-7;
    let top = ((1u32 << bits) - 1) as f32;
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let step = ((high - low) / top).max(SMALLEST);
    let (edge, step) = if low.abs() > high.abs() { (low, step) } else { (high, -step) };
    let steps = (edge / step).round_ties_even();
    let (scale, bias) = if steps == 0.0 { (step, 0.0) } else { (edge / steps, edge) };
    let mut stream = BitStream::default();
    for value in values {
        let q = ((value - bias) / scale).round_ties_even().clamp(0.0, top);
        stream.push(q as u32, bits, &mut packed.data);
    }
    float.push(scale, &mut packed.scales);
    float.push(bias, &mut packed.biases);
}

fn magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |max, value| value.abs().max(max))
}

/// The least power of two that brings the largest value down to `max`; 1 where all are zero. Its
/// biased exponent goes to `scales`.
fn power_of_two(values: &[f32], max: f32, float: Float, scales: &mut Vec<u8>) -> f32 {
    const MANTISSA: u32 = (1 << 23) - 1;
    const ONE: u8 = 127;
    let ratio = float.round(magnitude(values) / max).to_bits();
    let scale = match ratio {
        0 => ONE,
        // Rounds the exponent up, in whole powers: a logarithm would blur the border.
        _ => (ratio.saturating_add(MANTISSA) >> 23).min(254) as u8,
    };
    scales.push(scale);
    float.round(e8m0(scale))
}

/// The nearest E2M1 numbers; of two equally near ones the smaller. Two to a byte, the first low.
fn fp4(values: &[f32], float: Float, scale: f32, out: &mut Vec<u8>) {
    let nearest = |value: f32| {
        let value = float.round(value / scale);
        let (mut best, mut distance) = (0, f32::INFINITY);
        for (code, &candidate) in E2M1.iter().enumerate() {
            let d = float.round(value - candidate).abs();
            if d < distance {
                (best, distance) = (code as u8, d);
            }
        }
        best
    };
    for pair in values.chunks_exact(2) {
        out.push(nearest(pair[0]) | nearest(pair[1]) << 4);
    }
}

/// The nearest E4M3 number, ties to even, at most 448.
fn to_e4m3(value: f32) -> u8 {
    const MAX: u8 = 0x7e;
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs();
    let code = if size >= 464.0 || size.is_nan() {
        MAX
    } else if size < 1.0 / 64.0 {
        // Steps of 2^-9; eight of them are the smallest normal number, and its code.
        (size * 512.0).round_ties_even() as u8
    } else {
        let bits = size.to_bits();
        // Rounds the mantissa to three bits, ties to even, carrying into the exponent.
        let rounded = bits + 0x7_ffff + (bits >> 20 & 1);
        ((rounded >> 20) - (120 << 3)) as u8
    };
    sign | code.min(MAX)
}

/// Little-endian bits of one group, which always fills whole bytes.
#[derive(Default)]
pub(crate) struct BitStream {
    word: u32,
    n_bits: u8,
}

impl BitStream {
    /// Appends the low `bits` bits of `value`, and to `out` every byte that is full.
    pub(crate) fn push(&mut self, value: u32, bits: u8, out: &mut Vec<u8>) {
        self.word |= value << self.n_bits;
        self.n_bits += bits;
        while self.n_bits >= 8 {
            out.push(self.word as u8);
            self.word >>= 8;
            self.n_bits -= 8;
        }
    }
}
