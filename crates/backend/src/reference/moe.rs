//! Mixtures of experts, as loops.

use super::dense::glu_row;
use super::{Buf, Reference, Weight, dot, sigmoid, softmax};
use crate::ops::MoeOps;
use crate::{Experts, Gating};

impl MoeOps for Reference {
    fn experts(
        &self,
        x: &Buf,
        router: &Buf,
        spec: &Experts,
        gate_up: &Weight,
        down: &Weight,
        out: &mut Buf,
    ) {
        assert_eq!((router.rows, router.cols), (x.rows, spec.n), "one router logit per expert");
        let cols = down.rows / spec.n;
        out.shape(x.rows, cols);
        let mut hidden = vec![0.0; 2 * spec.inner];
        let mut inner = vec![0.0; spec.inner];
        for r in 0..x.rows {
            let mut sum = vec![0.0f64; cols];
            for (expert, weight) in route(router.row(r), spec) {
                for (i, hidden) in hidden.iter_mut().enumerate() {
                    *hidden = dot(x.row(r), gate_up.row(expert * 2 * spec.inner + i)) as f32;
                }
                glu_row(&hidden, spec.activation, &mut inner);
                for (i, sum) in sum.iter_mut().enumerate() {
                    *sum += weight * dot(&inner, down.row(expert * cols + i));
                }
            }
            out.row_mut(r).iter_mut().zip(&sum).for_each(|(out, sum)| *out = *sum as f32);
        }
    }

    fn add_gated(&self, x: &mut Buf, gate: &Buf, y: &Buf) {
        assert_eq!((x.rows, x.cols), (y.rows, y.cols), "only equal shapes are added");
        assert_eq!((gate.rows, gate.cols), (x.rows, 1), "one gate per row");
        for r in 0..x.rows {
            let open = sigmoid(f64::from(gate.row(r)[0]));
            for (x, y) in x.row_mut(r).iter_mut().zip(y.row(r)) {
                *x = (f64::from(*x) + open * f64::from(*y)) as f32;
            }
        }
    }
}

/// The chosen experts of one row, ascending, and their weights.
fn route(logits: &[f32], spec: &Experts) -> Vec<(usize, f64)> {
    let mut probabilities: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    softmax(&mut probabilities);
    // A stable sort leaves ties in index order.
    let mut chosen: Vec<usize> = (0..spec.n).collect();
    chosen.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    chosen.truncate(spec.top_k);
    chosen.sort_unstable();
    let sum: f64 = match spec.gating {
        Gating::Softmax => 1.0,
        Gating::SoftmaxRenormalised => chosen.iter().map(|expert| probabilities[*expert]).sum(),
    };
    let scale = f64::from(spec.routed_scale) / sum;
    chosen.into_iter().map(|expert| (expert, probabilities[expert] * scale)).collect()
}
