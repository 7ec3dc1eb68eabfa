//! What tokens bring along for every layer: made, and handed to a layer.

use std::ops::Range;

use weights::{Float, GgufType, Matrix, Packing};

use super::data::{Rng, Rows, batch, download, upload};
use super::rounding::Rounding;
use super::rows::{ACTIVATION, ENTRY, NORM};
use super::{Tolerance, assert_close, assert_same_bits};
use crate::ops::RowsOf;
use crate::reference::Reference;
use crate::{Activation, Backend, LayerInputs};

/// A model's inputs, and a layer that takes its own.
struct Case {
    table: Matrix,
    gain: Vec<f32>,
    spec: LayerInputs,
    activation: Activation,
    /// Columns of the inputs from which a layer takes `spec.width`.
    first: usize,
}

/// Rows of everything the ops read.
struct Rowed {
    tokens: Vec<u32>,
    projected: Rows,
    gate: Rows,
}

/// What a device makes of them.
struct Outcome {
    inputs: Rows,
    gated: Rows,
    /// Of every second row alone.
    wanted: Rows,
}

fn cases(rng: &mut Rng) -> Vec<Case> {
    let q4 = Packing::Affine { bits: 4, group: 64, scale: Float::Bf16 };
    let shapes = [
        (Packing::Plain(Float::F32), 1, 7, Activation::GeluTanh),
        (q4, 4, 32, Activation::GeluTanh),
        (Packing::Gguf(GgufType::Q8_0), 35, 256, Activation::Silu),
    ];
    let case = |(packing, layers, width, activation)| Case {
        table: rng.matrix(packing, 9, layers * width),
        gain: rng.vector(width),
        spec: LayerInputs { width, eps: 1e-3, table_scale: 5.5, scale: 0.75 },
        activation,
        first: (layers - 1) / 2 * width,
    };
    shapes.map(case).into()
}

impl Case {
    fn name(&self) -> String {
        format!("{:?} of {}, {:?}", self.spec, self.table.name, self.activation)
    }

    fn rows(&self, n: usize, rng: &mut Rng) -> Rowed {
        // Some tokens are beyond the table's end.
        let tokens = (0..n).map(|_| rng.below(self.table.rows + 2) as u32).collect();
        let (projected, gate) = (rng.rows(n, self.table.cols), rng.rows(n, self.spec.width));
        Rowed { tokens, projected, gate }
    }

    fn run<B: Backend>(&self, device: &B, rows: &Rowed) -> Outcome {
        let (n, width) = (rows.tokens.len(), self.spec.width);
        let mut asked = batch(rows.tokens.clone());
        asked.want.retain(|row| row % 2 == 0);
        let mut staged = device.staged(n);
        device.stage(&asked, &mut staged);
        let table = device.weight(std::slice::from_ref(&self.table));
        let gain = device.vector(&self.gain);

        let mut inputs = upload(device, &rows.projected);
        device.layer_inputs(&mut inputs, &table, &gain, &self.spec, &staged);
        let mut gated = upload(device, &rows.gate);
        device.glu_with(&mut gated, self.activation, &inputs, self.first, RowsOf::Pass);
        let mut wanted = device.buf(n * width);
        device.gather(&upload(device, &rows.gate), &staged, &mut wanted);
        let rows_of = RowsOf::Wanted(&staged);
        device.glu_with(&mut wanted, self.activation, &inputs, self.first, rows_of);
        Outcome {
            inputs: download(device, &inputs, n, self.table.cols),
            gated: download(device, &gated, n, width),
            wanted: download(device, &wanted, asked.want.len(), width),
        }
    }
}

impl Rowed {
    fn range(&self, range: Range<usize>) -> Rowed {
        Rowed {
            tokens: self.tokens[range.clone()].to_vec(),
            projected: self.projected.range(range.clone()),
            gate: self.gate.range(range),
        }
    }
}

impl Outcome {
    /// Calls `f` with the name of each op and its rows here and there.
    fn zip(&self, other: &Outcome, mut f: impl FnMut(&str, &Rows, &Rows)) {
        f("layer_inputs", &self.inputs, &other.inputs);
        f("glu_with", &self.gated, &other.gated);
        f("glu_with wanted rows", &self.wanted, &other.wanted);
    }

    /// The wanted rows are those of all rows, bit for bit.
    fn check_wanted(&self, what: &str) {
        for r in 0..self.wanted.rows {
            let (got, want) = (self.wanted.range(r..r + 1), self.gated.range(2 * r..2 * r + 1));
            assert_same_bits(&format!("glu_with wanted rows {what}"), &got, &want);
        }
    }
}

pub(super) fn check<B: Backend>(device: &B, tolerance: Tolerance) {
    let rng = &mut Rng::new(11);
    for case in cases(rng) {
        for n in [1, 2, 37] {
            let rows = case.rows(n, rng);
            let (got, want) = (case.run(device, &rows), case.run(&Reference, &rows));
            let what = case.name();
            got.zip(&want, |op, got, want| {
                // Gating a sum: the errors of both add up.
                assert_close(&format!("{op} {what}"), got, want, 2.0 * tolerance.other);
            });
            got.check_wanted(&what);
        }
    }
}

/// An entry times a rounded number, a norm, their sum, and that times a rounded number; then the product
/// of that with an activation, whose errors add up.
pub(super) fn check_rounded<B: Backend>(device: &B, rounding: &Rounding) {
    let (made, rng) = (ENTRY + 2.0 + NORM + 1.0 + 2.0, &mut rounding.rng(11));
    for case in cases(rng) {
        let rows = case.rows(37, rng);
        let (got, want) = (case.run(device, &rows), case.run(&Reference, &rows));
        got.zip(&want, |op, got, want| {
            let gated = 2.0 * (made + ACTIVATION + 1.0);
            let roundings = if op == "layer_inputs" { made } else { gated };
            rounding.assert_near(&format!("{op} {}", case.name()), got, want, roundings);
        });
        got.check_wanted(&case.name());
    }
}

pub(super) fn check_invariance<B: Backend>(device: &B) {
    let rng = &mut Rng::new(12);
    for case in cases(rng) {
        let rows = case.rows(37, rng);
        let together = case.run(device, &rows);
        for first in 0..37 {
            let range = first..first + 1;
            let alone = case.run(device, &rows.range(range.clone()));
            let what = format!("{} row {first} alone", case.name());
            assert_same_bits(&what, &alone.inputs, &together.inputs.range(range.clone()));
            assert_same_bits(&what, &alone.gated, &together.gated.range(range));
        }
    }
}

pub(super) fn check_equal<A: Backend, B: Backend>(a: &A, b: &B) {
    let rng = &mut Rng::new(13);
    for case in cases(rng) {
        let rows = case.rows(37, rng);
        let what = case.name();
        case.run(a, &rows).zip(&case.run(b, &rows), |op, a, b| {
            assert_same_bits(&format!("{op} {what}"), a, b);
        });
    }
}
