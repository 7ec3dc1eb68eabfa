//! Kernels of latent attention, once for every instruction set.
//!
//! Keys lie by row here, for their first columns are the values too; so scores are sums over columns,
//! which go to sixteen lanes, as those of a norm do. Not here: what latent attention has in common
//! with any other.

use super::ops::{LANES, fold};
use crate::pack::{CodePanel, FloatPanel, Group, Level};
use crate::rounded::GROUP;

/// See [`super::OpKernels::widen_codes`].
#[inline(always)]
pub(super) fn widen_codes(panel: &CodePanel, out: &mut FloatPanel) {
    out.cols = panel.cols;
    let group = match panel.coding.group {
        Group::Of32 => GROUP,
        Group::Of16 => GROUP / 2,
    };
    let groups = out.values[..panel.cols].chunks_exact_mut(group);
    let codes = panel.codes.chunks_exact(group / 4);
    for (((out, codes), scales), mins) in groups.zip(codes).zip(&panel.scales).zip(&panel.mins) {
        for (out, codes) in out.as_chunks_mut::<4>().0.iter_mut().zip(codes) {
            for (i, out) in out.iter_mut().enumerate() {
                for (lane, out) in out.iter_mut().enumerate() {
                    // As one word per lane, which is how vectors of them are taken apart.
                    let word = &codes[4 * lane..4 * lane + 4];
                    let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    let code = (word >> (8 * i) & 0xff) as i32;
                    *out = match panel.coding.level {
                        Level::Zero(zero) => scales[lane] * (code - zero) as f32,
                        Level::Min => scales[lane] * code as f32 + mins[lane],
                    };
                }
            }
        }
    }
}

/// See [`super::OpKernels::combine`].
#[inline(always)]
pub(super) fn combine(x: &[f32], panels: &[FloatPanel], out: &mut [f32]) {
    let x = x.as_chunks::<LANES>().0;
    assert_eq!(x.len(), panels.len(), "a number for each lane");
    for (column, out) in out.iter_mut().enumerate() {
        let mut lanes = [0.0f32; LANES];
        for (x, panel) in x.iter().zip(panels) {
            for ((lane, x), w) in lanes.iter_mut().zip(x).zip(&panel.values[column]) {
                *lane = x.mul_add(*w, *lane);
            }
        }
        *out = fold(lanes, |a, b| a + b);
    }
}
