//! Ops on rows that know nothing of each other: all but attention.

mod experts;
mod latent;

use weights::{F32Bits, Float, GgufType, Matrix, Packing};

use super::data::{Rng, Rows, batch, download, upload};
use super::rounding::{Rounding, of_product, sizes};
use super::{Tolerance, assert_close, assert_same_bits};
use crate::ops::{Input, Output, RowNorm};
use crate::reference::Reference;
use crate::{Activation, BLOCK, Backend, Batch, NormCenter, NormGain, Span};
use experts::Mixture;
use latent::LatentOp;

/// One op with everything but its rows.
#[derive(Debug)]
enum RowOp {
    Embed { table: Matrix, scale: f32 },
    AddPositions { table: Matrix },
    Linear { parts: Vec<Matrix>, bias: Option<Vec<f32>>, form: Form },
    Norm { center: NormCenter, gain: Vec<f32>, kind: NormGain, bias: Option<Vec<f32>> },
    Add { cols: usize, scale: f32 },
    Scale { cols: usize, by: f32 },
    Glu { cols: usize, activation: Activation },
    Gather { cols: usize },
    SoftCap { cols: usize, cap: f32 },
    Gate { cols: usize },
    Join { left: usize, right: usize },
    Experts(Box<Mixture>),
    AddGated { cols: usize },
    Latent(LatentOp),
}

/// What a linear layer does besides multiplying.
#[derive(Debug, Clone)]
enum Form {
    Plain,
    /// Norms its input.
    Normed(Vec<f32>),
    /// Adds to what is there.
    Onto,
    /// Puts a layer norm before and an activation behind.
    Activated(Vec<f32>, Activation),
    /// Norms its input and gates.
    Gated(Vec<f32>, Activation),
}

const EPS: f32 = 1e-6;

/// Roundings of an entry of a table: of its scale and bias where it has some, which are up to two and one
/// times as large as the row's largest number, of code times scale, and of what that and the bias come to.
pub(super) const ENTRY: f32 = 2.0 + 1.0 + 2.0 + 1.0;
/// Of a logistic function: its exponential, one more, the inverse, and one less.
const SIGMOID: f32 = 4.0;
/// Of an activation: the longest are a square, a cube and two constants, whose part in the sum is small, a
/// steep function, one more, and half of a product with that.
pub(super) const ACTIVATION: f32 = 6.0;
/// Of a norm: of one more than the gain, of the normed number, times the gain, plus the bias.
pub(super) const NORM: f32 = 4.0;

impl RowOp {
    /// For messages: the op and its constants, without the numbers.
    fn name(&self) -> String {
        match self {
            RowOp::Embed { table, .. } => format!("embed {}", table.name),
            RowOp::AddPositions { table } => format!("add_positions {}", table.name),
            RowOp::Linear { parts, bias, form } => {
                let parts: Vec<String> =
                    parts.iter().map(|m| format!("{} {}x{}", m.name, m.rows, m.cols)).collect();
                format!("linear {parts:?}, bias: {}, {}", bias.is_some(), form.name())
            }
            RowOp::Norm { center, gain, kind, bias } => {
                let (cols, bias) = (gain.len(), bias.is_some());
                format!("norm from {center:?}, {kind:?}, bias: {bias}, of {cols}")
            }
            RowOp::Experts(mixture) => mixture.name(),
            RowOp::Latent(op) => op.name(),
            op => format!("{op:?}"),
        }
    }

    /// Random inputs of `n` rows, one per buffer the op reads.
    fn inputs(&self, n: usize, rng: &mut Rng) -> Vec<Rows> {
        let cols: Vec<usize> = match self {
            RowOp::Embed { table, .. } => {
                let data = (0..n).map(|_| rng.below(table.rows) as f32).collect();
                return vec![Rows { rows: n, cols: 1, data }];
            }
            RowOp::AddPositions { table } => {
                let data = (0..n).map(|_| rng.below(table.rows) as f32).collect();
                return vec![Rows { rows: n, cols: 1, data }, rng.rows(n, table.cols)];
            }
            RowOp::Linear { parts, form: Form::Onto, .. } => vec![parts[0].cols, n_outputs(parts)],
            RowOp::Linear { parts, .. } => vec![parts[0].cols],
            RowOp::Norm { gain, .. } => vec![gain.len()],
            RowOp::Add { cols, .. } | RowOp::Gate { cols } => vec![*cols, *cols],
            RowOp::Glu { cols, .. } => vec![2 * cols],
            RowOp::Join { left, right } => vec![*left, *right],
            RowOp::Gather { cols } | RowOp::Scale { cols, .. } | RowOp::SoftCap { cols, .. } => {
                vec![*cols]
            }
            RowOp::Experts(mixture) => return mixture.inputs(n, rng),
            RowOp::AddGated { cols } => vec![*cols, 1, *cols],
            RowOp::Latent(op) => op.in_cols(),
        };
        cols.into_iter().map(|cols| rng.rows(n, cols)).collect()
    }

