//! AVX2, FMA and F16C: every x86 server since 2013.

use std::arch::x86_64::*;

use super::{Isa, Kernels, generic, scalar};

/// The table, if this machine has the instructions.
pub(super) fn kernels() -> Option<&'static Kernels> {
    let ok = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    ok.then_some(&KERNELS)
}

// Every entry is reached through `kernels` alone, which has looked for the instructions.
static KERNELS: Kernels = Kernels {
    isa: Isa::Avx2,
    // SAFETY: `kernels` found avx2, fma and f16c.
    dot: |a, b| unsafe { dot(a, b) },
    // SAFETY: as above.
    axpy: |a, x, y| unsafe { axpy(a, x, y) },
    // SAFETY: as above.
    widen: |x, out| unsafe { widen(x, out) },
    // SAFETY: as above.
    narrow: |x, out| unsafe { narrow(x, out) },
};

#[target_feature(enable = "avx2,fma")]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    generic::dot(a, b)
}

#[target_feature(enable = "avx2,fma")]
fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    generic::axpy(a, x, y);
}

#[target_feature(enable = "avx2,f16c")]
fn widen(x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let ((x8, x_rest), (out8, out_rest)) = (x.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (x, out) in x8.iter().zip(out8) {
        // SAFETY: sixteen bytes are readable from `x`, and this load needs no alignment.
        let x = unsafe { _mm_loadu_si128(x.as_ptr().cast()) };
        // SAFETY: eight f32 are writable from `out`, and this store needs no alignment.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(x)) };
    }
    generic::widen(x_rest, out_rest);
}

#[target_feature(enable = "avx2,f16c")]
fn narrow(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    let ((x8, x_rest), (out8, out_rest)) = (x.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (x, out) in x8.iter().zip(out8) {
        // SAFETY: eight f32 are readable from `x`, and this load needs no alignment.
        let x = unsafe { _mm256_loadu_ps(x.as_ptr()) };
        let x = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
        // SAFETY: sixteen bytes are writable from `out`, and this store needs no alignment.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), x) };
    }
    scalar::narrow(x_rest, out_rest);
}
