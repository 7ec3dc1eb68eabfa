//! The selective state space: a piece is some heads of one group, with what the group writes and reads
//! by. That is convolved by every piece for itself, which costs little and saves waiting.

use std::ops::Range;

use backend::ops::Mamba2Weights;
use backend::{Activation, Mamba2, MambaGate, NormGain};

use super::convolve::{Columns, Run};
use super::walk::{Rule, Tile, TileRows};
use super::{Piece, strip_cols, strips};
use crate::simd::{ConvolutionEnd, Decay, DeltaStep, OpKernels, STATE_COLS, Write};
use crate::{BlockMut, Buf, Vector, math};

/// Heads of a piece, at most: many enough that what they share is little beside their own.
const HEADS: usize = 4;

/// Heads of a piece.
fn heads(spec: &Mamba2) -> usize {
    (1..=HEADS).rev().find(|n| spec.group().is_multiple_of(*n)).unwrap_or(1)
}

/// Pieces of a state.
pub(super) fn n_pieces(spec: &Mamba2) -> usize {
    spec.heads / heads(spec)
}

/// Sizes of a piece.
pub(super) fn piece(spec: &Mamba2) -> Piece {
    assert!(spec.heads.is_multiple_of(spec.groups), "a sound layer");
    let heads = heads(spec);
    Piece {
        cols: heads * spec.head_dim + 2 * spec.state,
        rows: spec.taps - 1,
        heads,
        strips: strips(spec.head_dim),
        strip: spec.state * STATE_COLS,
    }
}

/// A layer and what it works with.
pub(super) struct Ssm<'a> {
    pub(super) ops: &'a OpKernels,
    pub(super) spec: &'a Mamba2,
    pub(super) weights: Mamba2Weights<'a, Vector>,
    pub(super) x: &'a Buf,
    pub(super) piece: Piece,
}

impl Rule for Ssm<'_> {
    fn cols(&self, piece: usize) -> Range<usize> {
        let cols = self.piece.heads * self.spec.head_dim;
        piece * cols..(piece + 1) * cols
    }

    fn tile(
        &self,
        piece: usize,
        rows: TileRows,
        state: &mut [f32],
        tile: &mut Tile,
        out: &mut BlockMut<'_>,
    ) {
        let (spec, sizes) = (self.spec, &self.piece);
        let (window, matrices) = state.split_at_mut(sizes.window());
        self.convolve(piece, rows, window, tile);
        let len = sizes.strips * STATE_COLS;
        tile.read.resize(rows.n * len, 0.0);
        for (i, strips) in matrices.chunks_exact_mut(sizes.strips * sizes.strip).enumerate() {
            for (s, strip) in strips.chunks_exact_mut(sizes.strip).enumerate() {
                self.strip(i, s, tile, strip.as_chunks_mut().0);
            }
            let skip = self.weights.skip.0[piece * sizes.heads + i];
            let x = tile.convolved.chunks_exact(sizes.cols);
            for (r, (read, x)) in tile.read.chunks_exact(len).zip(x).enumerate() {
                let x = &x[i * spec.head_dim..][..spec.head_dim];
                let out = &mut out.row(rows.out + r)[i * spec.head_dim..][..spec.head_dim];
                for (out, (read, x)) in out.iter_mut().zip(read.iter().zip(x)) {
                    *out = x.mul_add(skip, *read);
                }
            }
        }
    }
}