    fn out_cols(&self) -> usize {
        match self {
            RowOp::Embed { table, .. } | RowOp::AddPositions { table } => table.cols,
            RowOp::Linear { parts, form: Form::Gated(..), .. } => n_outputs(parts) / 2,
            RowOp::Linear { parts, .. } => n_outputs(parts),
            RowOp::Norm { gain, .. } => gain.len(),
            RowOp::Experts(mixture) => mixture.out_cols(),
            RowOp::Join { left, right } => left + right,
            RowOp::Latent(op) => op.out_cols(),
            RowOp::Add { cols, .. }
            | RowOp::Scale { cols, .. }
            | RowOp::Glu { cols, .. }
            | RowOp::Gather { cols }
            | RowOp::SoftCap { cols, .. }
            | RowOp::Gate { cols }
            | RowOp::AddGated { cols } => *cols,
        }
    }

    fn tolerance(&self, tolerance: Tolerance) -> f32 {
        match self {
            // A product of two results and a steep function: their errors add up.
            RowOp::Linear { form: Form::Gated(..) | Form::Activated(..), .. }
            | RowOp::Experts(_) => 3.0 * tolerance.linear,
            // What is merely copied makes rows smaller than the products in them.
            RowOp::Latent(_) => 2.0 * tolerance.linear,
            RowOp::Linear { .. } => tolerance.linear,
            _ => tolerance.other,
        }
    }

    /// Roundings that the op is worth.
    fn roundings(&self) -> f32 {
        match self {
            // The scale is rounded too.
            RowOp::Embed { .. } => ENTRY + 2.0,
            RowOp::AddPositions { .. } => ENTRY + 1.0,
            RowOp::Linear { parts, form, .. } => form.roundings(parts),
            RowOp::Norm { .. } => NORM,
            // Of the scale, the product and the sum.
            RowOp::Add { .. } => 3.0,
            RowOp::Scale { .. } => 2.0,
            RowOp::Glu { .. } => ACTIVATION + 1.0,
            RowOp::Gather { .. } | RowOp::Join { .. } => 0.0,
            // There, tanh, and back.
            RowOp::SoftCap { .. } => 3.0,
            RowOp::Gate { .. } => SIGMOID + 1.0,
            RowOp::AddGated { .. } => SIGMOID + 2.0,
            RowOp::Experts(mixture) => mixture.roundings(),
            RowOp::Latent(op) => op.roundings(),
        }
    }

    fn run<B: Backend>(&self, device: &B, inputs: &[Rows]) -> Rows {
        let n = inputs[0].rows;
        let mut bufs: Vec<B::Buf> = inputs.iter().map(|rows| upload(device, rows)).collect();
        let mut out = device.buf(n * self.out_cols());
        match self {
            RowOp::Embed { table, scale } => {
                let mut staged = device.staged(n);
                let tokens = inputs[0].data.iter().map(|token| *token as u32).collect();
                device.stage(&batch(tokens), &mut staged);
                device.embed(&device.weight(std::slice::from_ref(table)), &staged, *scale, &mut out)
            }
            RowOp::AddPositions { table } => {
                let mut staged = device.staged(n);
                device.stage(&apart(&inputs[0].data), &mut staged);
                out = bufs.swap_remove(1);
                let table = device.weight(std::slice::from_ref(table));
                device.add_positions(&table, &staged, &mut out)
            }
            RowOp::Linear { parts, bias, form } => {
                let bias = bias.as_deref().map(|bias| device.vector(bias));
                let weight = device.weight(parts);
                if matches!(form, Form::Onto) {
                    out = bufs.pop().expect("an input to add to");
                }
                form.run(device, &bufs[0], (&weight, bias.as_ref()), &mut out);
            }
            RowOp::Norm { center, gain, kind, bias } => {
                let bias = bias.as_deref().map(|bias| device.vector(bias));
                let gain = &device.vector(gain);
                let (center, kind, bias) = (*center, *kind, bias.as_ref());
                let norm = RowNorm { center, gain, kind, bias, eps: EPS };
                device.norm(&bufs[0], norm, &mut out)
            }
            RowOp::Glu { activation, .. } => device.glu(&bufs[0], *activation, &mut out),
            RowOp::Gather { .. } => {
                let mut staged = device.staged(n);
                device.stage(&batch(vec![0; n]), &mut staged);
                device.gather(&bufs[0], &staged, &mut out)
            }
            RowOp::Experts(mixture) => mixture.run(device, &bufs[0], &bufs[1], &mut out),
            RowOp::Add { scale, .. } => {
                out = bufs.swap_remove(0);
                device.add(&mut out, &bufs[0], *scale);
            }
            RowOp::Scale { by, .. } => {
                out = bufs.swap_remove(0);
                device.scale(&mut out, *by);
            }
            RowOp::SoftCap { cap, .. } => {
                out = bufs.swap_remove(0);
                device.soft_cap(&mut out, *cap);
            }
            RowOp::Gate { .. } => {
                out = bufs.swap_remove(0);
                device.gate(&mut out, &bufs[0]);
            }
            RowOp::Join { .. } => device.join(&bufs[0], &bufs[1], &mut out),
            RowOp::AddGated { .. } => {
                out = bufs.remove(0);
                device.add_gated(&mut out, &bufs[0], &bufs[1]);
            }
            RowOp::Latent(op) => op.run(device, &bufs, &mut out),
        }
        download(device, &out, n, self.out_cols())
    }
}

