//! The gated delta rule: a piece is a key head with the value heads that go with it.

use std::ops::Range;

use backend::ops::{DeltaRows, DeltaWeights};
use backend::{Activation, DeltaPlace, DeltaRule, GatedDelta, NormGain};

use super::convolve::{Columns, Run};
use super::walk::{Rule, Tile, TileRows};
use super::{Piece, strip_cols, strips};
use crate::simd::{ConvolutionEnd, Decay, DeltaStep, OpKernels, STATE_COLS, Write};
use crate::{BlockMut, Buf, Vector, math};

/// Sizes of a piece.
pub(super) fn piece(spec: &GatedDelta) -> Piece {
    assert!(spec.v_heads.is_multiple_of(spec.k_heads), "a sound layer");
    let one = spec.rule == DeltaRule::PerHead || spec.group() == 1;
    assert!(one, "with a decay for each row of the state there is one value head per key head");
    Piece {
        cols: 2 * spec.k_dim + spec.group() * spec.v_dim,
        rows: spec.taps - 1,
        heads: spec.group(),
        strips: strips(spec.v_dim),
        strip: spec.k_dim * STATE_COLS,
    }
}

/// Puts the value heads of a row, which lie by key head, in turn: turns a table of heads over, in
/// place, one cycle of places after the other.
pub(super) fn in_turn(row: &mut [f32], spec: &GatedDelta) {
    // What comes to a place lies here.
    let from = |at: usize| at % spec.k_heads * spec.group() + at / spec.k_heads;
    for first in 0..spec.v_heads {
        let mut at = from(first);
        while at > first {
            at = from(at);
        }
        // Every cycle is taken from its lowest place.
        if at < first {
            continue;
        }
        let mut to = first;
        while from(to) != first {
            let next = from(to);
            let (low, high) = row.split_at_mut(to.max(next) * spec.v_dim);
            let low = &mut low[to.min(next) * spec.v_dim..][..spec.v_dim];
            low.swap_with_slice(&mut high[..spec.v_dim]);
            to = next;
        }
    }
}

/// A layer and what it works with.
pub(super) struct Delta<'a> {
    pub(super) ops: &'a OpKernels,
    pub(super) spec: &'a GatedDelta,
    pub(super) weights: DeltaWeights<'a, Vector>,
    pub(super) x: DeltaRows<'a, Buf>,
    pub(super) piece: Piece,
}

impl Rule for Delta<'_> {
    fn cols(&self, head: usize) -> Range<usize> {
        let cols = self.spec.group() * self.spec.v_dim;
        head * cols..(head + 1) * cols
    }

    fn tile(
        &self,
        head: usize,
        rows: TileRows,
        state: &mut [f32],
        tile: &mut Tile,
        out: &mut BlockMut<'_>,
    ) {
        let (spec, piece, place) = (self.spec, &self.piece, self.spec.place(head));
        let (window, matrices) = state.split_at_mut(piece.window());
        self.convolve(head, &place, rows, window, tile);
        let v_len = piece.strips * STATE_COLS;
        tile.read.resize(rows.n * v_len, 0.0);
        for (i, strips) in matrices.chunks_exact_mut(piece.strips * piece.strip).enumerate() {
            for (s, strip) in strips.chunks_exact_mut(piece.strip).enumerate() {
                self.strip(i, s, tile, strip.as_chunks_mut().0);
            }
            for (r, read) in tile.read.chunks_exact_mut(v_len).enumerate() {
                let read = &mut read[..spec.v_dim];
                (self.ops.normalize)(read, &self.weights.gain.0, NormGain::Stored, spec.eps);
                let z = &self.x.z.row(rows.first + r)[place.z.clone()];
                let z = &z[i * spec.v_dim..][..spec.v_dim];
                let out = &mut out.row(rows.out + r)[i * spec.v_dim..][..spec.v_dim];
                match spec.rule {
                    DeltaRule::PerHead => (self.ops.glu)(Activation::Silu, z, read, out),
                    DeltaRule::PerChannel => {
                        out.copy_from_slice(read);
                        (self.ops.gate)(out, z);
                    }
                }
            }
        }
    }
}

