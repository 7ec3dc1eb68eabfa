//! Products of a panel of codes with rows of activations, some rows and some lanes at a time, as far
//! as registers go.

#![allow(clippy::needless_range_loop, reason = "one index walks registers and slices together")]

use std::arch::aarch64::*;

use super::products::Product;
use super::registers::{
    all_f32, all_s32, float, load_f32, load_s8, load_u8, multiply, multiply_add, store_f32,
};
use crate::pack::{CodePanel, Group, LANES, Level};
use crate::rounded::{GROUP, Rounded};

/// Registers that hold one line of a panel.
pub(super) const QUARTERS: usize = 4;
/// Rows of activations that meet a panel together. Half a line of sums, of dot products and of
/// codes, and the activations of each, take 22 of the 32 registers.
const TILE: usize = 4;

/// See [`crate::simd::Kernels::dot_codes`].
///
/// # Safety
/// The machine has the instructions of `P`, whose offset suits the panel's codes.
#[inline(always)]
pub(super) unsafe fn dot_codes<P: Product>(
    panel: &CodePanel,
    x: &[Rounded],
    stride: usize,
    acc: &mut [[f32; LANES]],
) {
    // SAFETY: by this function's contract.
    unsafe {
        match panel.coding.group {
            Group::Of32 => by_rows::<P, 8>(panel, x, stride, acc),
            Group::Of16 => by_rows::<P, 4>(panel, x, stride, acc),
        }
    }
}

/// # Safety
/// As [`dot_codes`].
#[inline(always)]
unsafe fn by_rows<P: Product, const STEPS: usize>(
    panel: &CodePanel,
    x: &[Rounded],
    stride: usize,
    acc: &mut [[f32; LANES]],
) {
    let n_groups = panel.cols / GROUP;
    let row = |r: usize| &x[r * stride..][..n_groups];
    let (tiles, rest) = acc.as_chunks_mut::<TILE>();
    for (i, acc) in tiles.iter_mut().enumerate() {
        let x = std::array::from_fn(|r| row(i * TILE + r));
        for first in [0, 2] {
            // SAFETY: by this function's contract, here and below.
            unsafe { tile::<P, TILE, 2, STEPS>(panel, x, first, acc) };
        }
    }
    let first = tiles.len() * TILE;
    let (pairs, single) = rest.as_chunks_mut::<2>();
    for acc in pairs.iter_mut() {
        // SAFETY: as above.
        unsafe { tile::<P, 2, QUARTERS, STEPS>(panel, [row(first), row(first + 1)], 0, acc) };
    }
    for acc in single {
        let x = [row(first + 2 * pairs.len())];
        // SAFETY: as above.
        unsafe { tile::<P, 1, QUARTERS, STEPS>(panel, x, 0, std::array::from_mut(acc)) };
    }
}

/// `R` rows of activations against `Q` quarters of a panel, from quarter `first` on. Its groups take
/// `STEPS` lines of codes.
///
/// # Safety
/// As [`dot_codes`].
#[inline(always)]
unsafe fn tile<P: Product, const R: usize, const Q: usize, const STEPS: usize>(
    panel: &CodePanel,
    x: [&[Rounded]; R],
    first: usize,
    acc: &mut [[f32; LANES]; R],
) {
    let parts = 8 / STEPS;
    let (offset, has_min) = match panel.coding.level {
        Level::Zero(zero) => (P::LESS - zero, false),
        Level::Min => (P::LESS, true),
    };
    let mut sums = [[all_f32(0.0); Q]; R];
    for r in 0..R {
        for q in 0..Q {
            sums[r][q] = load_f32(&acc[r].as_chunks().0[first + q]);
        }
    }
    for g in 0..panel.cols / GROUP {
        for part in 0..parts {
            let k = g * parts + part;
            let mut dots = [[all_s32(0); Q]; R];
            for r in 0..R {
                let (sum, _) = x[r][g].sums_of(panel.coding.group, part);
                dots[r] = [all_s32(offset * sum); Q];
            }
            let lines = panel.codes[k * STEPS..][..STEPS].as_chunks().0;
            for (j, lines) in lines.iter().enumerate() {
                let x = x.map(|x| load_s8(&x[g].codes.as_chunks().0[part + j]));
                // SAFETY: by this function's contract.
                unsafe { sixteen_columns::<P, R, Q>(lines, first, x, &mut dots) };
            }
            for q in 0..Q {
                let scales = load_f32(&panel.scales[k].as_chunks().0[first + q]);
                let mins = load_f32(&panel.mins[k].as_chunks().0[first + q]);
                for r in 0..R {
                    let scale = multiply(scales, all_f32(x[r][g].scale));
                    sums[r][q] = multiply_add(float(dots[r][q]), scale, sums[r][q]);
                    if has_min {
                        let (_, weighted) = x[r][g].sums_of(panel.coding.group, part);
                        sums[r][q] = multiply_add(mins, all_f32(weighted), sums[r][q]);
                    }
                }
            }
        }
    }
    for r in 0..R {
        for q in 0..Q {
            store_f32(&mut acc[r].as_chunks_mut().0[first + q], sums[r][q]);
        }
    }
}

/// # Safety
/// As [`dot_codes`].
#[inline(always)]
unsafe fn sixteen_columns<P: Product, const R: usize, const Q: usize>(
    lines: &[[u8; 4 * LANES]; 4],
    first: usize,
    x: [int8x16_t; R],
    dots: &mut [[int32x4_t; Q]; R],
) {
    // SAFETY: by this function's contract.
    unsafe {
        four_columns::<P, R, Q, 0>(&lines[0], first, x, dots);
        four_columns::<P, R, Q, 1>(&lines[1], first, x, dots);
        four_columns::<P, R, Q, 2>(&lines[2], first, x, dots);
        four_columns::<P, R, Q, 3>(&lines[3], first, x, dots);
    }
}

/// # Safety
/// As [`dot_codes`].
#[inline(always)]
unsafe fn four_columns<P: Product, const R: usize, const Q: usize, const J: i32>(
    line: &[u8; 4 * LANES],
    first: usize,
    x: [int8x16_t; R],
    dots: &mut [[int32x4_t; Q]; R],
) {
    for q in 0..Q {
        let w = load_u8(&line.as_chunks().0[first + q]);
        for r in 0..R {
            // SAFETY: by this function's contract.
            dots[r][q] = unsafe { P::add::<J>(dots[r][q], w, x[r]) };
        }
    }
}
