//! Mixtures of experts: every way to choose and to weight, with ties.

use weights::{Float, Matrix, Packing};

use super::super::data::{Rng, Rows};
use super::super::rounding::of_product;
use super::ACTIVATION;
use crate::ops::ExpertWeights;
use crate::{
    Activation, Backend, Divisor, ExpertForm, Experts, GateUpRows, Gating, Glu, GroupMerit, Groups,
    Scores,
};

/// A mixture with everything but its rows.
#[derive(Debug)]
pub(super) struct Mixture {
    pub(super) spec: Experts,
    pub(super) gate_up: Matrix,
    pub(super) down: Matrix,
    /// Of gate and up, and of down.
    biases: Option<[Vec<f32>; 2]>,
    correction: Option<Vec<f32>>,
    scales: Option<Vec<f32>>,
}

impl Mixture {
    /// For messages.
    pub(super) fn name(&self) -> String {
        let (biases, correction) = (self.biases.is_some(), self.correction.is_some());
        let Mixture { spec, gate_up, scales, .. } = self;
        let scales = scales.is_some();
        format!(
            "experts {spec:?} {}, biases: {biases}, correction: {correction}, scales: {scales}",
            gate_up.name
        )
    }

    /// Rows and their router logits, which come in steps, so that there are ties. No two of them are
    /// opposites, whose sigmoids would add up to what those of others do.
    pub(super) fn inputs(&self, n: usize, rng: &mut Rng) -> Vec<Rows> {
        let x = rng.rows(n, self.gate_up.cols);
        let mut router = rng.rows(n, self.spec.n);
        let stepped = |logit: f32| rng.held((logit * 2.0).round() / 2.0 + 0.15);
        router.data.iter_mut().for_each(|logit| *logit = stepped(*logit));
        vec![x, router]
    }

    pub(super) fn out_cols(&self) -> usize {
        self.down.rows / self.spec.n
    }

    /// Roundings that it is worth: gate and up are multiplied; down; that is weighted by a rounded number, and
    /// as many are summed as are chosen. Weights are found out in f32.
    pub(super) fn roundings(&self) -> f32 {
        let product = |matrix: &Matrix| of_product(matrix.packing, matrix.cols, 0) + 1.0;
        let inner = 3.0 * product(&self.gate_up) + ACTIVATION + 1.0;
        inner + product(&self.down) + 2.0 + self.spec.top_k as f32
    }

    pub(super) fn run<B: Backend>(
        &self,
        device: &B,
        x: &B::Buf,
        router: &B::Buf,
        out: &mut B::Buf,
    ) {
        let vector = |values: &Vec<f32>| device.vector(values);
        let biases = self.biases.as_ref().map(|biases| biases.each_ref().map(vector));
        let correction = self.correction.as_ref().map(vector);
        let scales = self.scales.as_ref().map(vector);
        let weights = ExpertWeights {
            gate_up: &device.weight(std::slice::from_ref(&self.gate_up)),
            gate_up_bias: biases.as_ref().map(|[gate_up, _]| gate_up),
            down: &device.weight(std::slice::from_ref(&self.down)),
            down_bias: biases.as_ref().map(|[_, down]| down),
            correction: correction.as_ref(),
            scales: scales.as_ref(),
        };
        device.experts(x, router, &self.spec, weights, out);
    }
}

/// What is added to the scores.
#[derive(Clone, Copy)]
enum Correction {
    None,
    /// The same for several experts.
    Steps,
    /// Another for each.
    Any,
}

/// `n` experts of which a row takes `top_k`.
fn spec([n, top_k, inner]: [usize; 3], gating: Gating, activation: Activation) -> Experts {
    let form = ExpertForm::gated(activation);
    Experts { n, top_k, inner, gating, routed_scale: 1.0, form }
}

