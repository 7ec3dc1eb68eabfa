//! The reference's ops give PyTorch's numbers. The fixture is made by `tools/goldens/backend_ops.py`.

use std::collections::HashMap;

use hearth_backend::ops::{
    AttentionLayer, AttentionOps, DenseOps, ExpertWeights, Memory, MoeOps, RowNorm,
};
use hearth_backend::reference::{Buf, Reference, Weight};
use hearth_backend::{
    Activation, Attention, BLOCK, Batch, Divisor, ExpertForm, Experts, GateUpRows, Gating, Glu,
    GroupMerit, Groups, KvFormat, NormCenter, NormGain, Rope, RopeLayout, Span, Values,
};
use weights::{Float, Matrix, Packing};

struct Golden(HashMap<&'static str, Vec<f32>>);

impl Golden {
    fn read() -> Golden {
        let line = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next().expect("every line has a name");
            (name, words.map(|word| word.parse().expect("the rest are numbers")).collect())
        };
        Golden(include_str!("fixtures/ops.txt").lines().map(line).collect())
    }

    fn weight(&self, name: &str, cols: usize) -> Weight {
        let values = &self.0[name];
        let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Reference.weight(&[Matrix {
            name: name.into(),
            rows: values.len() / cols,
            cols,
            packing: Packing::Plain(Float::F32),
            data: data.into(),
            scales: Default::default(),
            biases: Default::default(),
        }])
    }

    /// The rows of an array, in a buffer.
    fn rows(&self, name: &str, cols: usize) -> Buf {
        let n = self.0[name].len() / cols;
        let mut buf = Reference.buf(n * cols);
        Reference.embed(&self.weight(name, cols), &sequence(n), 1.0, &mut buf);
        buf
    }

    fn check(&self, name: &str, got: &Buf) {
        let (want, mut out) = (&self.0[name], Vec::new());
        Reference.read(got, want.len(), &mut out).expect("the reference cannot fail");
        for (i, (got, want)) in out.iter().zip(want).enumerate() {
            assert!((got - want).abs() <= 2e-6 * (1.0 + want.abs()), "{name}[{i}]: {got}, {want}");
        }
    }
}

/// One sequence of `n` rows, whose tokens count up.
fn sequence(n: usize) -> Batch {
    let blocks = (0..n.div_ceil(BLOCK) as u32).rev().collect();
    let tokens = (0..n as u32).collect();
    Batch { tokens, spans: vec![Span::new(0..n, 0, blocks)], want: Vec::new() }
}

#[test]
fn row_ops_are_pytorchs() {
    let golden = Golden::read();
    let x = golden.rows("x", 10);
    let mut out = Reference.buf(30);
    for (name, activation) in [
        ("silu", Activation::Silu),
        ("gelu_tanh", Activation::GeluTanh),
        ("gelu_erf", Activation::GeluErf),
        ("relu", Activation::Relu),
        ("relu_squared", Activation::ReluSquared),
    ] {
        Reference.glu(&x, activation, &mut out);
        golden.check(name, &out);
    }
    let gain = &golden.0["gain"];
    for (name, kind) in [("norm_stored", NormGain::Stored), ("norm_one_plus", NormGain::OnePlus)] {
        Reference.norm(&x, RowNorm::rms(gain, kind, 1e-5), &mut out);
        golden.check(name, &out);
    }
    let layer_norm =
        RowNorm { center: NormCenter::Mean, ..RowNorm::rms(gain, NormGain::Stored, 1e-5) };
    for (name, bias) in [("layer_norm", Some(&golden.0["bias"])), ("layer_norm_without_bias", None)]
    {
        Reference.norm(&x, RowNorm { bias, ..layer_norm }, &mut out);
        golden.check(name, &out);
    }
    // Rows beside others that are shorter.
    let mut both = Reference.buf(60);
    Reference.join(&x, &golden.rows("flipped_x", 4), &mut both);
    golden.check("joined", &both);
    let mut placed = golden.rows("x", 10);
    Reference.add_positions(&golden.weight("positions", 10), &sequence(3), &mut placed);
    golden.check("placed", &placed);
    let mut x = x;
    Reference.soft_cap(&mut x, 1.5);
    golden.check("soft_cap", &x);
}

