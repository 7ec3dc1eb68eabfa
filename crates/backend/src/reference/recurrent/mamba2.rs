//! A row of a selective state space.

use super::super::activate;
use super::super::dense::norm_row;
use super::{State, convolve_silu, softplus, weighted};
use crate::ops::{Mamba2Weights, RowNorm};
use crate::{Activation, Mamba2, MambaGate, NormGain};

/// One row: changes the state, then reads it.
pub(super) fn step(
    row: &[f32],
    weights: Mamba2Weights<'_, Vec<f32>>,
    spec: &Mamba2,
    state: State<'_>,
    out: &mut [f32],
) {
    let (z, rest) = row.split_at(spec.inner());
    let (fresh, steps) = rest.split_at(spec.conv_cols());
    let convolved = convolve_silu(fresh, weights.conv, state.window);
    let (x, by) = convolved.split_at(spec.inner());
    let (write, read) = by.split_at(spec.groups * spec.state);
    let matrices = state.matrices.chunks_exact_mut(spec.state * spec.head_dim);
    let heads = x.chunks_exact(spec.head_dim).zip(out.chunks_exact_mut(spec.head_dim));
    for (head, (matrix, (x, out))) in matrices.zip(heads).enumerate() {
        let dt = f64::from(spec.scales.dt * steps[head] + weights.dt_bias[head]);
        let [low, high] = spec.dt_limit.map(f64::from);
        let dt = softplus(dt).max(low).min(high);
        let decay = libm::exp(-libm::exp(f64::from(weights.a_log[head])) * dt);
        let first = head / spec.group() * spec.state;
        let (write, read) = (&write[first..][..spec.state], &read[first..][..spec.state]);
        for (j, x) in x.iter().enumerate() {
            for (i, b) in write.iter().enumerate() {
                let s = &mut matrix[i * spec.head_dim + j];
                *s = (decay * f64::from(*s) + f64::from(*b) * dt * f64::from(*x)) as f32;
            }
            let read = read.iter().map(|c| f64::from(*c));
            let passed = f64::from(weights.skip[head]) * f64::from(*x);
            out[j] = (weighted(matrix, spec.head_dim, j, read) + passed) as f32;
        }
    }
    gate(z, weights, spec, out);
}

/// Gates and norms what was read.
fn gate(z: &[f32], weights: Mamba2Weights<'_, Vec<f32>>, spec: &Mamba2, out: &mut [f32]) {
    let by = |out: &mut [f32]| {
        for (out, z) in out.iter_mut().zip(z) {
            *out = (f64::from(*out) * activate(Activation::Silu, spec.scales.z * z)) as f32;
        }
    };
    let norm = |out: &mut [f32], eps| {
        let gain = weights.gain.expect("a norm has a gain");
        let cols = spec.group() * spec.head_dim;
        for (out, gain) in out.chunks_exact_mut(cols).zip(gain.chunks_exact(cols)) {
            norm_row(out, RowNorm::rms(&gain.to_vec(), NormGain::Stored, eps));
        }
    };
    match spec.gate {
        MambaGate::Bare => by(out),
        MambaGate::ThenNorm(eps) => {
            by(out);
            norm(out, eps);
        }
        MambaGate::AfterNorm(eps) => {
            norm(out, eps);
            by(out);
        }
    }
}