/// A sequence for each row, at these positions.
fn apart(positions: &[f32]) -> Batch {
    let span = |(r, position): (usize, &f32)| {
        let start = *position as usize;
        Span::new(r..r + 1, start, (0..=(start / BLOCK) as u32).collect())
    };
    let spans = positions.iter().enumerate().map(span).collect();
    Batch { tokens: vec![0; positions.len()], spans, want: Vec::new() }
}

impl Form {
    fn name(&self) -> String {
        match self {
            Form::Plain => "plain".into(),
            Form::Normed(_) => "normed".into(),
            Form::Onto => "onto".into(),
            Form::Activated(_, activation) => format!("layer-normed, then {activation:?}"),
            Form::Gated(_, activation) => format!("normed and gated by {activation:?}"),
        }
    }

    fn roundings(&self, parts: &[Matrix]) -> f32 {
        let product = |before: usize| {
            let of = |part: &Matrix| of_product(part.packing, part.cols, before);
            // And the bias.
            parts.iter().map(of).fold(0.0, f32::max) + 1.0
        };
        match self {
            Form::Plain => product(0),
            Form::Onto => product(0) + 1.0,
            Form::Normed(_) => product(2),
            // A product of two results and a steep function: their errors add up.
            Form::Activated(..) | Form::Gated(..) => 3.0 * product(2) + ACTIVATION + 1.0,
        }
    }

    fn run<B: Backend>(
        &self,
        device: &B,
        x: &B::Buf,
        (weight, bias): (&B::Weight, Option<&B::Vector>),
        out: &mut B::Buf,
    ) {
        let gain = match self {
            Form::Normed(gain) | Form::Activated(gain, _) | Form::Gated(gain, _) => {
                Some(device.vector(gain))
            }
            Form::Plain | Form::Onto => None,
        };
        let center = match self {
            Form::Activated(..) => NormCenter::Mean,
            _ => NormCenter::Zero,
        };
        let norm = |gain| RowNorm { center, ..RowNorm::rms(gain, NormGain::Stored, EPS) };
        let x = match &gain {
            Some(gain) => Input::Normed { x, norm: norm(gain) },
            None => Input::Rows(x),
        };
        let out = match self {
            Form::Plain | Form::Normed(_) => Output::Into(out),
            Form::Onto => Output::Onto(out),
            Form::Activated(_, activation) => Output::Activated(*activation, out),
            Form::Gated(_, activation) => Output::Gated(*activation, out),
        };
        device.linear(x, weight, bias, out);
    }
}

fn n_outputs(parts: &[Matrix]) -> usize {
    parts.iter().map(|part| part.rows).sum()
}

/// Every packing there is.
fn packings() -> Vec<Packing> {
    let mut all: Vec<Packing> =
        [Float::F32, Float::F16, Float::Bf16].into_iter().map(Packing::Plain).collect();
    for (i, bits) in [2, 3, 4, 5, 6, 8].into_iter().enumerate() {
        for (j, group) in [32, 64, 128].into_iter().enumerate() {
            let scale = [Float::F32, Float::F16, Float::Bf16][(i + j) % 3];
            all.push(Packing::Affine { bits, group, scale });
        }
    }
    all.extend([Packing::Mxfp4, Packing::Mxfp8, Packing::Nvfp4]);
    all.push(Packing::Fp8Blocks { rows: 16, cols: 32 });
    use GgufType::*;
    let types = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Mxfp4];
    all.extend(types.into_iter().map(Packing::Gguf));
    all
}

