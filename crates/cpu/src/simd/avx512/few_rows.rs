//! A few rows of activations, multiplied with codes as they are unpacked: the codes go from register
//! to register, and to a panel only where more rows are to follow.

use std::arch::x86_64::*;

use super::super::words::avx512::Words16;
use super::super::{Available, FewRows, Side, Words};
use super::{dot_codes, load_f32, store_f32, unpack};
use crate::pack::{
    CodePanel, Codes, Coding, Format, LANES, Level, Numbers, Out, Source, Taker, Visitor,
    each_block, with_format,
};
use crate::rounded::{GROUP, Rounded};

/// For the table of kernels, which needs avx512f, avx512bw, avx512vl and avx512vnni.
pub(super) const FEW_ROWS: FewRows = FewRows {
    most: 8,
    multiply: |source, x, stride, panel, acc| {
        with_format(source.matrix.packing, Multiply { source, x, stride, panel, acc });
    },
    unpack: Some(|source, x, stride, panel, acc| {
        with_format(source.matrix.packing, Unpack(Multiply { source, x, stride, panel, acc }));
    }),
};

/// Multiplies with whatever format a matrix has.
struct Multiply<'a> {
    source: Source<'a>,
    x: &'a [Rounded],
    stride: usize,
    panel: &'a mut CodePanel,
    acc: &'a mut [[f32; LANES]],
}

impl Visitor for Multiply<'_> {
    #[inline]
    fn visit<F: Format>(self, format: F) {
        // SAFETY: used by the table of kernels alone, which needs these instructions.
        unsafe {
            match self.acc.len() {
                1 if is_one_group::<F>() => multiply::<F, 1, false>(format, self),
                2..=4 if is_one_group::<F>() => multiply::<F, 4, false>(format, self),
                5..=8 if is_one_group::<F>() => multiply::<F, 8, false>(format, self),
                _ => one_by_one(format, self),
            }
        }
    }
}

/// As [`Multiply`], of eight rows, with the panel filled in the end.
struct Unpack<'a>(Multiply<'a>);

impl Visitor for Unpack<'_> {
    #[inline]
    fn visit<F: Format>(self, format: F) {
        // SAFETY: used by the table of kernels alone, which needs these instructions.
        unsafe {
            match is_one_group::<F>() {
                true => multiply::<F, 8, true>(format, self.0),
                false => one_by_one(format, self.0),
            }
        }
    }
}

/// Fills the panel, then multiplies with it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn one_by_one<F: Format>(format: F, job: Multiply<'_>) {
    let Multiply { source, x, stride, panel, acc } = job;
    unpack(format, source, panel);
    dot_codes(panel, x, stride, acc);
}

/// Whether a block is one group of activations, with one scale. The sums of longer ones, in which runs of
/// columns take turns, would not fit the registers.
const fn is_one_group<F: Format>() -> bool {
    F::COLS == GROUP && F::GROUPS == 1
}

/// Up to `R` rows. Where there are fewer, the last one stands in for the rest, which costs less than
/// another version of this would. Writes the codes down in the panel as well if it is to `KEEP` them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply<F: Format, const R: usize, const KEEP: bool>(format: F, job: Multiply<'_>) {
    let Multiply { source, x, stride, panel, acc } = job;
    // SAFETY: this function is compiled for what the words need.
    let isa = unsafe { Available::<Words16>::promise() };
    let n_groups = source.piece.cols.len() / GROUP;
    let last = acc.len() - 1;
    // Loops, for closures would be called row by row.
    let mut of_row = [&[][..]; R];
    let mut sums = [_mm512_setzero_ps(); R];
    for r in 0..R {
        of_row[r] = &x[r.min(last) * stride..][..n_groups];
        sums[r] = load_f32(&acc[r.min(last)]);
    }
    let CodePanel { codes, scales, mins, cols, coding } = panel;
    if KEEP {
        *cols = source.piece.cols.len();
    }
    let mut rows = Rows::<R, KEEP> { x: of_row, n_groups, coding: *coding, sums, codes };
    each_block(isa, format, source, (scales, mins), &mut rows);
    for (acc, sums) in acc.iter_mut().zip(rows.sums) {
        store_f32(acc, sums);
    }
}

