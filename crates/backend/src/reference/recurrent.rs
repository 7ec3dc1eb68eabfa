//! Layers with a state, as loops: row after row, head after head.
//!
//! Here is what they have in common; what a row does to a state is in a file for each rule.

mod delta;
mod mamba2;

use super::{Buf, Reference, activate};
use crate::ops::{ConvWeights, DeltaRows, DeltaWeights, DeviceError, Mamba2Weights, RecurrentOps};
use crate::{Activation, Batch, GatedDelta, Mamba2, Recurrence, ShortConv, SlotId, Span};

/// States of one layer. Each has the rows that the convolution looks back at, the oldest first, then
/// a matrix for each head.
#[derive(Clone, Debug)]
pub struct States {
    len: usize,
    window: usize,
    data: Vec<f32>,
}

/// One state.
struct State<'a> {
    /// Rows that the convolution looks back at.
    window: &'a mut [f32],
    /// Matrices of all heads.
    matrices: &'a mut [f32],
}

impl States {
    fn slot(&self, slot: SlotId) -> std::ops::Range<usize> {
        slot as usize * self.len..(slot as usize + 1) * self.len
    }

    /// Takes the rows of all spans through their states: `step` changes a state by a row, and writes
    /// what the layer makes of it.
    fn walk(&mut self, batch: &Batch, out: &mut Buf, step: impl Fn(usize, State<'_>, &mut [f32])) {
        for Span { rows, state_in, states_out, .. } in &batch.spans {
            let mut state = match state_in {
                Some(slot) => self.data[self.slot(*slot)].to_vec(),
                None => vec![0.0; self.len],
            };
            for (i, row) in rows.clone().enumerate() {
                let (window, matrices) = state.split_at_mut(self.window);
                step(row, State { window, matrices }, out.row_mut(row));
                for (_, slot) in states_out.iter().filter(|(after, _)| *after == i) {
                    let place = self.slot(*slot);
                    self.data[place].copy_from_slice(&state);
                }
            }
        }
    }
}

impl RecurrentOps for Reference {
    type States = States;

    fn states(&self, spec: &Recurrence, n_slots: usize) -> States {
        let (len, window) = (spec.state_len(), spec.window_len());
        States { len, window, data: vec![f32::NAN; n_slots * len] }
    }

    fn gated_delta(
        &self,
        x: DeltaRows<'_, Buf>,
        weights: DeltaWeights<'_, Vec<f32>>,
        spec: &GatedDelta,
        states: &mut States,
        batch: &Batch,
        out: &mut Buf,
    ) {
        assert_eq!(x.qkv.cols, spec.row_cols(), "rows are what the layout says");
        out.shape(x.qkv.rows, spec.v_cols());
        states.walk(batch, out, |row, state, out| {
            let row = delta::Row { qkv: x.qkv.row(row), z: x.z.row(row), a: x.a.row(row) };
            delta::step(row, weights, spec, state, out);
        });
    }

    fn mamba2(
        &self,
        x: &Buf,
        weights: Mamba2Weights<'_, Vec<f32>>,
        spec: &Mamba2,
        states: &mut States,
        batch: &Batch,
        out: &mut Buf,
    ) {
        assert_eq!(x.cols, spec.row_cols(), "rows have all parts");
        out.shape(x.rows, spec.inner());
        states.walk(batch, out, |row, state, out| {
            mamba2::step(x.row(row), weights, spec, state, out);
        });
    }

    fn short_conv(
        &self,
        x: &Buf,
        weights: ConvWeights<'_, Vec<f32>>,
        spec: &ShortConv,
        states: &mut States,
        batch: &Batch,
        out: &mut Buf,
    ) {
        assert_eq!(x.cols, spec.row_cols(), "rows have all parts");
        out.shape(x.rows, spec.cols);
        states.walk(batch, out, |row, state, out| {
            let (before, rest) = x.row(row).split_at(spec.cols);
            let (after, values) = rest.split_at(spec.cols);
            let fresh: Vec<f32> = before.iter().zip(values).map(|(b, x)| b * x).collect();
            let sums = convolve(&fresh, weights, state.window);
            for (out, (c, sum)) in out.iter_mut().zip(after.iter().zip(sums)) {
                *out = (f64::from(*c) * sum) as f32;
            }
        });
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

/// What the convolution makes of the columns `fresh` of a row. The row becomes the last one of
/// `window`.
fn convolve(fresh: &[f32], weights: ConvWeights<'_, Vec<f32>>, window: &mut [f32]) -> Vec<f64> {
    let cols = fresh.len();
    let sum = |c: usize| -> f64 {
        let past = window.iter().skip(c).step_by(cols).chain([&fresh[c]]);
        let taps = weights.taps.iter().skip(c).step_by(cols);
        let bias = weights.bias.map_or(0.0, |bias| f64::from(bias[c]));
        bias + taps.zip(past).map(|(tap, x)| f64::from(*tap) * f64::from(*x)).sum::<f64>()
    };
    let sums = (0..cols).map(sum).collect();
    window.copy_within(cols.., 0);
    let last = window.len() - cols;
    window[last..].copy_from_slice(fresh);
    sums
}

/// [`convolve`] with a SiLU behind it.
fn convolve_silu(
    fresh: &[f32],
    weights: ConvWeights<'_, Vec<f32>>,
    window: &mut [f32],
) -> Vec<f32> {
    let silu = |x: f64| activate(Activation::Silu, x as f32) as f32;
    convolve(fresh, weights, window).into_iter().map(silu).collect()
}

/// Sum of the column `column` of a matrix of `cols` columns, its rows weighted.
fn weighted(matrix: &[f32], cols: usize, column: usize, by: impl Iterator<Item = f64>) -> f64 {
    let column = matrix.iter().skip(column).step_by(cols);
    by.zip(column).map(|(by, s)| by * f64::from(*s)).sum()
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}