impl Delta<'_> {
    /// Everything of a tile that needs no state but the rows to look back at.
    fn convolve(
        &self,
        head: usize,
        place: &DeltaPlace,
        rows: TileRows,
        window: &mut [f32],
        tile: &mut Tile,
    ) {
        let (spec, v_len) = (self.spec, self.spec.group() * self.spec.v_dim);
        // Where q, k and v of this head are in a row of all heads' `[q | k | v]`.
        let runs = [(0, spec.k_dim), (spec.k_cols(), spec.k_dim), (2 * spec.k_cols(), v_len)];
        let runs = runs.map(|(start, len)| Run { first: start + head * len, len });
        let columns = Columns {
            ops: self.ops,
            weights: self.weights.conv,
            all: spec.conv_cols(),
            runs: &runs,
            end: ConvolutionEnd::Silu,
            piece: &self.piece,
        };
        columns.convolve(rows.n, window, tile, |r, to| {
            let row = self.x.qkv.row(rows.first + r);
            let (q, kv) = to.split_at_mut(spec.k_dim);
            let (k, v) = kv.split_at_mut(spec.k_dim);
            q.copy_from_slice(&row[place.q.clone()]);
            k.copy_from_slice(&row[place.k.clone()]);
            v.copy_from_slice(&row[place.v.clone()]);
        });
        self.set_gates(head, place, rows, tile);
        let inverse = 1.0 / (spec.k_dim as f32).sqrt();
        for (gain, length) in tile.gains.iter_mut().zip([inverse * inverse, inverse]) {
            gain.clear();
            gain.resize(spec.k_dim, length);
        }
        for qkv in tile.convolved.chunks_exact_mut(self.piece.cols) {
            let [q_gain, k_gain] = &tile.gains;
            let (q, kv) = qkv.split_at_mut(spec.k_dim);
            let eps = 1e-6 / spec.k_dim as f32;
            (self.ops.normalize)(q, q_gain, NormGain::Stored, eps);
            (self.ops.normalize)(&mut kv[..spec.k_dim], k_gain, NormGain::Stored, eps);
        }
    }

    /// Decays and write strengths.
    fn set_gates(&self, head: usize, place: &DeltaPlace, rows: TileRows, tile: &mut Tile) {
        let (spec, group) = (self.spec, self.spec.group());
        tile.gates.clear();
        tile.decays.clear();
        for row in rows.first..rows.first + rows.n {
            let strengths = &self.x.qkv.row(row)[place.b.clone()];
            let a = &self.x.a.row(row)[place.a.clone()];
            match spec.rule {
                DeltaRule::PerHead => {
                    let both = a.iter().zip(strengths).enumerate();
                    let gate = |(i, (a, b)): (usize, (&f32, &f32))| {
                        [self.decay(head * group + i, *a), math::sigmoid(*b)]
                    };
                    tile.gates.extend(both.map(gate));
                }
                DeltaRule::PerChannel => {
                    tile.gates.extend(strengths.iter().map(|b| [0.0, math::sigmoid(*b)]));
                    let first = tile.decays.len();
                    tile.decays.extend_from_slice(a);
                    let bias = &self.weights.dt_bias.0[head * spec.k_dim..][..spec.k_dim];
                    let rate = math::exp(self.weights.a_log.0[head]);
                    (self.ops.decays)(&mut tile.decays[first..], bias, rate);
                }
            }
        }
    }

    /// What is left of the state of a value head. In f64, because it is raised to the power of the
    /// distance.
    fn decay(&self, head: usize, a: f32) -> f32 {
        let dt = math::wide_softplus(a + self.weights.dt_bias.0[head]);
        libm::exp(-libm::exp(f64::from(self.weights.a_log.0[head])) * dt) as f32
    }

    /// Takes the tile through strip `s` of value head `i` of this key head.
    fn strip(&self, i: usize, s: usize, tile: &mut Tile, strip: &mut [[f32; STATE_COLS]]) {
        let (spec, piece) = (self.spec, &self.piece);
        let cols = strip_cols(s, spec.v_dim);
        let v_len = piece.strips * STATE_COLS;
        let mut padded = [0.0; STATE_COLS];
        let rows = tile.convolved.chunks_exact(piece.cols).zip(tile.read.chunks_exact_mut(v_len));
        for (r, (qkv, read)) in rows.enumerate() {
            let (q, kv) = qkv.split_at(spec.k_dim);
            let (k, v) = kv.split_at(spec.k_dim);
            padded[..cols.len()].copy_from_slice(&v[i * spec.v_dim..][cols.clone()]);
            let [decay, beta] = tile.gates[r * spec.group() + i];
            let decay = match spec.rule {
                DeltaRule::PerHead => Decay::All(decay),
                DeltaRule::PerChannel => Decay::Rows(&tile.decays[r * spec.k_dim..][..spec.k_dim]),
            };
            let write = Write::Difference(beta);
            let step = DeltaStep { q, k, v: &padded, decay, write };
            (self.ops.delta)(strip, step, &mut read.as_chunks_mut().0[s]);
        }
    }
}
