//! Attention's two products in vector instructions, for any width: several queries at a time, so
//! that a key or value is widened once for all of them and as many sums grow side by side as
//! registers hold. How many that is says the file of each instruction set.

use std::ops::Range;

use backend::{BLOCK, KEY_GROUP, KvFormat, VALUE_GROUP};

use super::ops::{BlockScores, VALUE_PAD};
use super::stored::{Codes, Deltas, Halfs, keys_head, keys_len, values_head};

/// A vector register of f32.
///
/// # Safety
/// Everything here needs a machine that has the instructions, and pointers to [`Wide::LANES`]
/// numbers, of any alignment.
#[allow(clippy::missing_safety_doc, reason = "the trait says it for all")]
pub(super) trait Wide: Copy {
    /// Numbers in it.
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn all(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// From f16.
    unsafe fn from_f16(from: *const u16) -> Self;
    /// From bf16.
    unsafe fn from_bf16(from: *const u16) -> Self;
    /// From whole numbers.
    unsafe fn from_i8(from: *const i8) -> Self;
    unsafe fn multiply(self, by: Self) -> Self;
    /// `self * by + to`, rounded once.
    unsafe fn multiply_add(self, by: Self, to: Self) -> Self;
}

/// Numbers of a block and head, to be read as vectors.
pub(super) trait Source: Copy {
    /// Numbers in a line of the cache.
    const LINE: usize;
    /// Where number `at` of the block that lies behind this one is, if there is one.
    fn behind(self, at: usize) -> *const u8;
}

/// Keys, by column.
///
/// # Safety
/// Everything here needs a machine that has the instructions of `W`, and keys that are there: see
/// [`KeySource::holds`].
#[allow(clippy::missing_safety_doc, reason = "the trait says it for all")]
pub(super) trait KeySource: Source {
    /// Whether this is a whole block of `cols` columns.
    fn holds(self, cols: usize) -> bool;
    /// What `V` vectors of keys, from key `first` on, have to be multiplied with in the columns of
    /// group `group`.
    unsafe fn scales<W: Wide, const V: usize>(self, group: usize, first: usize) -> [W; V];
    /// What has to be added in a column.
    unsafe fn base<W: Wide>(self, column: usize) -> W;
    /// A vector of numbers from `at` on, multiplied and added to.
    unsafe fn read<W: Wide>(self, at: usize, scale: W, base: W) -> W;
}

/// Values, by row.
///
/// # Safety
/// Everything here needs a machine that has the instructions of `W`, and values that are there: see
/// [`ValueSource::holds`].
#[allow(clippy::missing_safety_doc, reason = "the trait says it for all")]
pub(super) trait ValueSource: Source {
    /// Whether this is a whole block of `cols` columns.
    fn holds(self, cols: usize) -> bool;
    /// What `V` vectors of the value of `key`, from column `first` on, have to be multiplied with.
    /// The columns are those of one group, or begin with one.
    unsafe fn scales<W: Wide, const V: usize>(self, key: usize, first: usize) -> [W; V];
    /// A vector of numbers from `at` on, multiplied.
    unsafe fn read<W: Wide>(self, at: usize, scale: W) -> W;
}

impl Source for Halfs<'_> {
    const LINE: usize = 32;

    #[inline(always)]
    fn behind(self, at: usize) -> *const u8 {
        self.0.as_ptr().wrapping_add(self.0.len() + 2 * at)
    }
}

impl Halfs<'_> {
    fn are(self, cols: usize) -> bool {
        self.0.len() == keys_len(KvFormat::F16, cols)
    }

    /// # Safety
    /// The instructions of `W` and the numbers are there.
    #[inline(always)]
    unsafe fn wide<W: Wide>(self, at: usize) -> W {
        // SAFETY: they are by this function's contract.
        unsafe { W::from_f16(self.0.as_ptr().cast::<u16>().add(at)) }
    }
}

