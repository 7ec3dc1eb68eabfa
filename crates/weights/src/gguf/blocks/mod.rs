//! What the bytes of a GGUF block mean as numbers: the definition every faster path is tested
//! against, one block after the other, in plain loops.
//!
//! The results are bit for bit those of `gguf.quants.dequantize` of the `gguf` Python package. Its
//! order of float operations is also that of llama.cpp's C loops (`(d * scale) * q - min * m`, each
//! product rounded); a C compiler that contracts products and sums into fused operations moves the
//! last bit of the types with a minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K), which is not followed here.
//!
//! It is not a kernel: the devices multiply packed blocks directly.

mod k;
mod legacy;
mod nonlinear;

use half::f16;

pub(crate) use k::six_bit_pair;

use crate::GgufType;

/// Unpacks whole blocks of `ty` from `bytes` into `out`, which must hold exactly as many elements
/// as the blocks do.
pub fn dequantize(ty: GgufType, bytes: &[u8], out: &mut [f32]) {
    let (n_elements, n_bytes) = ty.block();
    assert!(out.len().is_multiple_of(n_elements), "{} elements are not whole blocks", out.len());
    assert_eq!(bytes.len(), out.len() / n_elements * n_bytes, "bytes for {} elements", out.len());
    match ty {
        GgufType::Q4_0 => each(bytes, out, legacy::q4_0),
        GgufType::Q4_1 => each(bytes, out, legacy::q4_1),
        GgufType::Q5_0 => each(bytes, out, legacy::q5_0),
        GgufType::Q5_1 => each(bytes, out, legacy::q5_1),
        GgufType::Q8_0 => each(bytes, out, legacy::q8_0),
        GgufType::Q2K => each(bytes, out, k::q2_k),
        GgufType::Q3K => each(bytes, out, k::q3_k),
        GgufType::Q4K => each(bytes, out, k::q4_k),
        GgufType::Q5K => each(bytes, out, k::q5_k),
        GgufType::Q6K => each(bytes, out, k::q6_k),
        GgufType::Iq4Nl => each(bytes, out, nonlinear::iq4_nl),
        GgufType::Mxfp4 => each(bytes, out, nonlinear::mxfp4),
    }
}

/// Calls `unpack` for every block of `B` bytes and `E` elements.
fn each<const B: usize, const E: usize>(
    bytes: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; B], &mut [f32; E]),
) {
    let (blocks, _) = bytes.as_chunks::<B>();
    let (outs, _) = out.as_chunks_mut::<E>();
    for (block, out) in blocks.iter().zip(outs) {
        unpack(block, out);
    }
}

/// The little-endian half-precision number at `at`.
fn half_at<const B: usize>(block: &[u8; B], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
