//! The gated delta rule, as loops: row after row, head after head.

use super::dense::norm_row;
use super::{Buf, Reference, activate, dot, sigmoid};
use crate::ops::{DeltaWeights, DeviceError, RecurrentOps, RowNorm};
use crate::{Activation, Batch, GatedDelta, NormGain, SlotId, Span};

/// States of one layer. Each has the rows that the convolution looks back at, the oldest first, then
/// a `k_dim x v_dim` matrix per value head.
#[derive(Clone, Debug)]
pub struct States {
    len: usize,
    data: Vec<f32>,
}

impl States {
    fn slot(&self, slot: SlotId) -> std::ops::Range<usize> {
        slot as usize * self.len..(slot as usize + 1) * self.len
    }
}

impl RecurrentOps for Reference {
    type States = States;

    fn states(&self, spec: &GatedDelta, n_slots: usize) -> States {
        States { len: spec.state_len(), data: vec![f32::NAN; n_slots * spec.state_len()] }
    }

    fn gated_delta(
        &self,
        x: &Buf,
        weights: DeltaWeights<'_, Vec<f32>>,
        spec: &GatedDelta,
        states: &mut States,
        batch: &Batch,
        out: &mut Buf,
    ) {
        assert_eq!(x.cols, spec.row_cols(), "rows are what the layout says");
        out.shape(x.rows, spec.v_cols());
        for Span { rows, state_in, states_out, .. } in &batch.spans {
            let mut state = match state_in {
                Some(slot) => states.data[states.slot(*slot)].to_vec(),
                None => vec![0.0; states.len],
            };
            for (i, row) in rows.clone().enumerate() {
                step(x.row(row), weights, spec, &mut state, out.row_mut(row));
                for (_, slot) in states_out.iter().filter(|(after, _)| *after == i) {
                    let place = states.slot(*slot);
                    states.data[place].copy_from_slice(&state);
                }
            }
        }
    }

    fn state_bytes(&self, states: &States) -> usize {
        4 * states.len
    }

    fn read_state(&self, states: &States, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(out.len(), self.state_bytes(states), "a whole state is read");
        for (out, stored) in out.as_chunks_mut().0.iter_mut().zip(&states.data[states.slot(slot)]) {
            *out = stored.to_le_bytes();
        }
        Ok(())
    }

    fn write_state(&self, states: &mut States, slot: SlotId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.state_bytes(states), "a whole state is written");
        let place = states.slot(slot);
        for (stored, bytes) in states.data[place].iter_mut().zip(bytes.as_chunks().0) {
            *stored = f32::from_le_bytes(*bytes);
        }
    }
}

/// One row: changes the state, then reads it.
fn step(
    row: &[f32],
    weights: DeltaWeights<'_, Vec<f32>>,
    spec: &GatedDelta,
    state: &mut [f32],
    out: &mut [f32],
) {
    let (window, memory) = state.split_at_mut((spec.taps - 1) * spec.conv_cols());
    let qkv = convolve(row, weights.conv, spec, window);
    let (q, kv) = qkv.split_at(spec.k_cols());
    let (k, v) = kv.split_at(spec.k_cols());
    let matrices = memory.chunks_exact_mut(spec.k_dim * spec.v_dim);
    let heads = v.chunks_exact(spec.v_dim).zip(out.chunks_exact_mut(spec.v_dim));
    for (head, (matrix, (v, out))) in matrices.zip(heads).enumerate() {
        let (k_head, within) = (head / spec.group(), head % spec.group());
        let place = spec.place(k_head);
        let of_head = |all: &[f32], scale| unit(&all[k_head * spec.k_dim..][..spec.k_dim], scale);
        let q = of_head(q, 1.0 / (spec.k_dim as f64).sqrt());
        let k = of_head(k, 1.0);
        let beta = sigmoid(f64::from(row[place.b][within]));
        let speed = softplus(f64::from(row[place.a][within] + weights.dt_bias[head]));
        let decay = libm::exp(-libm::exp(f64::from(weights.a_log[head])) * speed);

        let known = |matrix: &[f32], by: &[f64], column: usize| -> f64 {
            let column = matrix.iter().skip(column).step_by(spec.v_dim);
            by.iter().zip(column).map(|(by, s)| by * f64::from(*s)).sum()
        };
        for (j, v) in v.iter().enumerate() {
            let delta = beta * (f64::from(*v) - decay * known(matrix, &k, j));
            for (i, k) in k.iter().enumerate() {
                let s = &mut matrix[i * spec.v_dim + j];
                *s = (decay * f64::from(*s) + k * delta) as f32;
            }
            out[j] = known(matrix, &q, j) as f32;
        }
        norm_row(out, RowNorm::rms(weights.gain, NormGain::Stored, spec.eps));
        let z = &row[place.z][within * spec.v_dim..][..spec.v_dim];
        for (out, z) in out.iter_mut().zip(z) {
            *out = (f64::from(*out) * activate(Activation::Silu, *z)) as f32;
        }
    }
}

/// The convolved `[q | k | v]` of a row, all heads of each in order. The row becomes the last one of
/// `window`.
fn convolve(row: &[f32], conv: &[f32], spec: &GatedDelta, window: &mut [f32]) -> Vec<f32> {
    let cols = spec.conv_cols();
    let mut fresh = vec![0.0; cols];
    for head in 0..spec.k_heads {
        let (place, v_len) = (spec.place(head), spec.group() * spec.v_dim);
        let starts = [0, spec.k_cols(), 2 * spec.k_cols()];
        let pieces = [(place.q, spec.k_dim), (place.k, spec.k_dim), (place.v, v_len)];
        for (start, (from, len)) in starts.into_iter().zip(pieces) {
            fresh[start + head * len..][..len].copy_from_slice(&row[from]);
        }
    }
    let past = |c: usize| window.iter().skip(c).step_by(cols).chain([&fresh[c]]);
    let sum = |c: usize| -> f64 {
        let taps = conv.iter().skip(c).step_by(cols);
        taps.zip(past(c)).map(|(tap, x)| f64::from(*tap) * f64::from(*x)).sum()
    };
    let convolved = (0..cols).map(|c| activate(Activation::Silu, sum(c) as f32) as f32).collect();
    window.copy_within(cols.., 0);
    let last = window.len() - cols;
    window[last..].copy_from_slice(&fresh);
    convolved
}

/// `x` with a length of about `scale`.
fn unit(x: &[f32], scale: f64) -> Vec<f64> {
    let scale = scale / (dot(x, x) + 1e-6).sqrt();
    x.iter().map(|x| f64::from(*x) * scale).collect()
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}
