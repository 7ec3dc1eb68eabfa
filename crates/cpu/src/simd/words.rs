//! Words of several rows side by side: what unpacking is written in.
//!
//! A value of [`Words`] holds the 32-bit word of some place in each of [`Words::ROWS`] neighbouring
//! rows of a packed weight. Rows come in by columns of sixteen bytes, turned on the way, so that a
//! format unpacks the codes of all rows at once where the products want them. `u32` is one row at a
//! time and the definition; the registers of the instruction sets give the same bits.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;

use std::cell::Cell;
use std::marker::PhantomData;

use crate::float::f16_to_f32;
use crate::pack::LANES;
use crate::simd;

/// Equally long pieces of [`LANES`] rows that lie at equal distances, and the rows below, which are
/// asked for in the order of memory at the pace of the reading: so the machine's own prefetching,
/// which follows ascending addresses, helps.
pub(crate) struct Rows<'a> {
    bytes: &'a [u8],
    /// Where each piece starts. Where there are fewer rows, the last one stands in for the rest.
    starts: [usize; LANES],
    /// Bytes of each piece.
    len: usize,
    /// The next line of the cache to ask for.
    ahead: Cell<usize>,
}

/// Where the pieces of [`Rows`] are.
pub(crate) struct Place {
    /// Byte where the first piece starts.
    pub(crate) first: usize,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    /// How many rows there are, at least one.
    pub(crate) n_rows: usize,
    /// Bytes of each piece.
    pub(crate) len: usize,
    /// Where the part of the rows below starts that is as far on as the pieces are.
    pub(crate) ahead: usize,
}

/// Bytes of a line of the cache.
pub(crate) const CACHE_LINE: usize = 64;

impl<'a> Rows<'a> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], place: &Place) -> Rows<'a> {
        let Place { first, stride, n_rows, len, ahead } = *place;
        let mut starts = [first; LANES];
        for (r, start) in starts.iter_mut().enumerate() {
            *start += r.min(n_rows - 1) * stride;
        }
        assert!(starts[LANES - 1] + len <= bytes.len() && first <= starts[LANES - 1]);
        Rows { bytes, starts, len, ahead: Cell::new(ahead) }
    }

    /// Asks for as many bytes as `n` lines have. They may lie behind the end: asking does no harm.
    #[inline(always)]
    fn ask(&self, n: usize) {
        let ahead = self.ahead.get();
        for i in 0..n {
            simd::prefetch(self.bytes, ahead + i * CACHE_LINE);
        }
        self.ahead.set(ahead + n * CACHE_LINE);
    }

    /// Asks for what lies before `due`, if [`Words::quad`] has not yet done so.
    #[inline(always)]
    pub(crate) fn catch_up(&self, due: usize) {
        while self.ahead.get() < due {
            self.ask(1);
        }
    }

    /// Where `N` bytes from byte `at` of row `row`'s piece on lie, all of them readable.
    #[inline(always)]
    fn at<const N: usize>(&self, row: usize, at: usize) -> *const [u8; N] {
        assert!(at + N <= self.len);
        // SAFETY: `new` made sure that the piece of the last row ends inside `bytes`, and those of
        // the others before it; by the assertion the place is inside the piece.
        unsafe { self.bytes.as_ptr().add(self.starts[row] + at).cast() }
    }

    /// `N` bytes from byte `at` of row `row`'s piece on.
    #[inline(always)]
    pub(crate) fn bytes<const N: usize>(&self, row: usize, at: usize) -> [u8; N] {
        // SAFETY: what `at` returns is readable.
        unsafe { self.at::<N>(row, at).read_unaligned() }
    }
}

/// Some neighbouring rows out of [`Rows`], to read words from.
pub(crate) struct Side<'a, W> {
    rows: &'a Rows<'a>,
    first: usize,
    words: PhantomData<W>,
}

/// Says that the instruction set of `W` is there.
pub(crate) struct Available<W>(PhantomData<W>);

impl<W: Words> Available<W> {
    /// # Safety
    /// The instruction set of `W` must be there.
    pub(super) unsafe fn promise() -> Available<W> {
        Available(PhantomData)
    }

    /// Rows `first..first + W::ROWS`.
    #[inline(always)]
    pub(crate) fn side<'a>(&self, rows: &'a Rows<'a>, first: usize) -> Side<'a, W> {
        Side { rows, first, words: PhantomData }
    }
}

impl<W: Words> Side<'_, W> {
    /// Four words of each row, from byte `at` of its piece on.
    #[inline(always)]
    pub(crate) fn quad(&self, at: usize) -> [W; 4] {
        self.rows.ask(16 * W::ROWS / CACHE_LINE);
        // SAFETY: whoever made this promised the instruction set.
        unsafe { W::quad(self.rows, self.first, at) }
    }

    /// One little-endian word of each row.
    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> W {
        // SAFETY: as above.
        unsafe { W::word(self.rows, self.first, at) }
    }

    /// One little-endian 16-bit word of each row.
    #[inline(always)]
    pub(crate) fn half(&self, at: usize) -> W {
        // SAFETY: as above.
        unsafe { W::half(self.rows, self.first, at) }
    }

    /// A number of each row, from its `N` bytes at `at`.
    #[inline(always)]
    pub(crate) fn floats<const N: usize>(
        &self,
        at: usize,
        of: impl Fn([u8; N]) -> f32,
    ) -> W::Floats {
        // SAFETY: as above.
        unsafe { W::floats(|r| of(self.rows.bytes(self.first + r, at))) }
    }
}

