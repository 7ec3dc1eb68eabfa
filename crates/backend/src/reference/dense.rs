//! Linear layers, norms and everything else a row does alone, as loops.

use super::{Buf, Reference, Weight, activate, dot, sigmoid};
use crate::ops::{DenseOps, Input, Memory, Output, RowNorm};
use crate::{Activation, Batch, NormCenter, NormGain};

impl DenseOps for Reference {
    fn embed(&self, table: &Weight, batch: &Batch, scale: f32, out: &mut Buf) {
        out.shape(batch.n_rows(), table.cols);
        for (r, &token) in batch.tokens.iter().enumerate() {
            for (out, element) in out.row_mut(r).iter_mut().zip(table.row(token as usize)) {
                *out = element * scale;
            }
        }
    }

    fn add_positions(&self, table: &Weight, batch: &Batch, x: &mut Buf) {
        for span in &batch.spans {
            for (i, r) in span.rows.clone().enumerate() {
                let row = table.row(span.start + i);
                x.row_mut(r).iter_mut().zip(row).for_each(|(x, y)| *x += y);
            }
        }
    }

    fn linear(
        &self,
        x: Input<'_, Reference>,
        w: &Weight,
        bias: Option<&Vec<f32>>,
        out: Output<'_, Reference>,
    ) {
        let normed = match x {
            Input::Rows(x) => return product(self, x, w, bias, out),
            Input::Normed { x, norm } => {
                let mut normed = self.buf(x.rows * x.cols);
                self.norm(x, norm, &mut normed);
                normed
            }
        };
        product(self, &normed, w, bias, out);
    }

    fn norm(&self, x: &Buf, norm: RowNorm<'_, Vec<f32>>, out: &mut Buf) {
        out.shape(x.rows, x.cols);
        for r in 0..x.rows {
            out.row_mut(r).copy_from_slice(x.row(r));
            norm_row(out.row_mut(r), norm);
        }
    }

    fn add(&self, x: &mut Buf, y: &Buf, scale: f32) {
        assert_eq!((x.rows, x.cols), (y.rows, y.cols), "only equal shapes are added");
        for r in 0..x.rows {
            x.row_mut(r).iter_mut().zip(y.row(r)).for_each(|(x, y)| *x += scale * y);
        }
    }

    fn scale(&self, x: &mut Buf, by: f32) {
        x.elements_mut().iter_mut().for_each(|x| *x *= by);
    }

    fn glu(&self, x: &Buf, act: Activation, out: &mut Buf) {
        out.shape(x.rows, x.cols / 2);
        for r in 0..x.rows {
            glu_row(x.row(r), act, out.row_mut(r));
        }
    }

    fn gather(&self, x: &Buf, batch: &Batch, out: &mut Buf) {
        out.shape(batch.want.len(), x.cols);
        for (r, &from) in batch.want.iter().enumerate() {
            out.row_mut(r).copy_from_slice(x.row(from as usize));
        }
    }

    fn soft_cap(&self, x: &mut Buf, cap: f32) {
        for x in x.elements_mut() {
            *x = cap_score(f64::from(*x), cap) as f32;
        }
    }

    fn join(&self, left: &Buf, right: &Buf, out: &mut Buf) {
        assert_eq!(left.rows, right.rows, "rows are joined one by one");
        out.shape(left.rows, left.cols + right.cols);
        for r in 0..left.rows {
            let (to_left, to_right) = out.row_mut(r).split_at_mut(left.cols);
            to_left.copy_from_slice(left.row(r));
            to_right.copy_from_slice(right.row(r));
        }
    }

    fn gate(&self, x: &mut Buf, gate: &Buf) {
        assert_eq!((x.rows, x.cols), (gate.rows, gate.cols), "one gate per number");
        for r in 0..x.rows {
            for (x, gate) in x.row_mut(r).iter_mut().zip(gate.row(r)) {
                *x = (f64::from(*x) * sigmoid(f64::from(*gate))) as f32;
            }
        }
    }

    fn keep_largest(&self, x: &mut Buf, cols: usize, deviations: f32) {
        for r in 0..x.rows {
            let x = &mut x.row_mut(r)[..cols];
            let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / cols as f64;
            let square = |x: &f32| (f64::from(*x) - mean).powi(2);
            let deviation = (x.iter().map(square).sum::<f64>() / cols as f64).sqrt();
            let least = mean + deviation * f64::from(deviations);
            x.iter_mut().for_each(|x| *x = (f64::from(*x) - least).max(0.0) as f32);
        }
    }
}

fn product(
    device: &Reference,
    x: &Buf,
    w: &Weight,
    bias: Option<&Vec<f32>>,
    out: Output<'_, Reference>,
) {
    assert_eq!(x.cols, w.cols, "a linear layer takes rows as long as its own");
    let mut y = device.buf(x.rows * w.rows);
    y.shape(x.rows, w.rows);
    for r in 0..x.rows {
        for o in 0..w.rows {
            let bias = bias.map_or(0.0, |bias| f64::from(bias[o]));
            y.row_mut(r)[o] = (dot(x.row(r), w.row(o)) + bias) as f32;
        }
    }
    match out {
        Output::Into(out) => {
            out.shape(y.rows, y.cols);
            out.elements_mut().copy_from_slice(y.elements_mut());
        }
        Output::Onto(out) => device.add(out, &y, 1.0),
        Output::Activated(act, out) => {
            out.shape(y.rows, y.cols);
            for (out, y) in out.elements_mut().iter_mut().zip(y.elements_mut()) {
                *out = activate(act, *y) as f32;
            }
        }
        Output::Gated(act, out) => device.glu(&y, act, out),
    }
}

/// `cap * tanh(x / cap)`.
pub(super) fn cap_score(x: f64, cap: f32) -> f64 {
    f64::from(cap) * libm::tanh(x / f64::from(cap))
}

/// `out = act(gate) * up` of one `[gate | up]` row.
pub(super) fn glu_row(x: &[f32], act: Activation, out: &mut [f32]) {
    let (gate, up) = x.split_at(x.len() / 2);
    for (out, (gate, up)) in out.iter_mut().zip(gate.iter().zip(up)) {
        *out = (activate(act, *gate) * f64::from(*up)) as f32;
    }
}

/// [`DenseOps::norm`] of one row.
pub(super) fn norm_row(x: &mut [f32], norm: RowNorm<'_, Vec<f32>>) {
    let RowNorm { center, gain, kind, bias, eps } = norm;
    assert_eq!(x.len(), gain.len(), "a norm has one gain per column");
    let mean = match center {
        NormCenter::Zero => 0.0,
        NormCenter::Mean => x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64,
    };
    let square = |x: &f32| (f64::from(*x) - mean).powi(2);
    let mean_square = x.iter().map(square).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean_square + f64::from(eps)).sqrt();
    for (i, x) in x.iter_mut().enumerate() {
        let gain = match kind {
            NormGain::Stored => f64::from(gain[i]),
            NormGain::OnePlus => 1.0 + f64::from(gain[i]),
        };
        let bias = bias.map_or(0.0, |bias| f64::from(bias[i]));
        *x = ((f64::from(*x) - mean) * scale * gain + bias) as f32;
    }
}