/// Neither scales nor a base: what stands for them is never looked at.
impl KeySource for Halfs<'_> {
    fn holds(self, cols: usize) -> bool {
        self.are(cols)
    }

    #[inline(always)]
    unsafe fn scales<W: Wide, const V: usize>(self, _group: usize, _first: usize) -> [W; V] {
        // SAFETY: the instructions are there by the trait's contract, here and below.
        unsafe { [W::zero(); V] }
    }

    #[inline(always)]
    unsafe fn base<W: Wide>(self, _column: usize) -> W {
        // SAFETY: as above.
        unsafe { W::zero() }
    }

    #[inline(always)]
    unsafe fn read<W: Wide>(self, at: usize, _scale: W, _base: W) -> W {
        // SAFETY: the numbers are there by the trait's contract.
        unsafe { self.wide(at) }
    }
}

impl ValueSource for Halfs<'_> {
    fn holds(self, cols: usize) -> bool {
        self.are(cols)
    }

    #[inline(always)]
    unsafe fn scales<W: Wide, const V: usize>(self, _key: usize, _first: usize) -> [W; V] {
        // SAFETY: the instructions are there by the trait's contract.
        unsafe { [W::zero(); V] }
    }

    #[inline(always)]
    unsafe fn read<W: Wide>(self, at: usize, _scale: W) -> W {
        // SAFETY: the numbers are there by the trait's contract.
        unsafe { self.wide(at) }
    }
}

impl Codes<'_> {
    #[inline(always)]
    fn end(self) -> *const u8 {
        self.codes.as_ptr().wrapping_add(self.codes.len())
    }

    /// # Safety
    /// The instructions of `W` and the numbers are there.
    #[inline(always)]
    unsafe fn wide<W: Wide>(self, at: usize) -> W {
        // SAFETY: they are by this function's contract.
        unsafe { W::from_i8(self.codes.as_ptr().cast::<i8>().add(at)) }
    }
}

/// All lanes the bf16 number `at`.
///
/// # Safety
/// The instructions of `W` are there, and `bf16` has more than `at` numbers.
#[inline(always)]
unsafe fn all_bf16<W: Wide>(bf16: &[u8], at: usize) -> W {
    // SAFETY: there are so many by this function's contract.
    let bits = unsafe { bf16.as_ptr().cast::<u16>().add(at).read_unaligned() };
    // SAFETY: the instructions are there by this function's contract.
    unsafe { W::all(f32::from_bits(u32::from(u16::from_le(bits)) << 16)) }
}

impl Source for Deltas<'_> {
    const LINE: usize = 64;

    #[inline(always)]
    fn behind(self, at: usize) -> *const u8 {
        let Deltas { base, codes } = self;
        codes.end().wrapping_add(base.len() + codes.scales.len() + at)
    }
}

impl KeySource for Deltas<'_> {
    fn holds(self, cols: usize) -> bool {
        let Deltas { base, codes } = self;
        base.len() == KvFormat::Int8.base_bytes(cols)
            && base.len() + codes.scales.len() == keys_head(KvFormat::Int8, cols)
            && codes.codes.len() == BLOCK * cols
    }

    #[inline(always)]
    unsafe fn scales<W: Wide, const V: usize>(self, group: usize, first: usize) -> [W; V] {
        // SAFETY: the instructions are there by the trait's contract.
        let mut scales = unsafe { [W::zero(); V] };
        for (v, scale) in scales.iter_mut().enumerate() {
            let at = group * BLOCK + first + v * W::LANES;
            // SAFETY: a group has a scale for each of `BLOCK` keys.
            *scale = unsafe { W::from_bf16(self.codes.scales.as_ptr().cast::<u16>().add(at)) };
        }
        scales
    }

    #[inline(always)]
    unsafe fn base<W: Wide>(self, column: usize) -> W {
        // SAFETY: the base has a number per column.
        unsafe { all_bf16(self.base, column) }
    }

    #[inline(always)]
    unsafe fn read<W: Wide>(self, at: usize, scale: W, base: W) -> W {
        // SAFETY: the numbers are there by the trait's contract.
        unsafe { self.codes.wide::<W>(at).multiply_add(scale, base) }
    }
}