pub(super) fn mixtures(rng: &mut Rng) -> Vec<Mixture> {
    use Activation::{GeluTanh, Silu};
    let plain = Packing::Plain(Float::F32);
    let q4 = Packing::Affine { bits: 4, group: 32, scale: Float::F16 };
    let grouped = |n, merit, divisor| {
        let groups = Some(Groups { n, kept: 2, merit });
        Gating { groups, divisor, ..Gating::SIGMOID }
    };
    let (one, two) = (GroupMerit::Largest, GroupMerit::TwoLargest);
    let at_least =
        |scores, least| Gating { scores, divisor: Divisor::SumAtLeast(least), ..Gating::SOFTMAX };
    let swish = Glu::ClampedSwish { slope: 1.702, limit: 1.5 };
    let scaled = |spec| Experts { routed_scale: 2.5, ..spec };
    let turns = |spec, glu| {
        let rows = GateUpRows::Interleaved;
        Experts { form: ExpertForm::Gated { glu, rows }, ..spec }
    };
    let ungated = |spec| Experts { form: ExpertForm::Plain(Activation::ReluSquared), ..spec };
    let cases = [
        (spec([4, 2, 32], Gating::SOFTMAX, Silu), q4, 64, Correction::None),
        (spec([9, 3, 64], Gating::SOFTMAX_OF_CHOSEN, GeluTanh), plain, 40, Correction::None),
        (scaled(spec([3, 3, 32], Gating::SOFTMAX, Silu)), q4, 32, Correction::None),
        (spec([6, 2, 32], Gating::SIGMOID, Silu), q4, 32, Correction::None),
        (spec([12, 4, 32], Gating::SIGMOID, Silu), plain, 24, Correction::Steps),
        (spec([7, 2, 32], at_least(Scores::Softmax, 0.4), Silu), q4, 32, Correction::Any),
        (spec([5, 1, 32], at_least(Scores::Sigmoid, 0.6), Silu), plain, 16, Correction::Steps),
        (
            spec([12, 3, 32], grouped(4, two, Divisor::SumPlus(0.01)), Silu),
            plain,
            16,
            Correction::None,
        ),
        (scaled(spec([10, 3, 32], grouped(5, two, Divisor::One), Silu)), q4, 32, Correction::Any),
        (spec([12, 2, 32], grouped(4, one, Divisor::One), Silu), plain, 24, Correction::Steps),
        (turns(spec([4, 2, 32], Gating::SOFTMAX_OF_CHOSEN, Silu), swish), q4, 32, Correction::None),
        (
            turns(spec([5, 3, 37], Gating::SOFTMAX_OF_CHOSEN, Silu), swish),
            plain,
            24,
            Correction::None,
        ),
        (ungated(spec([6, 3, 40], Gating::SIGMOID, Silu)), plain, 24, Correction::Steps),
        (ungated(spec([4, 2, 64], Gating::SIGMOID, Silu)), q4, 32, Correction::None),
        (
            turns(spec([3, 1, 96], Gating::SIGMOID, Silu), Glu::Act(GeluTanh)),
            Packing::Mxfp4,
            96,
            Correction::None,
        ),
    ];
    let mut mixture = |i: usize, (spec, packing, cols, correction): (Experts, _, usize, _)| {
        let gate_up = spec.n * spec.form.rows_per_column() * spec.inner;
        let down = spec.n * cols;
        let steps = |x: f32| (x * 4.0).round() / 8.0;
        Mixture {
            gate_up: rng.matrix(packing, gate_up, cols),
            down: rng.matrix(packing, down, spec.inner),
            biases: (i % 2 == 1).then(|| [rng.vector(gate_up), rng.vector(down)]),
            correction: match correction {
                Correction::None => None,
                Correction::Steps => Some(rng.vector(spec.n).into_iter().map(steps).collect()),
                Correction::Any => Some(rng.vector(spec.n)),
            },
            // Drawn apart, so that the numbers of the others stay what they were.
            scales: (i % 3 == 1).then(|| rng.apart(23 + i as u64).vector(spec.n)),
            spec,
        }
    };
    cases.into_iter().enumerate().map(|(i, case)| mixture(i, case)).collect()
}
