//! Loads, stores and arithmetic of NEON registers as safe functions: every AArch64 machine that runs
//! a system has NEON, and the targets take it for granted.

use std::arch::aarch64::*;

macro_rules! safe {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(in crate::simd) fn $name($($arg: $ty),*) -> $out {
            // SAFETY: NEON is there, and a reference is readable for the length of its array; these
            // loads need no alignment.
            unsafe { $body }
        }
    )*};
}

safe! {
    fn load_u8(x: &[u8; 16]) -> uint8x16_t { vld1q_u8(x.as_ptr()) }
    fn load_s8(x: &[i8; 16]) -> int8x16_t { vld1q_s8(x.as_ptr()) }
    fn load_f32(x: &[f32; 4]) -> float32x4_t { vld1q_f32(x.as_ptr()) }
    fn all_s32(x: i32) -> int32x4_t { vdupq_n_s32(x) }
    fn all_f32(x: f32) -> float32x4_t { vdupq_n_f32(x) }
    /// Four codes, over and over.
    fn all_codes(x: [i8; 4]) -> int8x16_t {
        vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(x.map(|x| x as u8))))
    }
    fn float(x: int32x4_t) -> float32x4_t { vcvtq_f32_s32(x) }
    fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
    fn multiply(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmulq_f32(a, b) }
    /// `a * b + to`, rounded once.
    fn multiply_add(a: float32x4_t, b: float32x4_t, to: float32x4_t) -> float32x4_t {
        vfmaq_f32(to, a, b)
    }
    /// From f16.
    fn widen(x: uint16x4_t) -> float32x4_t { vcvt_f32_f16(vreinterpret_f16_u16(x)) }
    /// From four signed bytes.
    fn widen_s8(x: i32) -> int32x4_t {
        vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(x)))))
    }
    /// To the nearest f16, ties to even.
    fn narrow(x: float32x4_t) -> uint16x4_t { vreinterpret_u16_f16(vcvt_f16_f32(x)) }
}

#[inline(always)]
pub(in crate::simd) fn store_f32(out: &mut [f32; 4], x: float32x4_t) {
    // SAFETY: four f32 are writable from `out`, and this store needs no alignment.
    unsafe { vst1q_f32(out.as_mut_ptr(), x) };
}

#[inline(always)]
pub(in crate::simd) fn store_u16(out: &mut [u16; 4], x: uint16x4_t) {
    // SAFETY: eight bytes are writable from `out`, and this store needs no alignment.
    unsafe { vst1_u16(out.as_mut_ptr(), x) };
}
