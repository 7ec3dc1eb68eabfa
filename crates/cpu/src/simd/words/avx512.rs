//! Sixteen rows in a register.

use std::arch::x86_64::*;

use super::{Rows, Words};
use crate::pack::LANES;

/// Words of sixteen rows. Needs avx512f and avx512bw.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Words16(pub(in crate::simd) __m512i);

// SAFETY (all blocks below, unless they say more): a value of this type exists, or is made by an
// `unsafe` function whose caller promises it, only where avx512f and avx512bw are there.
impl Words for Words16 {
    type Floats = __m512;
    const ROWS: usize = 16;

    #[inline(always)]
    unsafe fn quad(rows: &Rows<'_>, first: usize, at: usize) -> [Words16; 4] {
        // SAFETY: see above.
        unsafe {
            let (a, b) = (fours(rows, first, at), fours(rows, first + 1, at));
            let (c, d) = (fours(rows, first + 2, at), fours(rows, first + 3, at));
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            let (ab2, cd2) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            [
                Words16(_mm512_unpacklo_epi64(ab, cd)),
                Words16(_mm512_unpackhi_epi64(ab, cd)),
                Words16(_mm512_unpacklo_epi64(ab2, cd2)),
                Words16(_mm512_unpackhi_epi64(ab2, cd2)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn word(rows: &Rows<'_>, first: usize, at: usize) -> Words16 {
        let mut r = [0; 16];
        for (i, r) in r.iter_mut().enumerate() {
            *r = i32::from_le_bytes(rows.bytes(first + i, at));
        }
        // SAFETY: see above.
        Words16(unsafe {
            _mm512_setr_epi32(
                r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12],
                r[13], r[14], r[15],
            )
        })
    }

    #[inline(always)]
    unsafe fn half(rows: &Rows<'_>, first: usize, at: usize) -> Words16 {
        let mut r = [0; 16];
        for (i, r) in r.iter_mut().enumerate() {
            *r = i16::from_le_bytes(rows.bytes(first + i, at));
        }
        // SAFETY: see above.
        Words16(unsafe {
            _mm512_cvtepu16_epi32(_mm256_setr_epi16(
                r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12],
                r[13], r[14], r[15],
            ))
        })
    }

    #[inline(always)]
    unsafe fn floats(of_row: impl Fn(usize) -> f32) -> __m512 {
        let mut values = [0.0; 16];
        values.iter_mut().enumerate().for_each(|(r, value)| *value = of_row(r));
        // SAFETY: see above; sixteen f32 are readable.
        unsafe { _mm512_loadu_ps(values.as_ptr()) }
    }

    #[inline(always)]
    fn and(self, mask: u32) -> Words16 {
        // SAFETY: see above.
        Words16(unsafe { _mm512_and_si512(self.0, _mm512_set1_epi32(mask as i32)) })
    }

    #[inline(always)]
    fn or(self, other: Words16) -> Words16 {
        // SAFETY: see above.
        Words16(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, mask: u32) -> Words16 {
        // SAFETY: see above.
        Words16(unsafe { _mm512_xor_si512(self.0, _mm512_set1_epi32(mask as i32)) })
    }

    #[inline(always)]
    fn shl(self, bits: u32) -> Words16 {
        // SAFETY: see above.
        Words16(unsafe { _mm512_sllv_epi32(self.0, _mm512_set1_epi32(bits as i32)) })
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> Words16 {
        // SAFETY: see above.
        Words16(unsafe { _mm512_srlv_epi32(self.0, _mm512_set1_epi32(bits as i32)) })
    }

    #[inline(always)]
    fn sar(self, bits: u32) -> Words16 {
        // SAFETY: see above.
        Words16(unsafe { _mm512_srav_epi32(self.0, _mm512_set1_epi32(bits as i32)) })
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16]) -> Words16 {
        // SAFETY: see above; the table is sixteen bytes long.
        Words16(unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, self.0)
        })
    }

    #[inline(always)]
    fn f16(self) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(self.0)) }
    }

    #[inline(always)]
    fn f32(self) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(self.0) }
    }

    #[inline(always)]
    fn number(self) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(self.0) }
    }

    #[inline(always)]
    fn times(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn minus(a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let sign = _mm512_set1_epi32(i32::MIN);
            _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), sign))
        }
    }

    #[inline(always)]
    fn put(self, line: &mut [u8; 4 * LANES], _first: usize) {
        // SAFETY: see above; 64 bytes are writable, and the store needs no alignment.
        unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn put_floats(floats: __m512, line: &mut [f32; LANES], _first: usize) {
        // SAFETY: see above; sixteen f32 are writable, and the store needs no alignment.
        unsafe { _mm512_storeu_ps(line.as_mut_ptr(), floats) }
    }
}

/// Sixteen bytes each of rows `row`, `row + 4`, `row + 8` and `row + 12`.
///
/// # Safety
/// avx512f must be there.
#[inline(always)]
unsafe fn fours(rows: &Rows<'_>, row: usize, at: usize) -> __m512i {
    // SAFETY: this function's contract; sixteen bytes are readable at each place, and these loads
    // need no alignment.
    unsafe {
        let load = |row| _mm_loadu_si128(rows.at::<16>(row, at).cast());
        let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(row)), load(row + 4));
        let high =
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(row + 8)), load(row + 12));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }
}
