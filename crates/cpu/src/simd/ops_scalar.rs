//! The ops without an instruction set: what all others must agree with, bit for bit.

use std::ops::Range;

use super::ops::{self, BlockScores, LANES, OpKernels, fold};
use super::ops_delta;
use super::ops_latent;
use super::ops_whole::{self, Queries};
use super::{Keys, Values};

pub(super) static OPS: OpKernels = OpKernels {
    center: |x| ops::center(x),
    normalize: |x, gain, kind, eps| ops::normalize(x, gain, kind, eps),
    glu: |act, gate, up, out| ops::glu(act, gate, up, out),
    activate: |act, x| ops::activate(act, x),
    clamped_swish: |by, gate, up, out| ops::clamped_swish(by, gate, up, out),
    soft_cap: |x, cap| ops::soft_cap(x, cap),
    gate: |x, by| ops::gate(x, by),
    softmax: |x| ops::softmax(x),
    rotate: |head, layout, angles| ops::rotate(head, layout, angles),
    round_stored: |x, codes| ops_whole::round_stored(x, codes),
    round_query: |x, codes| ops_whole::round_query(x, codes),
    scores,
    scores_by_row,
    weigh: |scores, stride, seen, cap| ops::weigh(scores, stride, seen, cap),
    add_values,
    merge: |running, sums, later, more| ops::merge(running, sums, later, more),
    decays: |x, bias, rate| ops_delta::decays(x, bias, rate),
    convolve: |rows, out| ops_delta::convolve(rows, out),
    delta: |state, step, out| ops_delta::delta(state, step, out),
    widen_codes: |panel, out| ops_latent::widen_codes(panel, out),
    combine: |x, panels, out| ops_latent::combine(x, panels, out),
};

fn scores(queries: Queries<'_>, keys: Keys<'_>, out: &mut [BlockScores]) {
    if let Keys::Int16(keys) = keys {
        return ops_whole::scores(queries, keys, out);
    }
    let q = queries.floats;
    let head_dim = q.len() / out.len();
    for (q, out) in q.chunks_exact(head_dim).zip(out) {
        out.fill(0.0);
        for (column, q) in q.iter().enumerate() {
            for (key, score) in out.iter_mut().enumerate() {
                *score = q.mul_add(keys.number(column, key), *score);
            }
        }
    }
}

fn scores_by_row(q: &[f32], keys: Values<'_>, out: &mut [BlockScores]) {
    let cols = q.len() / out.len();
    for (q, out) in q.chunks_exact(cols).zip(out) {
        for (key, score) in out.iter_mut().enumerate() {
            let mut lanes = [0.0f32; LANES];
            for (column, q) in q.iter().enumerate() {
                let lane = &mut lanes[column % LANES];
                *lane = q.mul_add(keys.number(column, key, cols), *lane);
            }
            *score = fold(lanes, |a, b| a + b);
        }
    }
}

fn add_values(weights: &[BlockScores], seen: Range<usize>, values: Values<'_>, sums: &mut [f32]) {
    if let Values::Int16(values) = values {
        return ops_whole::add_values(weights, values, sums);
    }
    let cols = sums.len() / weights.len();
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(cols)) {
        for key in seen.clone() {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = weights[key].mul_add(values.number(column, key, cols), *sum);
            }
        }
    }
}
