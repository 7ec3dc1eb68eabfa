//! The reference's ops give PyTorch's numbers. The fixture is made by `tools/goldens/backend_ops.py`.

use std::collections::HashMap;

use hearth_backend::ops::{AttentionOps, DenseOps, Memory, MoeOps, RowNorm};
use hearth_backend::reference::{Buf, Reference, Weight};
use hearth_backend::{
    Activation, Attention, BLOCK, Batch, Experts, Gating, KvFormat, NormCenter, NormGain, Rope,
    RopeLayout, Span,
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
    let mut x = x;
    Reference.soft_cap(&mut x, 1.5);
    golden.check("soft_cap", &x);
}

const LAYER: Attention = Attention {
    heads: 4,
    kv_heads: 2,
    head_dim: 8,
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
    for (name, spec) in [
        ("attend", LAYER),
        ("attend_window", Attention { window: Some(5), ..LAYER }),
        ("attend_soft_cap", Attention { soft_cap: Some(2.0), ..LAYER }),
    ] {
        let mut pages = Reference.pages(&spec, KvFormat::F16, 2);
        let mut out = Reference.buf(40 * spec.q_cols());
        Reference.attend(&qkv, &spec, &mut pages, &sequence(40), &mut out);
        golden.check(name, &out);
    }
}

#[test]
fn experts_are_pytorchs() {
    let golden = Golden::read();
    let (x, router) = (golden.rows("moe_x", 6), golden.rows("router", 4));
    let (gate_up, down) = (golden.weight("gate_up", 6), golden.weight("down", 3));
    for (name, gating) in
        [("moe_softmax", Gating::Softmax), ("moe_renormalised", Gating::SoftmaxRenormalised)]
    {
        let activation = Activation::Silu;
        let spec = Experts { n: 4, top_k: 2, inner: 3, gating, routed_scale: 1.0, activation };
        let mut out = Reference.buf(30);
        Reference.experts(&x, &router, &spec, &gate_up, &down, &mut out);
        golden.check(name, &out);
    }
    let (mut x, y) = (x, golden.rows("flipped", 6));
    Reference.add_gated(&mut x, &golden.rows("gates", 1), &y);
    golden.check("add_gated", &x);
}
