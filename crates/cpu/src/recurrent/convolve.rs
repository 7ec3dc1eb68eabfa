//! The convolution of some columns of a tile of rows, and the rows that it looks back at.

use backend::ops::ConvWeights;

use super::Piece;
use super::walk::Tile;
use crate::Vector;
use crate::simd::{Convolution, ConvolutionEnd, OpKernels};

/// Consecutive columns of a piece that are consecutive in the weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first one, in the weights.
    pub(super) first: usize,
    /// How many.
    pub(super) len: usize,
}

/// A convolution as a piece needs it.
pub(super) struct Columns<'a> {
    pub(super) ops: &'a OpKernels,
    pub(super) weights: ConvWeights<'a, Vector>,
    /// Columns of a row of the weights.
    pub(super) all: usize,
    /// The piece's columns, in order.
    pub(super) runs: &'a [Run],
    pub(super) end: ConvolutionEnd,
    pub(super) piece: &'a Piece,
}

impl Columns<'_> {
    /// Makes `tile.convolved` of `n` rows, of which `fill(r, columns)` says what they are, and of
    /// those before them in `window`, which then has those before the row after the last one.
    pub(super) fn convolve(
        &self,
        n: usize,
        window: &mut [f32],
        tile: &mut Tile,
        mut fill: impl FnMut(usize, &mut [f32]),
    ) {
        let Piece { cols, rows: back, .. } = *self.piece;
        tile.fresh.resize(window.len() + n * cols, 0.0);
        tile.convolved.resize(n * cols, 0.0);
        tile.fresh[..window.len()].copy_from_slice(window);
        let fresh = tile.fresh[window.len()..].chunks_exact_mut(cols);
        fresh.enumerate().for_each(|(r, columns)| fill(r, columns));
        for (r, out) in tile.convolved.chunks_exact_mut(cols).enumerate() {
            let mut at = 0;
            for Run { first, len } in self.runs {
                let convolution = Convolution {
                    rows: &tile.fresh[r * cols + at..],
                    stride: cols,
                    taps: &self.weights.taps.0[*first..],
                    tap_stride: self.all,
                    n_taps: back + 1,
                    bias: self.weights.bias.map(|bias| &bias.0[*first..]),
                    end: self.end,
                };
                (self.ops.convolve)(convolution, &mut out[at..at + len]);
                at += len;
            }
        }
        window.copy_from_slice(&tile.fresh[n * cols..]);
    }
}