impl Source for Codes<'_> {
    const LINE: usize = 64;

    #[inline(always)]
    fn behind(self, at: usize) -> *const u8 {
        self.end().wrapping_add(self.scales.len() + at)
    }
}

impl ValueSource for Codes<'_> {
    fn holds(self, cols: usize) -> bool {
        self.scales.len() == values_head(KvFormat::Int8, cols) && self.codes.len() == BLOCK * cols
    }

    #[inline(always)]
    unsafe fn scales<W: Wide, const V: usize>(self, key: usize, first: usize) -> [W; V] {
        // SAFETY: the instructions are there by the trait's contract.
        let mut scales = unsafe { [W::zero(); V] };
        for (v, scale) in scales.iter_mut().enumerate() {
            // So, and not from the sum, it is plain to a compiler that neighbours have the same.
            let group = first / VALUE_GROUP + v * W::LANES / VALUE_GROUP;
            // SAFETY: a group has a scale for each of `BLOCK` keys.
            *scale = unsafe { all_bf16(self.scales, group * BLOCK + key) };
        }
        scales
    }

    #[inline(always)]
    unsafe fn read<W: Wide>(self, at: usize, scale: W) -> W {
        // SAFETY: the numbers are there by the trait's contract.
        unsafe { self.wide::<W>(at).multiply(scale) }
    }
}

/// From so many queries on it pays to ask for the keys or values of the block that lies behind the
/// one at work, probably the next one. With fewer they are wanted so soon that the machine guesses
/// better by itself.
pub(super) const BUSY: usize = 5;