fn ops(rng: &mut Rng) -> Vec<RowOp> {
    let mut ops = Vec::new();
    ops.extend(packing_ops(packings(), rng));
    ops.extend(mixed_ops(rng));
    ops.extend(formed_ops(rng));
    ops.extend(experts::mixtures(rng).into_iter().map(Box::new).map(RowOp::Experts));
    for cols in [1, 7, 64, 577] {
        let gain = rng.vector(cols);
        for (center, kind, bias) in norms(rng, cols) {
            ops.push(RowOp::Norm { center, gain: gain.clone(), kind, bias });
        }
        for activation in Activation::ALL {
            ops.push(RowOp::Glu { cols, activation });
        }
        ops.push(RowOp::Add { cols, scale: 1.0 });
        ops.push(RowOp::Add { cols, scale: 0.22 });
        ops.push(RowOp::Scale { cols, by: 0.0625 });
        ops.push(RowOp::Gather { cols });
        ops.push(RowOp::SoftCap { cols, cap: 2.5 });
        ops.push(RowOp::Gate { cols });
        ops.push(RowOp::AddGated { cols });
    }
    // Drawn apart, so that the numbers of those before stay what they were.
    ops.extend(packing_ops(compressed_packings(), &mut rng.apart(21)));
    ops.extend(latent::ops(&mut rng.apart(22), packings()));
    let rng = &mut rng.apart(23);
    for packing in [Packing::Plain(Float::Bf16), Packing::Gguf(GgufType::Q8_0)] {
        ops.push(RowOp::AddPositions { table: rng.matrix(packing, 70, 96) });
    }
    ops.extend([(1, 1), (7, 64), (577, 32)].map(|(left, right)| RowOp::Join { left, right }));
    ops
}

/// An embedding and a linear layer of each packing.
fn packing_ops(packings: Vec<Packing>, rng: &mut Rng) -> Vec<RowOp> {
    let mut ops = Vec::new();
    for packing in packings {
        let cols = packing.granule().max(32) * (1 + rng.below(3));
        ops.push(RowOp::Embed { table: rng.matrix(packing, 11, cols), scale: 1.0 });
        let rows = 1 + rng.below(70);
        let bias = (rng.below(2) == 0).then(|| rng.vector(rows));
        ops.push(plain(vec![rng.matrix(packing, rows, cols)], bias));
    }
    ops
}

/// Those of compressed-tensors.
fn compressed_packings() -> Vec<Packing> {
    let divided = [Packing::DividedNvfp4(F32Bits::new(0.37))].into_iter();
    divided.chain([32, 64, 128].map(|group| Packing::Int8 { group, scale: Float::Bf16 })).collect()
}

/// Every kind of norm, with and without a bias of `cols` numbers.
fn norms(rng: &mut Rng, cols: usize) -> [(NormCenter, NormGain, Option<Vec<f32>>); 4] {
    [
        (NormCenter::Zero, NormGain::Stored, None),
        (NormCenter::Zero, NormGain::OnePlus, None),
        (NormCenter::Mean, NormGain::Stored, None),
        (NormCenter::Mean, NormGain::OnePlus, Some(rng.vector(cols))),
    ]
}

/// Weights of several parts, columns that fill no vector, a scaled embedding.
fn mixed_ops(rng: &mut Rng) -> Vec<RowOp> {
    let float = Packing::Plain(Float::F32);
    let q4 = Packing::Affine { bits: 4, group: 64, scale: Float::F16 };
    let q6 = Packing::Gguf(GgufType::Q6K);
    let parts = [(q4, 48), (q6, 16), (float, 5)];
    let parts = parts.map(|(packing, rows)| rng.matrix(packing, rows, 256)).to_vec();
    vec![
        plain(parts, Some(rng.vector(69))),
        plain(vec![rng.matrix(float, 9, 1)], None),
        plain(vec![rng.matrix(float, 33, 101)], None),
        plain(vec![rng.matrix(q4, 130, 576)], None),
        RowOp::Embed { table: rng.matrix(float, 5, 33), scale: 8.485_281 },
        RowOp::Embed { table: rng.matrix(q4, 5, 64), scale: 5.5 },
    ]
}

fn plain(parts: Vec<Matrix>, bias: Option<Vec<f32>>) -> RowOp {
    RowOp::Linear { parts, bias, form: Form::Plain }
}

