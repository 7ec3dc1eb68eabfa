//! A convolution between two gates: a piece is some columns.

use std::ops::Range;

use backend::ShortConv;
use backend::ops::ConvWeights;

use super::Piece;
use super::convolve::{Columns, Run};
use super::walk::{Rule, Tile, TileRows};
use crate::simd::{ConvolutionEnd, OpKernels};
use crate::{BlockMut, Buf, Vector};

/// Columns of a piece; the last one may have fewer.
const COLS: usize = 256;

/// Pieces of a state.
pub(super) fn n_pieces(spec: &ShortConv) -> usize {
    spec.cols.div_ceil(COLS)
}

/// Sizes of a piece.
pub(super) fn piece(spec: &ShortConv) -> Piece {
    sizes(spec, spec.cols.min(COLS))
}

fn sizes(spec: &ShortConv, cols: usize) -> Piece {
    Piece { cols, rows: spec.taps - 1, heads: 0, strips: 0, strip: 0 }
}

/// A layer and what it works with.
pub(super) struct Gated<'a> {
    pub(super) ops: &'a OpKernels,
    pub(super) spec: &'a ShortConv,
    pub(super) weights: ConvWeights<'a, Vector>,
    pub(super) x: &'a Buf,
}

impl Rule for Gated<'_> {
    fn cols(&self, piece: usize) -> Range<usize> {
        piece * COLS..((piece + 1) * COLS).min(self.spec.cols)
    }

    fn tile(
        &self,
        piece: usize,
        rows: TileRows,
        state: &mut [f32],
        tile: &mut Tile,
        out: &mut BlockMut<'_>,
    ) {
        let cols = self.cols(piece);
        let sizes = sizes(self.spec, cols.len());
        let columns = Columns {
            ops: self.ops,
            weights: self.weights,
            all: self.spec.cols,
            runs: &[Run { first: cols.start, len: cols.len() }],
            end: ConvolutionEnd::Plain,
            piece: &sizes,
        };
        let part = |row: usize, part: usize| {
            &self.x.row(row)[part * self.spec.cols..][..self.spec.cols][cols.clone()]
        };
        columns.convolve(rows.n, &mut state[..sizes.window()], tile, |r, to| {
            let (before, values) = (part(rows.first + r, 0), part(rows.first + r, 2));
            for (to, (b, x)) in to.iter_mut().zip(before.iter().zip(values)) {
                *to = b * x;
            }
        });
        for (r, sums) in tile.convolved.chunks_exact(sizes.cols).enumerate() {
            let after = part(rows.first + r, 1);
            for (out, (c, sum)) in out.row(rows.out + r).iter_mut().zip(after.iter().zip(sums)) {
                *out = c * sum;
            }
        }
    }
}
