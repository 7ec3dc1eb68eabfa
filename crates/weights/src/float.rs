//! Small floats to f32, and back. Exact in the first direction; round to nearest even in the second.
//! Bytes need no alignment.

use half::{bf16, f16};

use crate::Float;

impl Float {
    /// Widens the floats in `bytes`, which hold at least `out.len()` of them.
    pub fn read(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Float::F32 => read(bytes, out, f32::from_le_bytes),
            Float::F16 => read(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            Float::Bf16 => read(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        }
    }

    /// The float number `index` of `bytes`.
    pub(crate) fn get(self, bytes: &[u8], index: usize) -> f32 {
        let mut out = [0.0];
        self.read(&bytes[index * self.n_bytes()..], &mut out);
        out[0]
    }

    /// Appends `value`, rounded to this type.
    pub(crate) fn push(self, value: f32, out: &mut Vec<u8>) {
        match self {
            Float::F32 => out.extend(value.to_le_bytes()),
            Float::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
            Float::Bf16 => out.extend(bf16::from_f32(value).to_le_bytes()),
        }
    }

    /// `value` rounded to this type and back.
    pub(crate) fn round(self, value: f32) -> f32 {
        match self {
            Float::F32 => value,
            Float::F16 => f16::from_f32(value).to_f32(),
            Float::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }
}

fn read<const N: usize>(bytes: &[u8], out: &mut [f32], widen: impl Fn([u8; N]) -> f32) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (out, &chunk) in out.iter_mut().zip(chunks) {
        *out = widen(chunk);
    }
}

/// E2M1 by its four bits.
pub(crate) const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// E8M0: a power of two by its biased exponent; 255 is not a number.
pub(crate) fn e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

/// E4M3 without infinities: bias 7, subnormals of 2^-9, all ones is not a number.
pub(crate) fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = ((byte >> 3) & 15, byte & 7);
    let size = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        (0, m) => f32::from(m) * (1.0 / 512.0),
        (e, m) => f32::from_bits((u32::from(e) + 120) << 23 | u32::from(m) << 20),
    };
    if byte & 0x80 == 0 { size } else { -size }
}
