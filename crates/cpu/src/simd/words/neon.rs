//! Four rows in a register.

use std::arch::aarch64::*;

use super::{Rows, Words};
use crate::pack::LANES;

/// Words of four rows. Every AArch64 machine that runs a system has what they need.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Words4(uint32x4_t);

impl Words4 {
    /// Sixteen codes: four of each row.
    #[inline(always)]
    pub(in crate::simd) fn bytes(self) -> uint8x16_t {
        // SAFETY: NEON is taken for granted by the target.
        unsafe { vreinterpretq_u8_u32(self.0) }
    }
}

// SAFETY (all blocks below, unless they say more): NEON is taken for granted by the target.
impl Words for Words4 {
    type Floats = float32x4_t;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn quad(rows: &Rows<'_>, first: usize, at: usize) -> [Words4; 4] {
        // SAFETY: sixteen bytes are readable there, and these loads need no alignment.
        let row = |r: usize| unsafe {
            vreinterpretq_u32_u8(vld1q_u8(rows.at::<16>(first + r, at).cast()))
        };
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        // SAFETY: see above.
        unsafe {
            let (ab, cd) = (vtrnq_u32(a, b), vtrnq_u32(c, d));
            let wide = |x| vreinterpretq_u64_u32(x);
            let low = |x, y| Words4(vreinterpretq_u32_u64(vtrn1q_u64(wide(x), wide(y))));
            let high = |x, y| Words4(vreinterpretq_u32_u64(vtrn2q_u64(wide(x), wide(y))));
            [low(ab.0, cd.0), low(ab.1, cd.1), high(ab.0, cd.0), high(ab.1, cd.1)]
        }
    }

    #[inline(always)]
    unsafe fn word(rows: &Rows<'_>, first: usize, at: usize) -> Words4 {
        let words: [u32; 4] =
            std::array::from_fn(|r| u32::from_le_bytes(rows.bytes(first + r, at)));
        // SAFETY: see above; four words are readable.
        Words4(unsafe { vld1q_u32(words.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn half(rows: &Rows<'_>, first: usize, at: usize) -> Words4 {
        let half = |r| u32::from(u16::from_le_bytes(rows.bytes(first + r, at)));
        let words: [u32; 4] = std::array::from_fn(half);
        // SAFETY: see above; four words are readable.
        Words4(unsafe { vld1q_u32(words.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn floats(of_row: impl Fn(usize) -> f32) -> float32x4_t {
        let values: [f32; 4] = std::array::from_fn(of_row);
        // SAFETY: see above; four f32 are readable.
        unsafe { vld1q_f32(values.as_ptr()) }
    }

    #[inline(always)]
    fn and(self, mask: u32) -> Words4 {
        // SAFETY: see above.
        Words4(unsafe { vandq_u32(self.0, vdupq_n_u32(mask)) })
    }

    #[inline(always)]
    fn or(self, other: Words4) -> Words4 {
        // SAFETY: see above.
        Words4(unsafe { vorrq_u32(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, mask: u32) -> Words4 {
        // SAFETY: see above.
        Words4(unsafe { veorq_u32(self.0, vdupq_n_u32(mask)) })
    }

    #[inline(always)]
    fn shl(self, bits: u32) -> Words4 {
        // SAFETY: see above.
        Words4(unsafe { vshlq_u32(self.0, vdupq_n_s32(bits as i32)) })
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> Words4 {
        // SAFETY: see above. A negative shift goes right.
        Words4(unsafe { vshlq_u32(self.0, vdupq_n_s32(-(bits as i32))) })
    }

    #[inline(always)]
    fn sar(self, bits: u32) -> Words4 {
        // SAFETY: see above. A negative shift goes right.
        Words4(unsafe {
            let signed = vreinterpretq_s32_u32(self.0);
            vreinterpretq_u32_s32(vshlq_s32(signed, vdupq_n_s32(-(bits as i32))))
        })
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16]) -> Words4 {
        // SAFETY: see above; the table is sixteen bytes long.
        Words4(unsafe {
            let table = vld1q_u8(table.as_ptr());
            vreinterpretq_u32_u8(vqtbl1q_u8(table, vreinterpretq_u8_u32(self.0)))
        })
    }

    #[inline(always)]
    fn f16(self) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(self.0))) }
    }

    #[inline(always)]
    fn f32(self) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vreinterpretq_f32_u32(self.0) }
    }

    #[inline(always)]
    fn number(self) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vcvtq_f32_s32(vreinterpretq_s32_u32(self.0)) }
    }

    #[inline(always)]
    fn times(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vmulq_f32(a, b) }
    }

    #[inline(always)]
    fn minus(a: float32x4_t) -> float32x4_t {
        // SAFETY: see above.
        unsafe { vnegq_f32(a) }
    }

    #[inline(always)]
    fn put(self, line: &mut [u8; 4 * LANES], first: usize) {
        let quarter = &mut line.as_chunks_mut::<16>().0[first / 4];
        // SAFETY: see above; sixteen bytes are writable.
        unsafe { vst1q_u8(quarter.as_mut_ptr(), vreinterpretq_u8_u32(self.0)) }
    }

    #[inline(always)]
    fn put_floats(floats: float32x4_t, line: &mut [f32; LANES], first: usize) {
        let quarter = &mut line.as_chunks_mut::<4>().0[first / 4];
        // SAFETY: see above; four f32 are writable.
        unsafe { vst1q_f32(quarter.as_mut_ptr(), floats) }
    }
}
