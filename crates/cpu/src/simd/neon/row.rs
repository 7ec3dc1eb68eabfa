//! One row of activations, multiplied with codes as they are unpacked.

use std::arch::aarch64::*;
use std::marker::PhantomData;

use super::codes::{QUARTERS, dot_codes};
use super::products::{Mixed, Product, Signed};
use super::registers::{
    all_codes, all_f32, all_s32, float, load_f32, multiply, multiply_add, store_f32,
};
use super::unpack;
use crate::pack::{
    CodePanel, Codes, Coding, Format, LANES, Level, Numbers, Out, Source, Taker, Visitor,
    each_block,
};
use crate::rounded::{GROUP, Rounded};
use crate::simd::words::neon::Words4;
use crate::simd::{Available, Side};

/// Most runs of 32 columns of a block that are multiplied without writing their codes down: as many
/// as the products of a long block would leave no registers to unpack it.
const MAX_RUNS: usize = 4;

/// What a row is multiplied with: a piece, the row, a panel for scales and minimums, the sums.
pub(super) type Job<'a> = (Source<'a>, &'a [Rounded], &'a mut CodePanel, &'a mut [f32; LANES]);

/// A way to multiply codes, with its instructions switched on around all of the work.
pub(super) trait RowProduct: Product {
    /// # Safety
    /// The machine has the instructions.
    unsafe fn multiply(format: impl Format, job: Job<'_>);
}

impl RowProduct for Signed<128> {
    #[target_feature(enable = "dotprod")]
    unsafe fn multiply(format: impl Format, job: Job<'_>) {
        // SAFETY: this function is compiled for the instructions.
        unsafe { multiply_row::<Self>(format, job) }
    }
}

impl RowProduct for Mixed {
    #[target_feature(enable = "dotprod,i8mm")]
    unsafe fn multiply(format: impl Format, job: Job<'_>) {
        // SAFETY: this function is compiled for the instructions.
        unsafe { multiply_row::<Self>(format, job) }
    }
}

/// Multiplies with whatever format a matrix has. Made where the machine has the instructions of `P`.
pub(super) struct Multiply<'a, P>(pub(super) Job<'a>, pub(super) PhantomData<P>);

impl<P: RowProduct> Visitor for Multiply<'_, P> {
    #[inline]
    fn visit<F: Format>(self, format: F) {
        // SAFETY: the instructions are there, or this would not have been made.
        unsafe { P::multiply(format, self.0) }
    }
}

/// # Safety
/// The machine has the instructions of `P`.
#[inline(always)]
unsafe fn multiply_row<P: Product>(format: impl Format, (source, x, panel, acc): Job<'_>) {
    if !whole_runs(format) {
        unpack(format, source, panel);
        // SAFETY: by this function's contract.
        return unsafe { dot_codes::<P>(panel, x, x.len(), std::slice::from_mut(acc)) };
    }
    // SAFETY: NEON is taken for granted by the target.
    let isa = unsafe { Available::<Words4>::promise() };
    let sums = std::array::from_fn(|q| load_f32(&acc.as_chunks().0[q]));
    let mut row = Row { x, coding: panel.coding, sums, product: PhantomData::<P> };
    each_block(isa, format, source, (&mut panel.scales, &mut panel.mins), &mut row);
    for (acc, sum) in acc.as_chunks_mut().0.iter_mut().zip(row.sums) {
        store_f32(acc, sum);
    }
}

/// Whether blocks are a few groups of activations with one scale each.
#[inline(always)]
fn whole_runs<F: Format>(_format: F) -> bool {
    F::COLS == GROUP * F::GROUPS && F::GROUPS <= MAX_RUNS
}

/// A row of activations, multiplied with codes as they come. Only [`multiply_row`] makes one.
struct Row<'a, P> {
    x: &'a [Rounded],
    coding: Coding,
    sums: [float32x4_t; QUARTERS],
    product: PhantomData<P>,
}

/// The integer dot products of runs of 32 columns with four rows. Only a [`Row`] makes one.
struct Dots<'a, P> {
    x: &'a [Rounded],
    dots: [int32x4_t; MAX_RUNS],
    product: PhantomData<P>,
}

impl<P: Product> Codes<Words4> for Dots<'_, P> {
    #[inline(always)]
    fn take(&mut self, line: usize, codes: Words4) {
        // Said like this, the one run of most formats stays in a register.
        let run = if self.x.len() == 1 { 0 } else { line / 8 };
        let x = all_codes(self.x[run].codes.as_chunks().0[line % 8]);
        // SAFETY: the instructions are there, or this would not have been made.
        self.dots[run] = unsafe { P::add::<0>(self.dots[run], codes.bytes(), x) };
    }
}

impl<P: Product> Taker<Words4> for Row<'_, P> {
    #[inline(always)]
    fn block<F: Format>(
        &mut self,
        format: F,
        rows: &Side<'_, Words4>,
        (i, lane): (usize, usize),
        (scales, mins): Numbers<'_>,
    ) {
        let x = &self.x[i * (F::COLS / GROUP)..][..F::COLS / GROUP];
        let (offset, has_min) = match self.coding.level {
            Level::Zero(zero) => (P::LESS - zero, false),
            Level::Min => (P::LESS, true),
        };
        let codes = Dots { x, dots: [all_s32(0); MAX_RUNS], product: PhantomData::<P> };
        let mut out = Out { codes, scales, mins, lane };
        format.block(rows, i * F::BYTES, &mut out);
        let quarter = lane / 4;
        let mut sum = self.sums[quarter];
        for (run, group) in x.iter().enumerate() {
            // SAFETY: NEON is taken for granted by the target.
            let dot = unsafe { vaddq_s32(out.codes.dots[run], all_s32(offset * group.sum)) };
            let scales = load_f32(&out.scales[run].as_chunks().0[quarter]);
            let scale = multiply(scales, all_f32(group.scale));
            sum = multiply_add(float(dot), scale, sum);
            if has_min {
                let mins = load_f32(&out.mins[run].as_chunks().0[quarter]);
                sum = multiply_add(mins, all_f32(group.weighted), sum);
            }
        }
        self.sums[quarter] = sum;
    }
}
