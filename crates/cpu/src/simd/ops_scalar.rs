//! The ops without an instruction set: what all others must agree with, bit for bit.

use std::ops::Range;

use backend::BLOCK;

use super::generic::f16_to_f32;
use super::ops::{self, BlockScores, OpKernels};
use super::ops_delta;

pub(super) static OPS: OpKernels = OpKernels {
    center: |x| ops::center(x),
    normalize: |x, gain, kind, eps| ops::normalize(x, gain, kind, eps),
    glu: |act, gate, up, out| ops::glu(act, gate, up, out),
    activate: |act, x| ops::activate(act, x),
    soft_cap: |x, cap| ops::soft_cap(x, cap),
    gate: |x, by| ops::gate(x, by),
    softmax: |x| ops::softmax(x),
    rotate: |head, layout, angles| ops::rotate(head, layout, angles),
    scores,
    weigh: |scores, stride, seen, cap| ops::weigh(scores, stride, seen, cap),
    add_values,
    merge: |running, sums, later, more| ops::merge(running, sums, later, more),
    convolve: |rows, out| ops_delta::convolve(rows, out),
    delta: |state, step, out| ops_delta::delta(state, step, out),
};

fn scores(q: &[f32], keys: &[u16], out: &mut [BlockScores]) {
    let head_dim = keys.len() / BLOCK;
    for (q, out) in q.chunks_exact(head_dim).zip(out) {
        out.fill(0.0);
        for (q, column) in q.iter().zip(keys.chunks_exact(BLOCK)) {
            for (score, key) in out.iter_mut().zip(column) {
                *score = q.mul_add(f16_to_f32(*key), *score);
            }
        }
    }
}

fn add_values(weights: &[BlockScores], seen: Range<usize>, values: &[u16], sums: &mut [f32]) {
    let cols = values.len() / BLOCK;
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(cols)) {
        for key in seen.clone() {
            for (sum, value) in sums.iter_mut().zip(&values[key * cols..]) {
                *sum = weights[key].mul_add(f16_to_f32(*value), *sum);
            }
        }
    }
}
