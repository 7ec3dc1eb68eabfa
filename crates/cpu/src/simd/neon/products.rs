//! Integer products of codes with activations, with what each kind of machine has for them.
//!
//! The dot product instructions are written out, because the compiler does not offer them yet.

use std::arch::aarch64::*;
use std::arch::asm;

/// A way to multiply codes.
pub(super) trait Product {
    /// What is taken off every code, and what the sum of the activations has to give back. Nought,
    /// or 128 where codes beyond 127 would not fit signed bytes.
    const LESS: i32;

    /// Adds to every lane its four codes times codes `4 * J..4 * J + 4` of `x`.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn add<const J: i32>(dot: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t;
}

/// What every machine has.
pub(super) struct Widening<const LESS: i32>;

/// FEAT_DotProd, of most machines since Armv8.2.
pub(super) struct Signed<const LESS: i32>;

/// FEAT_I8MM, which takes all codes as they are: machines since Armv8.6 or Armv9.
pub(super) struct Mixed;

/// A code less 128 is the same bits with the highest one flipped.
#[inline(always)]
fn less<const LESS: i32>(w: uint8x16_t) -> int8x16_t {
    // SAFETY: NEON is taken for granted by the target.
    unsafe {
        if LESS == 0 {
            vreinterpretq_s8_u8(w)
        } else {
            vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(0x80)))
        }
    }
}

impl<const LESS: i32> Product for Widening<LESS> {
    const LESS: i32 = LESS;

    /// The sum of two products stays below `2 * 128 * 127 < 2^15`.
    #[inline(always)]
    unsafe fn add<const J: i32>(dot: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        let w = less::<LESS>(w);
        // SAFETY: NEON is taken for granted by the target.
        unsafe {
            let x = vreinterpretq_s8_s32(vdupq_laneq_s32::<J>(vreinterpretq_s32_s8(x)));
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
            let high = vmull_high_s8(w, x);
            vpadalq_s16(dot, vpaddq_s16(low, high))
        }
    }
}

impl<const LESS: i32> Product for Signed<LESS> {
    const LESS: i32 = LESS;

    #[inline]
    #[target_feature(enable = "dotprod")]
    unsafe fn add<const J: i32>(mut dot: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the instruction is there by the trait's contract, and touches only these registers.
        unsafe {
            asm!(
                "sdot {dot:v}.4s, {w:v}.16b, {x:v}.4b[{j}]",
                dot = inout(vreg) dot,
                w = in(vreg) less::<LESS>(w),
                x = in(vreg) x,
                j = const J,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        dot
    }
}

impl Product for Mixed {
    const LESS: i32 = 0;

    #[inline]
    #[target_feature(enable = "i8mm")]
    unsafe fn add<const J: i32>(mut dot: int32x4_t, w: uint8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the instruction is there by the trait's contract, and touches only these registers.
        unsafe {
            asm!(
                "usdot {dot:v}.4s, {w:v}.16b, {x:v}.4b[{j}]",
                dot = inout(vreg) dot,
                w = in(vreg) w,
                x = in(vreg) x,
                j = const J,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        dot
    }
}
