//! Kernels of the ops that are not linear layers: the table, and one body for each that the
//! compiler turns into vector code of every instruction set.
//!
//! Nothing here depends on how wide a vector is. Sums over columns go to sixteen lanes that are
//! added in a fixed tree, sums of weights to one lane for every key of a block; weighted sums of
//! values, and the dot products of queries with keys, are one chain of fused multiply-adds per
//! number of the result. The last two have hand-made versions where they pay, which the chains make
//! equal by construction.

use std::ops::Range;

use backend::{Activation, BLOCK, NormGain, RopeLayout};

use super::ops_delta::{Convolution, DeltaStep, StateRow};
use super::ops_whole::Queries;
use super::{Keys, Values};
use crate::math;
use crate::pack::{CodePanel, FloatPanel};

/// One number per key of a block.
pub(crate) type BlockScores = [f32; BLOCK];

/// See [`OpKernels::combine`].
type Combine = fn(x: &[f32], panels: &[FloatPanel], out: &mut [f32]);
/// See [`OpKernels::weigh`].
type Weigh = fn(&mut [BlockScores], stride: usize, Range<usize>, soft_cap: Option<f32>) -> Running;
/// See [`OpKernels::clamped_swish`].
type ClampedSwish = fn([f32; 2], gate: &[f32], up: &[f32], out: &mut [f32]);
/// See [`OpKernels::add_values`].
type AddValues = fn(&[BlockScores], seen: Range<usize>, values: Values<'_>, sums: &mut [f32]);

/// The inner loops of all ops but linear layers, for one instruction set.
pub(crate) struct OpKernels {
    /// `x = x - mean(x)`.
    pub(crate) center: fn(x: &mut [f32]),
    /// `x = x / sqrt(mean(x^2) + eps) * gain`.
    pub(crate) normalize: fn(x: &mut [f32], gain: &[f32], kind: NormGain, eps: f32),
    /// `out = act(gate) * up`, all three of one length.
    pub(crate) glu: fn(act: Activation, gate: &[f32], up: &[f32], out: &mut [f32]),
    /// `x = act(x)`.
    pub(crate) activate: fn(act: Activation, x: &mut [f32]),
    /// `out = clamped_swish(gate, up)` with a slope and a limit, all three of one length.
    pub(crate) clamped_swish: ClampedSwish,
    /// `x = cap * tanh(x / cap)`.
    pub(crate) soft_cap: fn(x: &mut [f32], cap: f32),
    /// `x = x * sigmoid(gate)`.
    pub(crate) gate: fn(x: &mut [f32], gate: &[f32]),
    /// Makes `x` its softmax.
    pub(crate) softmax: fn(x: &mut [f32]),
    /// Rotates the pairs of one head by `[cos | sin]`.
    pub(crate) rotate: fn(head: &mut [f32], layout: RopeLayout, angles: &[f32]),
    /// Makes the codes of a key or value for [`backend::KvFormat::Int16`], and gives the bits of their
    /// scale, a bf16.
    pub(crate) round_stored: fn(x: &[f32], codes: &mut [i16]) -> u16,
    /// Makes the codes of a query for keys in whole numbers, and gives their scale.
    pub(crate) round_query: fn(x: &[f32], codes: &mut [i16]) -> f32,
    /// Dot products of some queries with the keys of a block. What is a chain of fused multiply-adds
    /// where keys are read as floats, in the order of columns, is a sum of whole numbers where they are
    /// such (`ops_whole.rs`).
    pub(crate) scores: fn(Queries<'_>, keys: Keys<'_>, out: &mut [BlockScores]),
    /// As `scores`, of keys that are floats and lie row by row. Both have the columns of a row, a
    /// multiple of [`VALUE_PAD`]: column `c` goes to lane `c % LANES`, fused, and the lanes are added in
    /// a fixed tree.
    pub(crate) scores_by_row: fn(q: &[f32], keys: Values<'_>, out: &mut [BlockScores]),
    /// Turns scores into weights and says what they are relative to. The scores are those of one
    /// query with some consecutive blocks, every `stride`-th of the slice. The range says which keys
    /// the query sees, counted from the first of these blocks; all others weigh nothing.
    ///
    /// A score is a logarithm to base two; one that is to be capped is a natural one before. A
    /// weight is two to the power of the score less the greatest one. The weights of key `l` of
    /// every block are added in order, then the [`BLOCK`] sums in a fixed tree.
    pub(crate) weigh: Weigh,
    /// Adds the values `seen` of a block, weighted, to the sum of each query. `values` has one row
    /// per key, as long as one query's sum in `sums`: a multiple of [`VALUE_PAD`]. Of values in whole
    /// numbers all are seen that weigh anything, and the range says nothing (`ops_whole.rs`).
    pub(crate) add_values: AddValues,
    /// Joins the softmax of some keys, and its weighted sums of values, with that of keys after
    /// them.
    ///
    /// With `m` the greater of both greatest scores, each sum becomes
    /// `fma(later, 2^(later.max - m), sum * 2^(max - m))`.
    pub(crate) merge: fn(&mut Running, sums: &mut [f32], later: Running, later_sums: &[f32]),
    /// `x = exp(-rate * softplus(x + bias))`.
    pub(crate) decays: fn(x: &mut [f32], bias: &[f32], rate: f32),
    /// `out = end(bias + sum of taps times rows)`, column by column, the bias or zero first, then the
    /// rows from the oldest on, fused.
    pub(crate) convolve: fn(Convolution<'_>, out: &mut [f32]),
    /// One step of a layer with a state, on some columns of a head's state, and what is read then.
    ///
    /// What is written is `d = v`, or the difference of `v` to what the state has there. With rows
    /// `S_i` of the state, `known` is the sum of `k_i * S_i`, taken for even and for odd `i` apart,
    /// fused, and added at last; then `d = (v - decay * known) * beta`, the difference fused. Where
    /// each row has its decay, that is multiplied with `k_i`, and `d = (v - known) * beta`. Then `S_i`
    /// becomes `fma(k_i, d, decay * S_i)`; what is read is the sum of `q_i * S_i`, taken as the first
    /// one was.
    pub(crate) delta: fn(state: &mut [StateRow], DeltaStep<'_>, out: &mut StateRow),
    /// Codes as the numbers they stand for: `scale * (code - zero)`, or `scale * code + min`, not fused.
    pub(crate) widen_codes: fn(&CodePanel, &mut FloatPanel),
    /// `out[c]`: the sum of `x[i]` times lane `i` of column `c`, the lanes of all panels counted
    /// through. Each lane takes its own of all panels in order, fused; then they are added in a fixed
    /// tree.
    pub(crate) combine: Combine,
}

/// Numbers of which rows of values are a multiple.
pub(crate) const VALUE_PAD: usize = 16;

/// The softmax of one query over some keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// The greatest score, a logarithm to base two.
    pub(crate) max: f32,
    /// Sum of the weights relative to it.
    pub(crate) sum: f32,
}

impl Running {
    /// Before the first key.
    pub(crate) const START: Running = Running { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Lanes of a sum over columns.
pub(super) const LANES: usize = 16;

/// Adds lanes `l` and `l + N / 2`, then those at half that distance, and so on.
#[inline(always)]
pub(super) fn fold<const N: usize>(mut lanes: [f32; N], with: impl Fn(f32, f32) -> f32) -> f32 {
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
pub(super) fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
pub(super) fn center(x: &mut [f32]) {
    let mut lanes = [0.0f32; LANES];
    for x in x.chunks(LANES) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += x);
    }
    let mean = fold(lanes, |a, b| a + b) / x.len() as f32;
    x.iter_mut().for_each(|x| *x -= mean);
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

/// `$body`, in which `$f` is the function that an activation names: compiled for each of them.
macro_rules! by_activation {
    ($act:expr, $f:ident => $body:expr) => {
        by_activation!($act, $f => $body; Silu silu, GeluTanh gelu_tanh, GeluErf gelu_erf, Relu relu,
            ReluSquared relu_squared)
    };
    ($act:expr, $f:ident => $body:expr; $($name:ident $function:ident),+) => {
        match $act {
            $(Activation::$name => {
                let $f = math::$function;
                $body
            })+
        }
    };
}

#[inline(always)]
pub(super) fn glu(act: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    by_activation!(act, f => {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = f(*gate) * up;
        }
    });
}

#[inline(always)]
pub(super) fn activate(act: Activation, x: &mut [f32]) {
    by_activation!(act, f => {
        for x in x {
            *x = f(*x);
        }
    });
}

#[inline(always)]
pub(super) fn clamped_swish([slope, limit]: [f32; 2], gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = math::clamped_swish(*gate, *up, slope, limit);
    }
}

#[inline(always)]
pub(super) fn soft_cap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * math::tanh(*x / cap);
    }
}

#[inline(always)]
pub(super) fn gate(x: &mut [f32], gate: &[f32]) {
    for (x, gate) in x.iter_mut().zip(gate) {
        *x *= math::sigmoid(*gate);
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
    scores: &mut [BlockScores],
    stride: usize,
    seen: Range<usize>,
    cap: Option<f32>,
) -> Running {
    let mut greatest = [f32::NEG_INFINITY; BLOCK];
    for (i, scores) in scores.iter_mut().step_by(stride).enumerate() {
        if let Some(cap) = cap {
            soft_cap(scores, cap);
            scores.iter_mut().for_each(|score| *score *= std::f32::consts::LOG2_E);
        }
        let first = i * BLOCK;
        if first < seen.start || first + BLOCK > seen.end {
            for (key, score) in (first..).zip(&mut *scores) {
                *score = if seen.contains(&key) { *score } else { f32::NEG_INFINITY };
            }
        }
        greatest.iter_mut().zip(scores).for_each(|(max, score)| *max = greater(*max, *score));
    }
    let max = fold(greatest, greater);
    let mut sums = [0.0; BLOCK];
    for scores in scores.iter_mut().step_by(stride) {
        for (sum, score) in sums.iter_mut().zip(scores) {
            *score = math::exp2_below_one(*score - max);
            *sum += *score;
        }
    }
    Running { max, sum: fold(sums, |a, b| a + b) }
}

#[inline(always)]
pub(super) fn merge(running: &mut Running, sums: &mut [f32], later: Running, later_sums: &[f32]) {
    let max = greater(running.max, later.max);
    let [keep, add] = [running.max, later.max].map(|x| math::exp2_below_one(x - max));
    let merged = |sum: f32, later: f32| later.mul_add(add, sum * keep);
    sums.iter_mut().zip(later_sums).for_each(|(sum, later)| *sum = merged(*sum, *later));
    *running = Running { max, sum: merged(running.sum, later.sum) };
}

/// Cuts `n` queries into as few runs of at most `most` as will do, of nearly equal length.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn runs(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let n_runs = n.div_ceil(most);
    (0..n_runs).map(move |i| i * n / n_runs..(i + 1) * n / n_runs)
}

/// The table of a file that has `scores_of` and `add_values_of` of its own, for any way of storing:
/// all other kernels are the bodies of this file, compiled for the named instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! ops_table {
    ($features:literal) => {
        /// Only for machines that have the instructions.
        pub(super) static OPS: OpKernels = OpKernels {
            // SAFETY: this table is for machines that have the instructions.
            center: |x| unsafe { center(x) },
            // SAFETY: as above.
            normalize: |x, gain, kind, eps| unsafe { normalize(x, gain, kind, eps) },
            // SAFETY: as above.
            glu: |act, gate, up, out| unsafe { glu(act, gate, up, out) },
            // SAFETY: as above.
            activate: |act, x| unsafe { activate(act, x) },
            // SAFETY: as above.
            clamped_swish: |by, gate, up, out| unsafe { clamped_swish(by, gate, up, out) },
            // SAFETY: as above.
            soft_cap: |x, cap| unsafe { soft_cap(x, cap) },
            // SAFETY: as above.
            gate: |x, by| unsafe { gate(x, by) },
            // SAFETY: as above.
            softmax: |x| unsafe { softmax(x) },
            // SAFETY: as above.
            rotate: |head, layout, angles| unsafe { rotate(head, layout, angles) },
            // SAFETY: as above.
            round_stored: |x, codes| unsafe { round_stored(x, codes) },
            // SAFETY: as above.
            round_query: |x, codes| unsafe { round_query(x, codes) },
            // SAFETY: as above.
            scores: |queries, keys, out| unsafe { scores(queries, keys, out) },
            // SAFETY: as above.
            scores_by_row: |q, keys, out| unsafe { scores_by_row(q, keys, out) },
            // SAFETY: as above.
            weigh: |scores, stride, seen, cap| unsafe { weigh(scores, stride, seen, cap) },
            // SAFETY: as above.
            add_values: |weights, seen, values, sums| unsafe {
                add_values(weights, seen, values, sums)
            },
            // SAFETY: as above.
            merge: |running, sums, later, more| unsafe { merge(running, sums, later, more) },
            // SAFETY: as above.
            decays: |x, bias, rate| unsafe { decays(x, bias, rate) },
            // SAFETY: as above.
            convolve: |rows, out| unsafe { convolve(rows, out) },
            // SAFETY: as above.
            delta: |state, step, out| unsafe { delta(state, step, out) },
            // SAFETY: as above.
            widen_codes: |panel, out| unsafe { widen_codes(panel, out) },
            // SAFETY: as above.
            combine: |x, panels, out| unsafe { combine(x, panels, out) },
        };

        #[target_feature(enable = $features)]
        fn center(x: &mut [f32]) {
            ops::center(x);
        }

        #[target_feature(enable = $features)]
        fn normalize(x: &mut [f32], gain: &[f32], kind: backend::NormGain, eps: f32) {
            ops::normalize(x, gain, kind, eps);
        }

        #[target_feature(enable = $features)]
        fn glu(act: backend::Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
            ops::glu(act, gate, up, out);
        }

        #[target_feature(enable = $features)]
        fn activate(act: backend::Activation, x: &mut [f32]) {
            ops::activate(act, x);
        }

        #[target_feature(enable = $features)]
        fn clamped_swish(by: [f32; 2], gate: &[f32], up: &[f32], out: &mut [f32]) {
            ops::clamped_swish(by, gate, up, out);
        }

        #[target_feature(enable = $features)]
        fn soft_cap(x: &mut [f32], cap: f32) {
            ops::soft_cap(x, cap);
        }

        #[target_feature(enable = $features)]
        fn gate(x: &mut [f32], by: &[f32]) {
            ops::gate(x, by);
        }

        #[target_feature(enable = $features)]
        fn convolve(rows: super::Convolution<'_>, out: &mut [f32]) {
            super::ops_delta::convolve(rows, out);
        }

        #[target_feature(enable = $features)]
        fn decays(x: &mut [f32], bias: &[f32], rate: f32) {
            super::ops_delta::decays(x, bias, rate);
        }

        #[target_feature(enable = $features)]
        fn delta(
            state: &mut [super::StateRow],
            step: super::DeltaStep<'_>,
            out: &mut super::StateRow,
        ) {
            super::ops_delta::delta(state, step, out);
        }

        #[target_feature(enable = $features)]
        fn widen_codes(panel: &crate::pack::CodePanel, out: &mut crate::pack::FloatPanel) {
            super::ops_latent::widen_codes(panel, out);
        }

        #[target_feature(enable = $features)]
        fn combine(x: &[f32], panels: &[crate::pack::FloatPanel], out: &mut [f32]) {
            super::ops_latent::combine(x, panels, out);
        }

        #[target_feature(enable = $features)]
        fn softmax(x: &mut [f32]) {
            ops::softmax(x);
        }

        #[target_feature(enable = $features)]
        fn rotate(head: &mut [f32], layout: backend::RopeLayout, angles: &[f32]) {
            ops::rotate(head, layout, angles);
        }

        #[target_feature(enable = $features)]
        fn round_stored(x: &[f32], codes: &mut [i16]) -> u16 {
            super::ops_whole::round_stored(x, codes)
        }

        #[target_feature(enable = $features)]
        fn round_query(x: &[f32], codes: &mut [i16]) -> f32 {
            super::ops_whole::round_query(x, codes)
        }

        #[target_feature(enable = $features)]
        fn scores(queries: super::Queries<'_>, keys: Keys<'_>, out: &mut [BlockScores]) {
            match keys {
                Keys::Int16(keys) => whole_scores_of(queries, keys, out),
                Keys::F16(keys) => scores_of(queries.floats, keys, out),
                Keys::Int8(keys) => scores_of(queries.floats, keys, out),
            }
        }

        #[target_feature(enable = $features)]
        fn scores_by_row(q: &[f32], keys: Values<'_>, out: &mut [BlockScores]) {
            match keys {
                Values::Int16(_) => unreachable!("keys that are values are kept as floats"),
                Values::F16(keys) => by_row_of(q, keys, out),
                Values::Int8(keys) => by_row_of(q, keys, out),
            }
        }

        #[target_feature(enable = $features)]
        fn add_values(
            weights: &[BlockScores],
            seen: Range<usize>,
            values: Values<'_>,
            sums: &mut [f32],
        ) {
            match values {
                Values::Int16(values) => add_wholes_of(weights, values, sums),
                Values::F16(values) => add_values_of(weights, seen, values, sums),
                Values::Int8(values) => add_values_of(weights, seen, values, sums),
            }
        }

        #[target_feature(enable = $features)]
        fn weigh(
            scores: &mut [BlockScores],
            stride: usize,
            seen: Range<usize>,
            cap: Option<f32>,
        ) -> ops::Running {
            ops::weigh(scores, stride, seen, cap)
        }

        #[target_feature(enable = $features)]
        fn merge(
            running: &mut ops::Running,
            sums: &mut [f32],
            later: ops::Running,
            later_sums: &[f32],
        ) {
            ops::merge(running, sums, later, later_sums);
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use ops_table;
