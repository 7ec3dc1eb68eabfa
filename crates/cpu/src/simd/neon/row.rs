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
    if !is_one_group(format) {
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

/// Whether a block is one group of activations, with one scale.
#[inline(always)]
fn is_one_group<F: Format>(_format: F) -> bool {
    F::COLS == GROUP && F::GROUPS == 1
}

/// A row of activations, multiplied with codes as they come. Only [`multiply_row`] makes one.
struct Row<'a, P> {
    x: &'a [Rounded],
    coding: Coding,
    sums: [float32x4_t; QUARTERS],
    product: PhantomData<P>,
}

/// The integer dot products of a group with four rows. Only a [`Row`] makes one.
struct Dots<'a, P> {
    x: &'a Rounded,
    dots: int32x4_t,
    product: PhantomData<P>,
}

impl<P: Product> Codes<Words4> for Dots<'_, P> {
    #[inline(always)]
    fn take(&mut self, line: usize, codes: Words4) {
        let x = all_codes(self.x.codes.as_chunks().0[line]);
        // SAFETY: the instructions are there, or this would not have been made.
        self.dots = unsafe { P::add::<0>(self.dots, codes.bytes(), x) };
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
        let x = &self.x[i];
        let (offset, has_min) = match self.coding.level {
            Level::Zero(zero) => (P::LESS - zero, false),
            Level::Min => (P::LESS, true),
        };
        let codes = Dots { x, dots: all_s32(0), product: PhantomData::<P> };
        let mut out = Out { codes, scales, mins, lane };
        format.block(rows, i * F::BYTES, &mut out);
        let quarter = lane / 4;
        // SAFETY: NEON is taken for granted by the target.
        let dot = unsafe { vaddq_s32(out.codes.dots, all_s32(offset * x.sum)) };
        let scales = load_f32(&out.scales[0].as_chunks().0[quarter]);
        let scale = multiply(scales, all_f32(x.scale));
        let mut sum = multiply_add(float(dot), scale, self.sums[quarter]);
        if has_min {
            let mins = load_f32(&out.mins[0].as_chunks().0[quarter]);
            sum = multiply_add(mins, all_f32(x.weighted), sum);
        }
        self.sums[quarter] = sum;
    }
}
