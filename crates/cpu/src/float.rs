//! Small floats to f32, exactly and without branches, so that loops over them are vectorised.
//!
//! `weights` has the plain definitions; these are for inner loops.

use weights::Float;

/// The value of an f16, by moving its exponent and fraction into an f32 whose exponent is then
/// corrected by one exact multiplication, which also takes care of subnormals.
#[inline(always)]
pub(crate) fn f16_to_f32(x: u16) -> f32 {
    let sign = (u32::from(x) & 0x8000) << 16;
    let magnitude = (u32::from(x) & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let bits = if magnitude >= 0x7c00 << 13 { special } else { finite };
    f32::from_bits(sign | bits)
}

/// E4M3: no infinities, all ones is not a number. Works as [`f16_to_f32`] does.
#[inline(always)]
pub(crate) const fn e4m3_to_f32(x: u8) -> f32 {
    let magnitude = ((x & 0x7f) as u32) << 20;
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 120) << 23)).to_bits();
    let bits = if x & 0x7f == 0x7f { f32::NAN.to_bits() } else { finite };
    f32::from_bits(((x >> 7) as u32) << 31 | bits)
}

/// E8M0: a power of two by its biased exponent; 255 is not a number.
#[inline(always)]
pub(crate) const fn e8m0_to_f32(x: u8) -> f32 {
    match x {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits((x as u32) << 23),
    }
}

/// `2^(x - 128)`: half of E8M0 as llama.cpp reads it, for which 255 is a number like any other.
#[inline(always)]
pub(crate) const fn half_of_e8m0(x: u8) -> f32 {
    if x < 2 { f32::from_bits(0x0020_0000 << x) } else { f32::from_bits(((x - 1) as u32) << 23) }
}

/// The little-endian f16 at byte `at`.
#[inline(always)]
pub(crate) fn f16_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// The little-endian f32 number `index`.
#[inline(always)]
pub(crate) fn f32_at(bytes: &[u8], index: usize) -> f32 {
    let b = &bytes[index * 4..][..4];
    f32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

/// The float number `index` of `bytes`.
#[inline(always)]
pub(crate) fn float_at(float: Float, bytes: &[u8], index: usize) -> f32 {
    match float {
        Float::F32 => f32_at(bytes, index),
        Float::F16 => f16_at(bytes, index * 2),
        Float::Bf16 => f32::from_le_bytes([0, 0, bytes[index * 2], bytes[index * 2 + 1]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_widened() {
        for x in 0..=u16::MAX {
            let (got, want) = (f16_to_f32(x), half::f16::from_bits(x).to_f32());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:#x}");
        }
    }

    #[test]
    fn small_floats_are_what_weights_says() {
        let bytes: Vec<u8> = (0..=255).collect();
        let matrix = |packing, data: Vec<u8>, scales: Vec<u8>, cols| weights::Matrix {
            name: String::new(),
            rows: 1,
            cols,
            packing,
            data: data.into(),
            scales: scales.into(),
            biases: Default::default(),
        };
        let mut out = [0.0; 256];
        matrix(weights::Packing::Mxfp8, bytes.clone(), vec![127; 8], 256)
            .dequantize_row(0, &mut out);
        for (byte, want) in bytes.iter().zip(out) {
            let got = e4m3_to_f32(*byte);
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{byte:#x}");
        }
        for scale in 0..=255 {
            let mut out = [0.0; 32];
            // 0x38 is one.
            matrix(weights::Packing::Mxfp8, vec![0x38; 32], vec![scale], 32)
                .dequantize_row(0, &mut out);
            let got = e8m0_to_f32(scale);
            assert!(
                got.to_bits() == out[0].to_bits() || got.is_nan() && out[0].is_nan(),
                "{scale}"
            );
            if scale < 255 {
                assert_eq!(2.0 * half_of_e8m0(scale), got);
            }
        }
    }
}
