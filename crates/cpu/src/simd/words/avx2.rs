//! Eight rows in a register.

use std::arch::x86_64::*;

use super::{Rows, Words};
use crate::pack::LANES;

/// Words of eight rows. Needs avx2 and f16c.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Words8(__m256i);

// SAFETY (all blocks below, unless they say more): a value of this type exists, or is made by an
// `unsafe` function whose caller promises it, only where avx2 and f16c are there.
impl Words for Words8 {
    type Floats = __m256;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn quad(rows: &Rows<'_>, first: usize, at: usize) -> [Words8; 4] {
        // SAFETY: see above.
        unsafe {
            let (a, b) = (pair(rows, first, at), pair(rows, first + 1, at));
            let (c, d) = (pair(rows, first + 2, at), pair(rows, first + 3, at));
            let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
            let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
            [
                Words8(_mm256_unpacklo_epi64(ab, cd)),
                Words8(_mm256_unpackhi_epi64(ab, cd)),
                Words8(_mm256_unpacklo_epi64(ab2, cd2)),
                Words8(_mm256_unpackhi_epi64(ab2, cd2)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn word(rows: &Rows<'_>, first: usize, at: usize) -> Words8 {
        let mut r = [0; 8];
        for (i, r) in r.iter_mut().enumerate() {
            *r = i32::from_le_bytes(rows.bytes(first + i, at));
        }
        // SAFETY: see above.
        Words8(unsafe { _mm256_setr_epi32(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]) })
    }

    #[inline(always)]
    unsafe fn half(rows: &Rows<'_>, first: usize, at: usize) -> Words8 {
        let mut r = [0; 8];
        for (i, r) in r.iter_mut().enumerate() {
            *r = i16::from_le_bytes(rows.bytes(first + i, at));
        }
        // SAFETY: see above.
        Words8(unsafe {
            let halfs = _mm_setr_epi16(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]);
            _mm256_cvtepu16_epi32(halfs)
        })
    }

    #[inline(always)]
    unsafe fn floats(of_row: impl Fn(usize) -> f32) -> __m256 {
        let mut values = [0.0; 8];
        values.iter_mut().enumerate().for_each(|(r, value)| *value = of_row(r));
        // SAFETY: see above; eight f32 are readable.
        unsafe { _mm256_loadu_ps(values.as_ptr()) }
    }

    #[inline(always)]
    fn and(self, mask: u32) -> Words8 {
        // SAFETY: see above.
        Words8(unsafe { _mm256_and_si256(self.0, _mm256_set1_epi32(mask as i32)) })
    }

    #[inline(always)]
    fn or(self, other: Words8) -> Words8 {
        // SAFETY: see above.
        Words8(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, mask: u32) -> Words8 {
        // SAFETY: see above.
        Words8(unsafe { _mm256_xor_si256(self.0, _mm256_set1_epi32(mask as i32)) })
    }

    #[inline(always)]
    fn shl(self, bits: u32) -> Words8 {
        // SAFETY: see above.
        Words8(unsafe { _mm256_sllv_epi32(self.0, _mm256_set1_epi32(bits as i32)) })
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> Words8 {
        // SAFETY: see above.
        Words8(unsafe { _mm256_srlv_epi32(self.0, _mm256_set1_epi32(bits as i32)) })
    }

    #[inline(always)]
    fn sar(self, bits: u32) -> Words8 {
        // SAFETY: see above.
        Words8(unsafe { _mm256_srav_epi32(self.0, _mm256_set1_epi32(bits as i32)) })
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16]) -> Words8 {
        // SAFETY: see above; the table is sixteen bytes long.
        Words8(unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, self.0)
        })
    }

    #[inline(always)]
    fn f16(self) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let low = _mm256_and_si256(self.0, _mm256_set1_epi32(0xffff));
            // Per half of the register: four halfs twice.
            let halfs = _mm256_packus_epi32(low, low);
            let halfs = _mm256_permute4x64_epi64::<0b1000>(halfs);
            _mm256_cvtph_ps(_mm256_castsi256_si128(halfs))
        }
    }

    #[inline(always)]
    fn f32(self) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_castsi256_ps(self.0) }
    }

    #[inline(always)]
    fn number(self) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(self.0) }
    }

    #[inline(always)]
    fn times(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn minus(a: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    }

    #[inline(always)]
    fn put(self, line: &mut [u8; 4 * LANES], first: usize) {
        let half = &mut line.as_chunks_mut::<32>().0[first / 8];
        // SAFETY: see above; 32 bytes are writable, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn put_floats(floats: __m256, line: &mut [f32; LANES], first: usize) {
        let half = &mut line.as_chunks_mut::<8>().0[first / 8];
        // SAFETY: see above; eight f32 are writable, and the store needs no alignment.
        unsafe { _mm256_storeu_ps(half.as_mut_ptr(), floats) }
    }
}

/// Sixteen bytes each of rows `row` and `row + 4`.
///
/// # Safety
/// avx2 must be there.
#[inline(always)]
unsafe fn pair(rows: &Rows<'_>, row: usize, at: usize) -> __m256i {
    // SAFETY: this function's contract; sixteen bytes are readable at each place, and these loads
    // need no alignment.
    unsafe {
        let x = _mm_loadu_si128(rows.at::<16>(row, at).cast());
        let next = _mm_loadu_si128(rows.at::<16>(row + 4, at).cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(x), next)
    }
}