/// One 32-bit word of each of some rows.
///
/// Values of register types exist only in functions that were compiled for their instruction set:
/// those are the only callers of the `unsafe` ways to make one. That is what lets the rest be safe.
pub(crate) trait Words: Copy {
    /// One f32 of each row.
    type Floats: Copy;
    /// Rows side by side; divides [`LANES`].
    const ROWS: usize;

    /// Four words of rows `first..first + ROWS`, from byte `at` of their pieces on.
    ///
    /// # Safety
    /// As for all of these: the instruction set must be there.
    unsafe fn quad(rows: &Rows<'_>, first: usize, at: usize) -> [Self; 4];
    /// One little-endian word of each row.
    ///
    /// # Safety
    /// See [`Words::quad`].
    unsafe fn word(rows: &Rows<'_>, first: usize, at: usize) -> Self;
    /// One little-endian 16-bit word of each row.
    ///
    /// # Safety
    /// See [`Words::quad`].
    unsafe fn half(rows: &Rows<'_>, first: usize, at: usize) -> Self;
    /// Any number for each row.
    ///
    /// # Safety
    /// See [`Words::quad`].
    unsafe fn floats(of_row: impl Fn(usize) -> f32) -> Self::Floats;

    fn and(self, mask: u32) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, mask: u32) -> Self;
    fn shl(self, bits: u32) -> Self;
    fn shr(self, bits: u32) -> Self;
    /// Shifts in copies of the sign.
    fn sar(self, bits: u32) -> Self;
    /// Every byte `b`, which is below sixteen, becomes `table[b]`.
    fn lookup(self, table: &[u8; 16]) -> Self;

    /// The low sixteen bits as an f16.
    fn f16(self) -> Self::Floats;
    /// The bits of an f32.
    fn f32(self) -> Self::Floats;
    /// The word as a signed number.
    fn number(self) -> Self::Floats;
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn minus(a: Self::Floats) -> Self::Floats;

    /// Puts the words where the lanes of rows `first..first + ROWS` are.
    fn put(self, line: &mut [u8; 4 * LANES], first: usize);
    /// As [`Words::put`].
    fn put_floats(floats: Self::Floats, line: &mut [f32; LANES], first: usize);
}

impl Words for u32 {
    type Floats = f32;
    const ROWS: usize = 1;

    #[inline(always)]
    unsafe fn quad(rows: &Rows<'_>, first: usize, at: usize) -> [u32; 4] {
        let bytes: [u8; 16] = rows.bytes(first, at);
        std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|k| bytes[4 * i + k])))
    }

    #[inline(always)]
    unsafe fn word(rows: &Rows<'_>, first: usize, at: usize) -> u32 {
        u32::from_le_bytes(rows.bytes(first, at))
    }

    #[inline(always)]
    unsafe fn half(rows: &Rows<'_>, first: usize, at: usize) -> u32 {
        u32::from(u16::from_le_bytes(rows.bytes(first, at)))
    }

    #[inline(always)]
    unsafe fn floats(of_row: impl Fn(usize) -> f32) -> f32 {
        of_row(0)
    }

    #[inline(always)]
    fn and(self, mask: u32) -> u32 {
        self & mask
    }

    #[inline(always)]
    fn or(self, other: u32) -> u32 {
        self | other
    }

    #[inline(always)]
    fn xor(self, mask: u32) -> u32 {
        self ^ mask
    }

    #[inline(always)]
    fn shl(self, bits: u32) -> u32 {
        self << bits
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> u32 {
        self >> bits
    }

    #[inline(always)]
    fn sar(self, bits: u32) -> u32 {
        (self as i32 >> bits) as u32
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16]) -> u32 {
        u32::from_le_bytes(self.to_le_bytes().map(|b| table[usize::from(b & 15)]))
    }

    #[inline(always)]
    fn f16(self) -> f32 {
        f16_to_f32(self as u16)
    }

    #[inline(always)]
    fn f32(self) -> f32 {
        f32::from_bits(self)
    }

    #[inline(always)]
    fn number(self) -> f32 {
        self as i32 as f32
    }

    #[inline(always)]
    fn times(a: f32, b: f32) -> f32 {
        a * b
    }

    #[inline(always)]
    fn minus(a: f32) -> f32 {
        -a
    }

    #[inline(always)]
    fn put(self, line: &mut [u8; 4 * LANES], first: usize) {
        line.as_chunks_mut().0[first] = self.to_le_bytes();
    }

    #[inline(always)]
    fn put_floats(floats: f32, line: &mut [f32; LANES], first: usize) {
        line[first] = floats;
    }
}
