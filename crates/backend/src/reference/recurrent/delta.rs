//! A row of a gated delta rule.

use super::super::dense::norm_row;
use super::super::{activate, dot, sigmoid};
use super::{State, convolve_silu, softplus, weighted};
use crate::ops::{DeltaWeights, RowNorm};
use crate::{Activation, DeltaRule, GatedDelta, NormGain, ReadOrder};

/// One row of all that a layer reads.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) qkv: &'a [f32],
    pub(super) z: &'a [f32],
    pub(super) a: &'a [f32],
}

/// One row: changes the state, then reads it.
pub(super) fn step(
    row: Row<'_>,
    weights: DeltaWeights<'_, Vec<f32>>,
    spec: &GatedDelta,
    state: State<'_>,
    out: &mut [f32],
) {
    let qkv = convolve_silu(&in_order(row.qkv, spec), weights.conv, state.window);
    let (q, kv) = qkv.split_at(spec.k_cols());
    let (k, v) = kv.split_at(spec.k_cols());
    let matrices = state.matrices.chunks_exact_mut(spec.k_dim * spec.v_dim);
    for (head, (matrix, v)) in matrices.zip(v.chunks_exact(spec.v_dim)).enumerate() {
        let at = match spec.read_order {
            ReadOrder::ByKeyHead => head,
            ReadOrder::InTurn => head % spec.group() * spec.k_heads + head / spec.group(),
        };
        let out = &mut out[at * spec.v_dim..][..spec.v_dim];
        let (k_head, within) = (head / spec.group(), head % spec.group());
        let of_head = |all: &[f32], scale| unit(&all[k_head * spec.k_dim..][..spec.k_dim], scale);
        let q = of_head(q, 1.0 / (spec.k_dim as f64).sqrt());
        let k = of_head(k, 1.0);
        let beta = sigmoid(f64::from(row.qkv[spec.place(k_head).b][within]));
        let decays = decays(row.a, weights, spec, head);
        for (j, v) in v.iter().enumerate() {
            let kept = k.iter().zip(&decays).map(|(k, decay)| k * decay);
            let delta = beta * (f64::from(*v) - weighted(matrix, spec.v_dim, j, kept));
            for (i, (k, decay)) in k.iter().zip(&decays).enumerate() {
                let s = &mut matrix[i * spec.v_dim + j];
                *s = (decay * f64::from(*s) + k * delta) as f32;
            }
            out[j] = weighted(matrix, spec.v_dim, j, q.iter().copied()) as f32;
        }
        norm_row(out, RowNorm::rms(weights.gain, NormGain::Stored, spec.eps));
        let z = &row.z[spec.place(k_head).z][within * spec.v_dim..][..spec.v_dim];
        for (out, z) in out.iter_mut().zip(z) {
            let gate = match spec.rule {
                DeltaRule::PerHead => activate(Activation::Silu, *z),
                DeltaRule::PerChannel => sigmoid(f64::from(*z)),
            };
            *out = (f64::from(*out) * gate) as f32;
        }
    }
}

/// The `[q | k | v]` of a row, all heads of each in order.
fn in_order(row: &[f32], spec: &GatedDelta) -> Vec<f32> {
    let mut fresh = vec![0.0; spec.conv_cols()];
    for head in 0..spec.k_heads {
        let (place, v_len) = (spec.place(head), spec.group() * spec.v_dim);
        let starts = [0, spec.k_cols(), 2 * spec.k_cols()];
        let pieces = [(place.q, spec.k_dim), (place.k, spec.k_dim), (place.v, v_len)];
        for (start, (from, len)) in starts.into_iter().zip(pieces) {
            fresh[start + head * len..][..len].copy_from_slice(&row[from]);
        }
    }
    fresh
}

/// What is left of each row of the state of value head `head`.
fn decays(
    row: &[f32],
    weights: DeltaWeights<'_, Vec<f32>>,
    spec: &GatedDelta,
    head: usize,
) -> Vec<f64> {
    let (k_head, within) = (head / spec.group(), head % spec.group());
    let stored = &row[spec.place(k_head).a];
    let rate = libm::exp(f64::from(weights.a_log[head]));
    let decay = |a: f32, bias: f32| libm::exp(-rate * softplus(f64::from(a + bias)));
    match spec.rule {
        DeltaRule::PerHead => vec![decay(stored[within], weights.dt_bias[head]); spec.k_dim],
        DeltaRule::PerChannel => {
            let bias = &weights.dt_bias[k_head * spec.k_dim..];
            stored.iter().zip(bias).map(|(a, bias)| decay(*a, *bias)).collect()
        }
    }
}

/// `x` with a length of about `scale`.
fn unit(x: &[f32], scale: f64) -> Vec<f64> {
    let scale = scale / (dot(x, x) + 1e-6).sqrt();
    x.iter().map(|x| f64::from(*x) * scale).collect()
}