/// Scores of `N` queries with the keys of a block, `V` vectors of keys at a time.
///
/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
pub(super) unsafe fn score_some<W: Wide, const N: usize, const V: usize>(
    q: &[f32],
    keys: impl KeySource,
    out: &mut [BlockScores],
) {
    let head_dim = q.len() / N;
    assert!(q.len() == N * head_dim && keys.holds(head_dim));
    assert!(out.len() == N && BLOCK.is_multiple_of(V * W::LANES));
    for first in (0..BLOCK).step_by(V * W::LANES) {
        // SAFETY: the instructions are there, here and below.
        let mut sums = [[unsafe { W::zero() }; V]; N];
        for group in 0..head_dim.div_ceil(KEY_GROUP) {
            // SAFETY: the group has columns, and `first + V * LANES <= BLOCK`.
            let scales = unsafe { keys.scales::<W, V>(group, first) };
            for d in group * KEY_GROUP..head_dim.min((group + 1) * KEY_GROUP) {
                let at = d * BLOCK + first;
                if N >= BUSY {
                    ask_behind(keys, at, V * W::LANES);
                }
                // SAFETY: `d < head_dim`.
                let base = unsafe { keys.base::<W>(d) };
                let mut wide = scales;
                for (v, wide) in wide.iter_mut().enumerate() {
                    // SAFETY: `d < head_dim` and `first + V * LANES <= BLOCK`.
                    *wide = unsafe { keys.read(at + v * W::LANES, *wide, base) };
                }
                for (n, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `n < N` and `d < head_dim`, and `q` has `N * head_dim` numbers.
                    let q = unsafe { W::all(*q.get_unchecked(n * head_dim + d)) };
                    for (sum, wide) in sums.iter_mut().zip(wide) {
                        // SAFETY: as above.
                        *sum = unsafe { q.multiply_add(wide, *sum) };
                    }
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            for (v, sum) in sums.into_iter().enumerate() {
                // SAFETY: `first + V * LANES <= BLOCK`, the length of `out`.
                unsafe { sum.store(out.as_mut_ptr().add(first + v * W::LANES)) };
            }
        }
    }
}

/// Sums of `N` queries, `V` vectors of columns at a time while there are so many, then two, then one.
///
/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
pub(super) unsafe fn add_some<W: Wide, const N: usize, const V: usize>(
    weights: &[BlockScores],
    seen: Range<usize>,
    values: impl ValueSource,
    sums: &mut [f32],
) {
    let cols = sums.len() / N;
    assert!(cols.is_multiple_of(VALUE_PAD));
    let mut first = 0;
    while first + V * W::LANES <= cols {
        // SAFETY: the instructions are there.
        unsafe { add_columns::<W, N, V>(weights, seen.clone(), values, first, sums) };
        first += V * W::LANES;
    }
    if V > 2 && first + 2 * W::LANES <= cols {
        // SAFETY: as above.
        unsafe { add_columns::<W, N, 2>(weights, seen.clone(), values, first, sums) };
        first += 2 * W::LANES;
    }
    if first < cols {
        // SAFETY: as above.
        unsafe { add_columns::<W, N, 1>(weights, seen, values, first, sums) };
    }
}

/// # Safety
/// The machine has the instructions of `W`.
#[inline(always)]
unsafe fn add_columns<W: Wide, const N: usize, const V: usize>(
    weights: &[BlockScores],
    seen: Range<usize>,
    values: impl ValueSource,
    first: usize,
    sums: &mut [f32],
) {
    let cols = sums.len() / N;
    assert!(weights.len() == N && sums.len() == N * cols && first + V * W::LANES <= cols);
    assert!(values.holds(cols) && seen.end <= BLOCK);
    // SAFETY: the instructions are there, here and below.
    let mut wide_sums = [[unsafe { W::zero() }; V]; N];
    for (n, wide_sums) in wide_sums.iter_mut().enumerate() {
        for (v, sum) in wide_sums.iter_mut().enumerate() {
            let at = n * cols + first + v * W::LANES;
            // SAFETY: `n < N` and `first + V * LANES <= cols`, and `sums` has `N * cols` numbers.
            *sum = unsafe { W::load(sums.as_ptr().add(at)) };
        }
    }
    for key in seen {
        let at = key * cols + first;
        if N >= BUSY {
            ask_behind(values, at, V * W::LANES);
        }
        // SAFETY: `key < BLOCK` and `first + V * LANES <= cols`.
        let mut wide = unsafe { values.scales::<W, V>(key, first) };
        for (v, wide) in wide.iter_mut().enumerate() {
            // SAFETY: as above.
            *wide = unsafe { values.read(at + v * W::LANES, *wide) };
        }
        for (n, wide_sums) in wide_sums.iter_mut().enumerate() {
            // SAFETY: `n < N`, the length of `weights`, and `key < BLOCK`.
            let weight = unsafe { W::all(*weights.get_unchecked(n).get_unchecked(key)) };
            for (sum, wide) in wide_sums.iter_mut().zip(wide) {
                // SAFETY: as above.
                *sum = unsafe { weight.multiply_add(wide, *sum) };
            }
        }
    }
    for (n, wide_sums) in wide_sums.into_iter().enumerate() {
        for (v, sum) in wide_sums.into_iter().enumerate() {
            let at = n * cols + first + v * W::LANES;
            // SAFETY: as for the loads above.
            unsafe { sum.store(sums.as_mut_ptr().add(at)) };
        }
    }
}

/// Asks for what will be wanted when the block behind this one is at work.
#[inline(always)]
fn ask_behind<S: Source>(numbers: S, at: usize, n: usize) {
    for line in (0..n).step_by(S::LINE) {
        ask(numbers.behind(at + line));
    }
}

/// Asks for a line to be brought into the L1 cache. Nothing depends on it but time, of which it was
/// seen to save some on x86-64 alone.
#[inline(always)]
pub(super) fn ask(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction may be given any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