/// Rows of activations, multiplied with codes as they come. Only [`multiply`] makes one.
struct Rows<'a, const R: usize, const KEEP: bool> {
    /// `n_groups` of each row.
    x: [&'a [Rounded]; R],
    n_groups: usize,
    coding: Coding,
    sums: [__m512; R],
    /// Where codes are kept, if they are.
    codes: &'a mut [[u8; 4 * LANES]],
}

/// The integer dot products of a group of each row. Only a [`Rows`] makes one.
struct Dots<'a, const R: usize> {
    x: [&'a Rounded; R],
    dots: [__m512i; R],
    /// Where the codes of the group go, if anywhere.
    lines: Option<&'a mut [[u8; 4 * LANES]; GROUP / 4]>,
}

impl<const R: usize> Codes<Words16> for Dots<'_, R> {
    #[inline(always)]
    fn take(&mut self, line: usize, codes: Words16) {
        if let Some(lines) = &mut self.lines {
            codes.put(&mut lines[line], 0);
        }
        for (dot, x) in self.dots.iter_mut().zip(self.x) {
            let x = x.codes.as_chunks::<4>().0[line].map(|x| x as u8);
            // SAFETY: there are words of sixteen rows, and only a `Rows` makes a `Dots`.
            *dot = unsafe {
                let x = _mm512_set1_epi32(i32::from_le_bytes(x));
                let sum = _mm512_dpbusd_epi32(*dot, codes.0, x);
                if R > 1 { in_turn(sum) } else { sum }
            };
        }
    }
}

/// What the dot product with a group starts from. For the most common level it is read as it lies.
#[inline]
#[target_feature(enable = "avx512f")]
fn start(level: Level, group: &Rounded) -> __m512i {
    match level {
        Level::Min => _mm512_setzero_si512(),
        Level::Zero(8) => _mm512_set1_epi32(group.from_eight),
        Level::Zero(zero) => _mm512_set1_epi32(-zero * group.sum),
    }
}

/// Its argument. Sums that go through here are computed in the order in which they are written down: line
/// by line, so that those of different rows, which do not wait for each other, follow each other. The
/// compiler would have them row by row, and each would wait for the one before.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_turn(mut dot: __m512i) -> __m512i {
    // SAFETY: no instruction at all. What has an effect, for all the compiler knows, keeps its place.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) dot, options(nomem, nostack, preserves_flags));
    }
    dot
}

impl<const R: usize, const KEEP: bool> Taker<Words16> for Rows<'_, R, KEEP> {
    #[inline(always)]
    fn block<F: Format>(
        &mut self,
        format: F,
        rows: &Side<'_, Words16>,
        (i, lane): (usize, usize),
        (scales, mins): Numbers<'_>,
    ) {
        assert!(i < self.n_groups);
        // SAFETY: every row has `n_groups` groups.
        let x = self.x.map(|x| unsafe { x.get_unchecked(i) });
        // SAFETY: only `multiply` makes a `Rows`, here and below.
        let dots = x.map(|x| unsafe { start(self.coding.level, x) });
        let lines = if KEEP { self.codes.as_chunks_mut().0.get_mut(i) } else { None };
        let mut out = Out { codes: Dots { x, dots, lines }, scales, mins, lane };
        format.block(rows, i * F::BYTES, &mut out);
        // SAFETY: as above.
        let (scales, mins) = unsafe { (load_f32(&out.scales[0]), load_f32(&out.mins[0])) };
        for r in 0..R {
            // SAFETY: as above.
            unsafe {
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(x[r].scale));
                let dot = _mm512_cvtepi32_ps(out.codes.dots[r]);
                self.sums[r] = _mm512_fmadd_ps(dot, scale, self.sums[r]);
                if self.coding.level == Level::Min {
                    let weighted = _mm512_set1_ps(x[r].weighted);
                    self.sums[r] = _mm512_fmadd_ps(mins, weighted, self.sums[r]);
                }
            }
        }
    }
}
