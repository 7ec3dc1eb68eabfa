//! One key head of one sequence at work, with the value heads that go with it.
//!
//! Rows come in tiles: each is convolved, then goes through the state. A tile ends where a state is
//! to be kept. Nothing else depends on where tiles end.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{PoisonError, RwLockWriteGuard};

use backend::ops::DeltaWeights;
use backend::{Activation, DeltaPlace, GatedDelta, NormGain};

use super::States;
use crate::memory::StagedSpan;
use crate::simd::{Convolution, DeltaStep, OpKernels, STATE_COLS};
use crate::{BlockMut, Buf, Staged, Vector, math};

/// Rows of a tile, at most: a strip of the state is loaded once for all of them.
const TILE: usize = 32;

/// What one thread computes with. Grows to what the largest layer needs, then stays.
#[derive(Default)]
struct Scratch {
    /// The state, where the last row's is not to be kept.
    state: Vec<f32>,
    tile: Tile,
}

/// Some rows on their way through a head.
#[derive(Default)]
struct Tile {
    /// `[q | k | v]` as they come, the rows that the convolution looks back at before them.
    fresh: Vec<f32>,
    /// `[q | k | v]` convolved, q and k normed.
    qkv: Vec<f32>,
    /// Decay and write strength of every row and value head.
    gates: Vec<[f32; 2]>,
    /// What is read for one value head, padded to whole strips.
    read: Vec<f32>,
    /// Gains that give q and k their length.
    gains: [Vec<f32>; 2],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A head and what it works with.
pub(super) struct Head<'a> {
    pub(super) ops: &'a OpKernels,
    pub(super) spec: &'a GatedDelta,
    pub(super) weights: DeltaWeights<'a, Vector>,
    pub(super) states: &'a States,
    /// Which key head.
    pub(super) head: usize,
    /// Its columns of a row.
    pub(super) place: DeltaPlace,
    pub(super) x: &'a Buf,
}