const LAYER: Attention = Attention {
    heads: 4,
    kv_heads: 2,
    head_dim: 8,
    values: Values::Own(8),
    scale: 0.5,
    window: None,
    growth: None,
    soft_cap: None,
};

#[test]
fn rotation_is_pytorchs() {
    let golden = Golden::read();
    for (name, layout) in
        [("rope_halves", RopeLayout::Halves), ("rope_interleaved", RopeLayout::Interleaved)]
    {
        let rope = Rope { inv_freq: golden.0["inv_freq"].clone(), attention_factor: 1.25, layout };
        let mut angles = Reference.buf(40 * 6);
        Reference.angles(&rope, &sequence(40), &mut angles);
        let mut qkv = golden.rows("qkv", LAYER.qkv_cols());
        Reference.rope(&mut qkv, &LAYER, None, Some((&rope, &angles)));
        golden.check(name, &qkv);
    }
}

#[test]
fn attention_is_pytorchs() {
    let golden = Golden::read();
    let qkv = golden.rows("qkv", LAYER.qkv_cols());
    for (name, spec, sinks) in [
        ("attend", LAYER, None),
        ("attend_window", Attention { window: Some(5), ..LAYER }, None),
        ("attend_soft_cap", Attention { soft_cap: Some(2.0), ..LAYER }, None),
        ("attend_sinks", LAYER, Some(&golden.0["sinks"])),
    ] {
        let mut pages = Reference.pages(&spec, KvFormat::F16, 2);
        let mut out = Reference.buf(40 * spec.out_cols());
        let layer = AttentionLayer { spec: &spec, sinks };
        Reference.attend(&qkv, layer, &mut pages, &sequence(40), &mut out);
        golden.check(name, &out);
    }
}

#[test]
fn experts_are_pytorchs() {
    let golden = Golden::read();
    let (x, router) = (golden.rows("moe_x", 6), golden.rows("router", 4));
    let weights = ExpertWeights {
        gate_up: &golden.weight("gate_up", 6),
        gate_up_bias: None,
        down: &golden.weight("down", 3),
        down_bias: None,
        correction: None,
        scales: None,
    };
    for (name, gating) in
        [("moe_softmax", Gating::SOFTMAX), ("moe_renormalised", Gating::SOFTMAX_OF_CHOSEN)]
    {
        let mut out = Reference.buf(30);
        Reference.experts(&x, &router, &mixture(4, gating), weights, &mut out);
        golden.check(name, &out);
    }
    let (mut x, y) = (x, golden.rows("flipped", 6));
    Reference.add_gated(&mut x, &golden.rows("gates", 1), &y);
    golden.check("add_gated", &x);
}

/// Two of `n` experts of 3 columns.
fn mixture(n: usize, gating: Gating) -> Experts {
    let form = ExpertForm::gated(Activation::Silu);
    Experts { n, top_k: 2, inner: 3, gating, routed_scale: 1.0, form }
}

#[test]
fn corrections_groups_and_biases_are_pytorchs() {
    let golden = Golden::read();
    let (x, router) = (golden.rows("moe_x", 6), golden.rows("many_router", 8));
    let weights = ExpertWeights {
        gate_up: &golden.weight("many_gate_up", 6),
        gate_up_bias: Some(&golden.0["gate_up_bias"]),
        down: &golden.weight("many_down", 3),
        down_bias: Some(&golden.0["down_bias"]),
        correction: Some(&golden.0["correction"]),
        scales: None,
    };
    let groups = |kept| Some(Groups { n: 4, kept, merit: GroupMerit::TwoLargest });
    for (name, groups, divisor) in [
        ("moe_sigmoid", None, Divisor::One),
        ("moe_groups", groups(2), Divisor::SumPlus(0.25)),
        ("moe_at_least", groups(1), Divisor::SumAtLeast(1.25)),
    ] {
        let spec = Experts {
            routed_scale: 1.5,
            form: ExpertForm::Gated {
                glu: Glu::ClampedSwish { slope: 1.702, limit: 3.0 },
                rows: GateUpRows::Interleaved,
            },
            ..mixture(8, Gating { groups, divisor, ..Gating::SIGMOID })
        };
        let mut out = Reference.buf(30);
        Reference.experts(&x, &router, &spec, weights, &mut out);
        golden.check(name, &out);
    }
}
