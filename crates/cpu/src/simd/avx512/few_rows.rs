//! A few rows of activations, multiplied with codes as they are unpacked: the codes go from register
//! to register and never through a panel.

use std::arch::x86_64::*;

use super::super::words::avx512::Words16;
use super::super::{Available, FewRows, Side};
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
};

/// Most sums that grow while a block is unpacked: its runs of 32 columns times the rows. More would
/// not fit the registers.
const MAX_DOTS: usize = 8;
/// Most runs of a block.
const MAX_RUNS: usize = 4;

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
                1 if fits::<F, 1>() => multiply::<F, 1>(format, self),
                2..=4 if fits::<F, 4>() => multiply::<F, 4>(format, self),
                5..=8 if fits::<F, 8>() => multiply::<F, 8>(format, self),
                _ => {
                    let Multiply { source, x, stride, panel, acc } = self;
                    unpack(format, source, panel);
                    dot_codes(panel, x, stride, acc);
                }
            }
        }
    }
}

/// Whether blocks are a few groups of activations with one scale each.
const fn fits<F: Format, const R: usize>() -> bool {
    F::COLS == GROUP * F::GROUPS && F::GROUPS <= MAX_RUNS && F::GROUPS * R <= MAX_DOTS
}

/// Up to `R` rows. Where there are fewer, the last one stands in for the rest, which costs less than
/// another version of this would.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn multiply<F: Format, const R: usize>(format: F, job: Multiply<'_>) {
    let Multiply { source, x, stride, panel, acc } = job;
    // SAFETY: this function is compiled for what the words need.
    let isa = unsafe { Available::<Words16>::promise() };
    let n_groups = source.piece.cols.len() / GROUP;
    let last = acc.len() - 1;
    let x = std::array::from_fn(|r| &x[r.min(last) * stride..][..n_groups]);
    let sums = std::array::from_fn(|r| acc[r.min(last)]);
    let sums = sums.map(|sums| load_f32(&sums));
    let mut rows = Rows::<R> { x, n_groups, coding: panel.coding, sums };
    each_block(isa, format, source, (&mut panel.scales, &mut panel.mins), &mut rows);
    for (acc, sums) in acc.iter_mut().zip(rows.sums) {
        store_f32(acc, sums);
    }
}

/// Rows of activations, multiplied with codes as they come. Only [`multiply`] makes one.
struct Rows<'a, const R: usize> {
    /// `n_groups` of each row.
    x: [&'a [Rounded]; R],
    n_groups: usize,
    coding: Coding,
    sums: [__m512; R],
}

/// The integer dot products of runs of 32 columns. Only a [`Rows`] makes one.
struct Dots<'a, const R: usize> {
    x: [&'a [Rounded]; R],
    dots: [[__m512i; R]; MAX_RUNS],
}

impl<const R: usize> Codes<Words16> for Dots<'_, R> {
    #[inline(always)]
    fn take(&mut self, line: usize, codes: Words16) {
        // Said like this, the one run of most formats stays in a register.
        let run = if self.x[0].len() == 1 { 0 } else { line / 8 };
        for (dot, x) in self.dots[run].iter_mut().zip(self.x) {
            let x = x[run].codes.as_chunks::<4>().0[line % 8].map(|x| x as u8);
            // SAFETY: there are words of sixteen rows, and only a `Rows` makes a `Dots`.
            *dot = unsafe {
                let x = _mm512_set1_epi32(i32::from_le_bytes(x));
                _mm512_dpbusd_epi32(*dot, codes.0, x)
            };
        }
    }
}

impl<const R: usize> Taker<Words16> for Rows<'_, R> {
    #[inline(always)]
    fn block<F: Format>(
        &mut self,
        format: F,
        rows: &Side<'_, Words16>,
        (i, lane): (usize, usize),
        (scales, mins): Numbers<'_>,
    ) {
        let runs = F::COLS / GROUP;
        assert!((i + 1) * runs <= self.n_groups);
        // SAFETY: every row has `n_groups` groups.
        let x = self.x.map(|x| unsafe { x.get_unchecked(i * runs..(i + 1) * runs) });
        // SAFETY: only `multiply` makes a `Rows`.
        let dots = [[unsafe { _mm512_setzero_si512() }; R]; MAX_RUNS];
        let mut out = Out { codes: Dots { x, dots }, scales, mins, lane };
        format.block(rows, i * F::BYTES, &mut out);
        let (dots, scales, mins) = (out.codes.dots, out.scales, out.mins);
        for run in 0..runs {
            for r in 0..R {
                let group = &x[r][run];
                // SAFETY: as above.
                unsafe {
                    let mut dot = dots[run][r];
                    if let Level::Zero(zero) = self.coding.level {
                        dot = _mm512_add_epi32(dot, _mm512_set1_epi32(-zero * group.sum));
                    }
                    let scale = _mm512_mul_ps(load_f32(&scales[run]), _mm512_set1_ps(group.scale));
                    let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, self.sums[r]);
                    self.sums[r] = match self.coding.level {
                        Level::Zero(_) => sum,
                        Level::Min => {
                            let weighted = _mm512_set1_ps(group.weighted);
                            _mm512_fmadd_ps(load_f32(&mins[run]), weighted, sum)
                        }
                    };
                }
            }
        }
    }
}
