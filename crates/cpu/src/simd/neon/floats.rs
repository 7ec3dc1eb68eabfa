//! Products of a panel of floats with rows of activations, some rows at a time.

#![allow(clippy::needless_range_loop, reason = "one index walks registers and slices together")]

use super::codes::QUARTERS;
use super::registers::{add, all_f32, load_f32, multiply_add, store_f32};
use crate::pack::{FloatPanel, LANES};
use crate::rounded::GROUP;

/// Rows of activations that meet a panel together: 16 sums, four numbers of the panel and four of
/// the activations stay in registers.
const TILE: usize = 4;

/// See [`crate::simd::Kernels::dot_floats`].
pub(super) fn dot_floats(panel: &FloatPanel, x: &[f32], stride: usize, acc: &mut [[f32; LANES]]) {
    let row = |r: usize| &x[r * stride..][..panel.cols];
    let (tiles, rest) = acc.as_chunks_mut::<TILE>();
    for (i, acc) in tiles.iter_mut().enumerate() {
        tile::<TILE>(panel, std::array::from_fn(|r| row(i * TILE + r)), acc);
    }
    for (i, acc) in rest.iter_mut().enumerate() {
        tile::<1>(panel, [row(tiles.len() * TILE + i)], std::array::from_mut(acc));
    }
}

fn tile<const R: usize>(panel: &FloatPanel, x: [&[f32]; R], acc: &mut [[f32; LANES]; R]) {
    for (i, lines) in panel.values[..panel.cols].chunks(GROUP).enumerate() {
        let columns = x.map(|x| &x[i * GROUP..][..lines.len()]);
        let mut parts = [[all_f32(0.0); QUARTERS]; R];
        for (k, line) in lines.iter().enumerate() {
            for (q, w) in line.as_chunks().0.iter().enumerate() {
                let w = load_f32(w);
                for r in 0..R {
                    parts[r][q] = multiply_add(all_f32(columns[r][k]), w, parts[r][q]);
                }
            }
        }
        for (acc, parts) in acc.iter_mut().zip(parts) {
            for (acc, part) in acc.as_chunks_mut().0.iter_mut().zip(parts) {
                store_f32(acc, add(load_f32(acc), part));
            }
        }
    }
}