impl Head<'_> {
    /// All rows of a span.
    pub(super) fn run(&self, span: &StagedSpan, batch: &Staged, mut out: BlockMut<'_>) {
        SCRATCH.with_borrow_mut(|Scratch { state: own, tile }| {
            let n = span.rows.len();
            let mut kept = batch.states_out(span);
            // The state that the last row leaves behind comes into being where it is to be.
            let mut place = match kept {
                [before @ .., (after, slot)] if after + 1 == n => {
                    kept = before;
                    Some(self.piece_mut(*slot))
                }
                _ => None,
            };
            let state = match &mut place {
                Some(place) => &mut place[..],
                None => {
                    own.resize(self.states.piece.len, 0.0);
                    &mut own[..]
                }
            };
            match span.state_in {
                Some(slot) => {
                    let piece = self.states.piece(slot, self.head).read();
                    state.copy_from_slice(&piece.unwrap_or_else(PoisonError::into_inner));
                }
                None => state.fill(0.0),
            }
            self.size(tile);
            let mut first = 0;
            while first < n {
                let stop = kept.first().map_or(n, |(after, _)| after + 1);
                let end = stop.min(first + TILE);
                self.tile(span.rows.start, first..end, tile, state, &mut out);
                if let [(_, slot), rest @ ..] = kept
                    && end == stop
                {
                    self.piece_mut(*slot).copy_from_slice(state);
                    kept = rest;
                }
                first = end;
            }
        });
    }

    fn piece_mut(&self, slot: u32) -> RwLockWriteGuard<'_, Vec<f32>> {
        self.states.piece(slot, self.head).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for the largest tile.
    fn size(&self, tile: &mut Tile) {
        let (spec, piece) = (self.spec, &self.states.piece);
        tile.fresh.resize(piece.window + TILE * piece.cols, 0.0);
        tile.qkv.resize(TILE * piece.cols, 0.0);
        tile.gates.resize(TILE * spec.group(), [0.0; 2]);
        tile.read.resize(TILE * piece.strips * STATE_COLS, 0.0);
        let inverse = 1.0 / (spec.k_dim as f32).sqrt();
        for (gain, length) in tile.gains.iter_mut().zip([inverse * inverse, inverse]) {
            gain.clear();
            gain.resize(spec.k_dim, length);
        }
    }

    /// The rows `rows` of a span whose row 0 is row `base` of the batch.
    fn tile(
        &self,
        base: usize,
        rows: Range<usize>,
        tile: &mut Tile,
        state: &mut [f32],
        out: &mut BlockMut<'_>,
    ) {
        let (spec, piece, n) = (self.spec, &self.states.piece, rows.len());
        let (window, matrices) = state.split_at_mut(piece.window);
        self.convolve(base + rows.start, n, tile, window);
        let v_len = piece.strips * STATE_COLS;
        for (i, strips) in matrices.chunks_exact_mut(piece.strips * piece.strip).enumerate() {
            for (s, strip) in strips.chunks_exact_mut(piece.strip).enumerate() {
                self.strip(i, s, n, tile, strip.as_chunks_mut().0);
            }
            for (r, read) in tile.read.chunks_exact_mut(v_len).take(n).enumerate() {
                let read = &mut read[..spec.v_dim];
                (self.ops.normalize)(read, &self.weights.gain.0, NormGain::Stored, spec.eps);
                let z = &self.x.row(base + rows.start + r)[self.place.z.clone()];
                let z = &z[i * spec.v_dim..][..spec.v_dim];
                let out = &mut out.row(rows.start + r)[i * spec.v_dim..][..spec.v_dim];
                (self.ops.glu)(Activation::Silu, z, read, out);
            }
        }
    }

    /// Everything of a tile that needs no state but the rows to look back at.
    fn convolve(&self, first: usize, n: usize, tile: &mut Tile, window: &mut [f32]) {
        let (spec, piece, place) = (self.spec, &self.states.piece, &self.place);
        let group = spec.group();
        let fresh = &mut tile.fresh[..piece.window + n * piece.cols];
        fresh[..piece.window].copy_from_slice(window);
        let lengths = [spec.k_dim, spec.k_dim, group * spec.v_dim];
        // Where q, k and v of this head are in a row of all heads' `[q | k | v]`.
        let all = [0, spec.k_cols(), 2 * spec.k_cols()];
        for (r, to) in fresh[piece.window..].chunks_exact_mut(piece.cols).enumerate() {
            let row = self.x.row(first + r);
            let (q, kv) = to.split_at_mut(spec.k_dim);
            let (k, v) = kv.split_at_mut(spec.k_dim);
            q.copy_from_slice(&row[place.q.clone()]);
            k.copy_from_slice(&row[place.k.clone()]);
            v.copy_from_slice(&row[place.v.clone()]);
            let gates = row[place.a.clone()].iter().zip(&row[place.b.clone()]);
            for (i, (a, b)) in gates.enumerate() {
                let head = self.head * group + i;
                tile.gates[r * group + i] = [self.decay(head, *a), math::sigmoid(*b)];
            }
        }
        for (r, qkv) in tile.qkv.chunks_exact_mut(piece.cols).take(n).enumerate() {
            let mut at = 0;
            for (start, len) in all.into_iter().zip(lengths) {
                let convolution = Convolution {
                    rows: &fresh[r * piece.cols + at..],
                    stride: piece.cols,
                    taps: &self.weights.conv.0[start + self.head * len..],
                    tap_stride: spec.conv_cols(),
                    n_taps: spec.taps,
                };
                (self.ops.convolve)(convolution, &mut qkv[at..at + len]);
                at += len;
            }
            let [q_gain, k_gain] = &tile.gains;
            let (q, kv) = qkv.split_at_mut(spec.k_dim);
            let eps = 1e-6 / spec.k_dim as f32;
            (self.ops.normalize)(q, q_gain, NormGain::Stored, eps);
            (self.ops.normalize)(&mut kv[..spec.k_dim], k_gain, NormGain::Stored, eps);
        }
        window.copy_from_slice(&fresh[n * piece.cols..]);
    }

    /// What is left of the state of a value head. In f64, because it is raised to the power of the
    /// distance.
    fn decay(&self, head: usize, a: f32) -> f32 {
        let x = f64::from(a + self.weights.dt_bias.0[head]);
        let softplus = x.max(0.0) + libm::log1p(libm::exp(-x.abs()));
        libm::exp(-libm::exp(f64::from(self.weights.a_log.0[head])) * softplus) as f32
    }

    /// Takes the tile through strip `s` of value head `i` of this key head.
    fn strip(
        &self,
        i: usize,
        s: usize,
        n: usize,
        tile: &mut Tile,
        strip: &mut [[f32; STATE_COLS]],
    ) {
        let (spec, piece) = (self.spec, &self.states.piece);
        let cols = s * STATE_COLS..((s + 1) * STATE_COLS).min(spec.v_dim);
        let v_len = piece.strips * STATE_COLS;
        let mut padded = [0.0; STATE_COLS];
        let rows = tile.qkv.chunks_exact(piece.cols).zip(tile.read.chunks_exact_mut(v_len));
        for (r, (qkv, read)) in rows.take(n).enumerate() {
            let (q, kv) = qkv.split_at(spec.k_dim);
            let (k, v) = kv.split_at(spec.k_dim);
            padded[..cols.len()].copy_from_slice(&v[i * spec.v_dim..][cols.clone()]);
            let [decay, beta] = tile.gates[r * spec.group() + i];
            let step = DeltaStep { q, k, v: &padded, decay, beta };
            (self.ops.delta)(strip, step, &mut read.as_chunks_mut().0[s]);
        }
    }
}