impl Ssm<'_> {
    /// Everything of a tile that needs no state but the rows to look back at.
    fn convolve(&self, piece: usize, rows: TileRows, window: &mut [f32], tile: &mut Tile) {
        let (spec, sizes) = (self.spec, &self.piece);
        let group = piece * sizes.heads / spec.group();
        let x = Run { first: self.cols(piece).start, len: sizes.heads * spec.head_dim };
        let by = |kind: usize| Run {
            first: spec.inner() + (kind * spec.groups + group) * spec.state,
            len: spec.state,
        };
        let runs = [x, by(0), by(1)];
        let columns = Columns {
            ops: self.ops,
            weights: self.weights.conv,
            all: spec.conv_cols(),
            runs: &runs,
            end: ConvolutionEnd::Silu,
            piece: sizes,
        };
        columns.convolve(rows.n, window, tile, |r, to| {
            let row = &self.x.row(rows.first + r)[spec.inner()..];
            let mut at = 0;
            for Run { first, len } in runs {
                to[at..at + len].copy_from_slice(&row[first..first + len]);
                at += len;
            }
        });
        tile.gates.clear();
        for row in rows.first..rows.first + rows.n {
            let steps = &self.x.row(row)[spec.inner() + spec.conv_cols()..];
            let own = piece * sizes.heads..(piece + 1) * sizes.heads;
            tile.gates.extend(own.map(|head| self.step(head, steps[head])));
        }
    }

    /// What is left of the state of a head, and how much is written. In f64, because it is raised to
    /// the power of the distance.
    fn step(&self, head: usize, dt: f32) -> [f32; 2] {
        let [low, high] = self.spec.dt_limit.map(f64::from);
        let dt = math::wide_softplus(self.spec.scales.dt * dt + self.weights.dt_bias.0[head]);
        let dt = dt.max(low).min(high);
        let decay = libm::exp(-libm::exp(f64::from(self.weights.a_log.0[head])) * dt);
        [decay as f32, dt as f32]
    }

    /// Takes the tile through strip `s` of head `i` of this piece.
    fn strip(&self, i: usize, s: usize, tile: &mut Tile, strip: &mut [[f32; STATE_COLS]]) {
        let (spec, sizes) = (self.spec, &self.piece);
        let cols = strip_cols(s, spec.head_dim);
        let len = sizes.strips * STATE_COLS;
        let mut padded = [0.0; STATE_COLS];
        let rows = tile.convolved.chunks_exact(sizes.cols).zip(tile.read.chunks_exact_mut(len));
        for (r, (row, read)) in rows.enumerate() {
            let (x, by) = row.split_at(sizes.heads * spec.head_dim);
            let (k, q) = by.split_at(spec.state);
            let [decay, dt] = tile.gates[r * sizes.heads + i];
            for (v, x) in padded.iter_mut().zip(&x[i * spec.head_dim..][cols.clone()]) {
                *v = dt * x;
            }
            let (decay, write) = (Decay::All(decay), Write::Values);
            let step = DeltaStep { q, k, v: &padded, decay, write };
            (self.ops.delta)(strip, step, &mut read.as_chunks_mut().0[s]);
        }
    }

    /// Gates and norms what came out for row `row`.
    pub(super) fn gate(&self, row: usize, out: &mut [f32]) {
        let z = &self.x.row(row)[..self.spec.inner()];
        let cols = self.spec.group() * self.spec.head_dim;
        let groups = out.chunks_exact_mut(cols).zip(z.chunks_exact(cols)).enumerate();
        for (group, (out, z)) in groups {
            let norm = |out: &mut [f32], eps| {
                let gain = self.weights.gain.map_or(&[][..], |gain| &gain.0);
                let gain = &gain[group * cols..][..cols];
                (self.ops.normalize)(out, gain, NormGain::Stored, eps);
            };
            match self.spec.gate {
                MambaGate::Bare => self.multiply(out, z),
                MambaGate::ThenNorm(eps) => {
                    self.multiply(out, z);
                    norm(out, eps);
                }
                MambaGate::AfterNorm(eps) => {
                    norm(out, eps);
                    self.multiply(out, z);
                }
            }
        }
    }

    /// `out *= silu(z)`, `z` scaled, some columns at a time.
    fn multiply(&self, out: &mut [f32], z: &[f32]) {
        let mut gates = [0.0; STATE_COLS];
        let mut values = [0.0; STATE_COLS];
        for (out, z) in out.chunks_mut(STATE_COLS).zip(z.chunks(STATE_COLS)) {
            let (gates, values) = (&mut gates[..z.len()], &mut values[..z.len()]);
            gates.iter_mut().zip(z).for_each(|(gate, z)| *gate = self.spec.scales.z * z);
            values.copy_from_slice(out);
            (self.ops.glu)(Activation::Silu, gates, values, out);
        }
    }
}
