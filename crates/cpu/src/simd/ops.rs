//! Kernels of the ops that are not linear layers: the table, and one body for each that the
//! compiler turns into vector code of every instruction set.
//!
//! Nothing here depends on how wide a vector is. Sums over columns go to sixteen lanes that are
//! added in a fixed tree; sums over keys, and the dot products of queries with keys, are one chain
//! of fused multiply-adds per number of the result. The last two have hand-made versions where they
//! pay, which the chains make equal by construction.

use std::ops::Range;

use backend::{Activation, BLOCK, NormGain, RopeLayout};

use crate::math;

/// One number per key of a block.
pub(crate) type BlockScores = [f32; BLOCK];

/// See [`OpKernels::add_values`].
type AddValues = fn(weights: &[BlockScores], seen: Range<usize>, values: &[u16], sums: &mut [f32]);

/// The inner loops of all ops but linear layers, for one instruction set.
pub(crate) struct OpKernels {
    /// `x = x / sqrt(mean(x^2) + eps) * gain`.
    pub(crate) normalize: fn(x: &mut [f32], gain: &[f32], kind: NormGain, eps: f32),
    /// `out = act(gate) * up`, all three of one length.
    pub(crate) glu: fn(act: Activation, gate: &[f32], up: &[f32], out: &mut [f32]),
    /// `x = cap * tanh(x / cap)`.
    pub(crate) soft_cap: fn(x: &mut [f32], cap: f32),
    /// Makes `x` its softmax.
    pub(crate) softmax: fn(x: &mut [f32]),
    /// Rotates the pairs of one head by `[cos | sin]`.
    pub(crate) rotate: fn(head: &mut [f32], layout: RopeLayout, angles: &[f32]),
    /// Dot products of some queries, one after the other in `q`, with the keys of a block, whose
    /// columns lie one after the other in `keys`, [`BLOCK`] f16 each.
    pub(crate) scores: fn(q: &[f32], keys: &[u16], out: &mut [BlockScores]),
    /// Turns the scores of the keys `seen` into weights relative to the greatest score so far, all
    /// others into zeros, and returns what earlier sums must be multiplied with.
    pub(crate) weigh: fn(&mut BlockScores, seen: Range<usize>, Scoring, &mut Running) -> f32,
    /// Adds the values `seen` of a block, weighted, to the sum of each query. `values` has one row
    /// per key, as long as one query's sum in `sums`: a multiple of eight.
    pub(crate) add_values: AddValues,
}

/// What happens to a score before the softmax.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scoring {
    /// Multiplied with first.
    pub(crate) scale: f32,
    /// Then bent towards this.
    pub(crate) soft_cap: Option<f32>,
}

/// The softmax of one query so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// The greatest score.
    pub(crate) max: f32,
    /// Sum of the weights relative to it.
    pub(crate) sum: f32,
}

impl Running {
    /// Before the first key.
    pub(crate) const START: Running = Running { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Lanes of a sum over columns.
const LANES: usize = 16;

/// Adds lanes `l` and `l + N / 2`, then those at half that distance, and so on.
#[inline(always)]
fn fold<const N: usize>(mut lanes: [f32; N], with: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = with(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
pub(super) fn normalize(x: &mut [f32], gain: &[f32], kind: NormGain, eps: f32) {
    assert_eq!(x.len(), gain.len(), "a norm has one gain per column");
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = x.mul_add(*x, *lane);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = x.mul_add(*x, *lane);
    }
    let mean_square = fold(lanes, |a, b| a + b) / x.len() as f32;
    let scale = 1.0 / (mean_square + eps).sqrt();
    match kind {
        NormGain::Stored => x.iter_mut().zip(gain).for_each(|(x, gain)| *x = *x * scale * gain),
        NormGain::OnePlus => {
            x.iter_mut().zip(gain).for_each(|(x, gain)| *x = *x * scale * (1.0 + gain));
        }
    }
}

#[inline(always)]
pub(super) fn glu(act: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match act {
        Activation::Silu => glu_by(math::silu, gate, up, out),
        Activation::GeluTanh => glu_by(math::gelu_tanh, gate, up, out),
        Activation::GeluErf => glu_by(math::gelu_erf, gate, up, out),
    }
}

#[inline(always)]
fn glu_by(act: impl Fn(f32) -> f32, gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = act(*gate) * up;
    }
}

#[inline(always)]
pub(super) fn soft_cap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * math::tanh(*x / cap);
    }
}

#[inline(always)]
pub(super) fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, greater);
    x.iter_mut().for_each(|x| *x = math::exp(*x - max));
    let mut lanes = [0.0f32; LANES];
    for x in x.chunks(LANES) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += x);
    }
    let sum = fold(lanes, |a, b| a + b);
    x.iter_mut().for_each(|x| *x /= sum);
}

#[inline(always)]
pub(super) fn rotate(head: &mut [f32], layout: RopeLayout, angles: &[f32]) {
    let pairs = angles.len() / 2;
    let (cos, sin) = angles.split_at(pairs);
    let turn =
        |x: f32, y: f32, cos: f32, sin: f32| (x.mul_add(cos, -(y * sin)), x.mul_add(sin, y * cos));
    match layout {
        RopeLayout::Halves => {
            let (first, second) = head[..2 * pairs].split_at_mut(pairs);
            for ((x, y), (cos, sin)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
                (*x, *y) = turn(*x, *y, *cos, *sin);
            }
        }
        RopeLayout::Interleaved => {
            let pairs = head[..2 * pairs].as_chunks_mut::<2>().0;
            for ([x, y], (cos, sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
                (*x, *y) = turn(*x, *y, *cos, *sin);
            }
        }
    }
}

#[inline(always)]
pub(super) fn weigh(
    scores: &mut BlockScores,
    seen: Range<usize>,
    scoring: Scoring,
    running: &mut Running,
) -> f32 {
    scores.iter_mut().for_each(|score| *score *= scoring.scale);
    if let Some(cap) = scoring.soft_cap {
        soft_cap(scores, cap);
    }
    for (key, score) in scores.iter_mut().enumerate() {
        let hidden = key < seen.start || key >= seen.end;
        *score = if hidden { f32::NEG_INFINITY } else { *score };
    }
    let max = greater(running.max, fold(*scores, greater));
    let correction = math::exp(running.max - max);
    scores.iter_mut().for_each(|score| *score = math::exp(*score - max));
    let sum = fold(*scores, |a, b| a + b);
    *running = Running { max, sum: running.sum.mul_add(correction, sum) };
    correction
}