/// Linear layers that do more than multiply: of one part and of several, cut where gate and up do
/// not end at the same places of a panel, packed and not.
fn formed_ops(rng: &mut Rng) -> Vec<RowOp> {
    let float = Packing::Plain(Float::Bf16);
    let q4 = Packing::Affine { bits: 4, group: 64, scale: Float::F16 };
    let q4_k = Packing::Gguf(GgufType::Q4K);
    let mut ops = Vec::new();
    // Small, so that gates are not so far below zero that nothing of them is left.
    let gain: Vec<f32> = (128..384).map(|i| rng.held(i as f32 / 4096.0)).collect();
    for parts in [vec![(q4, 74)], vec![(q4, 37), (q4_k, 37)], vec![(q4_k, 9), (float, 1)]] {
        let mut op = |form| {
            let parts: Vec<Matrix> =
                parts.iter().map(|(packing, rows)| rng.matrix(*packing, *rows, 256)).collect();
            let bias = (rng.below(2) == 0).then(|| rng.vector(n_outputs(&parts)));
            ops.push(RowOp::Linear { parts, bias, form });
        };
        op(Form::Onto);
        op(Form::Normed(gain.clone()));
        // The others cut off so much that nothing is left of a short row to measure an error by.
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::GeluErf] {
            op(Form::Activated(gain.clone(), activation));
            op(Form::Gated(gain.clone(), activation));
        }
    }
    ops
}

pub(super) fn check<B: Backend>(device: &B, tolerance: Tolerance) {
    let rng = &mut Rng::new(1);
    for op in ops(rng) {
        for n in [1, 2, 5, 1 + rng.below(40)] {
            let inputs = op.inputs(n, rng);
            let (got, want) = (op.run(device, &inputs), op.run(&Reference, &inputs));
            assert_close(&op.name(), &got, &want, op.tolerance(tolerance));
        }
    }
    check_gather(device, rng);
}

/// Many rows at once, and the first of them alone: devices have other kernels for one.
pub(super) fn check_rounded<B: Backend>(device: &B, rounding: &Rounding) {
    let rng = &mut rounding.rng(1);
    for op in ops(rng) {
        let inputs = op.inputs(41, rng);
        let want = op.run(&Reference, &inputs);
        let limits: Vec<f32> = sizes(&want).iter().map(|size| size * op.roundings()).collect();
        for rows in [0..41, 0..1] {
            let some: Vec<Rows> = inputs.iter().map(|x| x.range(rows.clone())).collect();
            let (got, limits) = (op.run(device, &some), &limits[rows.clone()]);
            let what = format!("{}, {} rows", op.name(), rows.len());
            rounding.assert_within(&what, &got, &want.range(rows), limits);
        }
    }
    check_gather(device, rng);
}

/// A gather copies exactly the wanted rows.
fn check_gather<B: Backend>(device: &B, rng: &mut Rng) {
    let x = rng.rows(10, 33);
    let mut asked = batch(vec![0; 10]);
    asked.want = vec![2, 3, 9];
    let (buf, mut out) = (upload(device, &x), device.buf(3 * 33));
    let mut staged = device.staged(10);
    device.stage(&asked, &mut staged);
    device.gather(&buf, &staged, &mut out);
    let want = [2, 3, 9].iter().flat_map(|r| x.row(*r).to_vec()).collect();
    let want = Rows { rows: 3, cols: 33, data: want };
    assert_same_bits("gather", &download(device, &out, 3, 33), &want);
}

pub(super) fn check_invariance<B: Backend>(device: &B) {
    let rng = &mut Rng::new(3);
    let n = 37;
    for op in ops(rng) {
        let inputs = op.inputs(n, rng);
        let together = op.run(device, &inputs);
        for chunk in [1, 2, 3, 7, 16] {
            for first in (0..n).step_by(chunk) {
                let range = first..(first + chunk).min(n);
                let some: Vec<Rows> = inputs.iter().map(|x| x.range(range.clone())).collect();
                let what = format!("{} in chunks of {chunk} from {first}", op.name());
                assert_same_bits(&what, &op.run(device, &some), &together.range(range));
            }
        }
    }
}

pub(super) fn check_equal<A: Backend, B: Backend>(a: &A, b: &B) {
    let rng = &mut Rng::new(6);
    for op in ops(rng) {
        for n in [1, 6, 37] {
            let inputs = op.inputs(n, rng);
            assert_same_bits(&op.name(), &op.run(a, &inputs), &op.run(b, &inputs));
        }
    }
}
