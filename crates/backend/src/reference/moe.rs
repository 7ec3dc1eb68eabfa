//! Mixtures of experts, as loops.

use super::{Buf, Reference, activate, dot, sigmoid, softmax};
use crate::ops::{ExpertWeights, MoeOps};
use crate::{Divisor, ExpertForm, Experts, GateUpRows, Glu, GroupMerit, Groups, Scores};

impl MoeOps for Reference {
    fn experts(
        &self,
        x: &Buf,
        router: &Buf,
        spec: &Experts,
        weights: ExpertWeights<'_, Reference>,
        out: &mut Buf,
    ) {
        assert_eq!((router.rows, router.cols), (x.rows, spec.n), "one router logit per expert");
        let ExpertWeights { gate_up, gate_up_bias, down, down_bias, correction, scales } = weights;
        let cols = down.rows / spec.n;
        let bias = |bias: Option<&Vec<f32>>, row: usize| bias.map_or(0.0, |b| f64::from(b[row]));
        let n_hidden = spec.form.rows_per_column() * spec.inner;
        out.shape(x.rows, cols);
        let mut inner = vec![0.0; spec.inner];
        for r in 0..x.rows {
            let mut sum = vec![0.0f64; cols];
            for (expert, weight) in route(router.row(r), spec, correction) {
                let weight = weight * scales.map_or(1.0, |scales| f64::from(scales[expert]));
                let rows = expert * n_hidden..(expert + 1) * n_hidden;
                let product = |row| dot(x.row(r), gate_up.row(row)) + bias(gate_up_bias, row);
                let hidden: Vec<f32> = rows.map(|row| product(row) as f32).collect();
                within(spec.form, &hidden, &mut inner);
                for (i, sum) in sum.iter_mut().enumerate() {
                    let row = expert * cols + i;
                    *sum += weight * (dot(&inner, down.row(row)) + bias(down_bias, row));
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

/// The inner columns of an expert.
fn within(form: ExpertForm, hidden: &[f32], inner: &mut [f32]) {
    for (i, out) in inner.iter_mut().enumerate() {
        *out = match form {
            ExpertForm::Gated { glu, rows: GateUpRows::Halves } => {
                together(glu, hidden[i], hidden[hidden.len() / 2 + i])
            }
            ExpertForm::Gated { glu, rows: GateUpRows::Interleaved } => {
                together(glu, hidden[2 * i], hidden[2 * i + 1])
            }
            ExpertForm::Plain(activation) => activate(activation, hidden[i]),
        } as f32;
    }
}

/// What becomes of a gate and an up.
fn together(glu: Glu, gate: f32, up: f32) -> f64 {
    match glu {
        Glu::Act(activation) => activate(activation, gate) * f64::from(up),
        Glu::ClampedSwish { slope, limit } => {
            let (slope, limit) = (f64::from(slope), f64::from(limit));
            let gate = f64::from(gate).min(limit);
            gate * sigmoid(slope * gate) * (f64::from(up).clamp(-limit, limit) + 1.0)
        }
    }
}

/// The chosen experts of one row, ascending, and their weights.
fn route(logits: &[f32], spec: &Experts, correction: Option<&Vec<f32>>) -> Vec<(usize, f64)> {
    let mut scores: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    match spec.gating.scores {
        Scores::Softmax => softmax(&mut scores),
        Scores::Sigmoid => scores.iter_mut().for_each(|score| *score = sigmoid(*score)),
    }
    let corrected = |(i, score): (usize, &f64)| score + correction.map_or(0.0, |c| f64::from(c[i]));
    let merits: Vec<f64> = scores.iter().enumerate().map(corrected).collect();
    let mut chosen: Vec<usize> = match spec.gating.groups {
        None => (0..spec.n).collect(),
        Some(groups) => candidates(&merits, groups),
    };
    best(&mut chosen, &merits, spec.top_k);
    let sum: f64 = chosen.iter().map(|expert| scores[*expert]).sum();
    let divisor = match spec.gating.divisor {
        Divisor::One => 1.0,
        Divisor::SumPlus(more) => sum + f64::from(more),
        Divisor::SumAtLeast(least) => sum.max(f64::from(least)),
    };
    let scale = f64::from(spec.routed_scale) / divisor;
    chosen.into_iter().map(|expert| (expert, scores[expert] * scale)).collect()
}

/// The experts of the best groups, ascending.
fn candidates(merits: &[f64], groups: Groups) -> Vec<usize> {
    let size = merits.len() / groups.n;
    let merit = |group: &[f64]| {
        let mut sorted = group.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        match groups.merit {
            GroupMerit::Largest => sorted[0],
            GroupMerit::TwoLargest => sorted[0] + sorted[1],
        }
    };
    let of_groups: Vec<f64> = merits.chunks_exact(size).map(merit).collect();
    let mut kept: Vec<usize> = (0..groups.n).collect();
    best(&mut kept, &of_groups, groups.kept);
    kept.into_iter().flat_map(|group| group * size..(group + 1) * size).collect()
}

/// Leaves the `n` of `places` with the greatest merits, ascending.
fn best(places: &mut Vec<usize>, merits: &[f64], n: usize) {
    // A stable sort leaves equal ones in order.
    places.sort_by(|a, b| merits[*b].total_cmp(&merits[*a]));
    places.truncate(n);
    places.sort_unstable();
}
