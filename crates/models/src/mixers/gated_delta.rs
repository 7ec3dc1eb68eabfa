//! A gated delta rule: one projection to everything a row brings along, one op, one projection back.

use backend::ops::{DeltaWeights, Output};
use backend::{Backend, DeltaLayout, GatedDelta, NormGain};

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::step::Wiring;

/// The name of a part of layer `parent`.
fn name(parent: &str, part: &str) -> String {
    format!("{parent}.linear_attn.{part}")
}

/// The full name of the convolution's taps in layer `parent`.
pub(crate) fn conv_name(parent: &str) -> String {
    name(parent, "conv1d.weight")
}

/// The projections whose outputs are a row of the layout.
fn inputs(shape: &GatedDelta, parent: &str, hidden: usize) -> Vec<Linear> {
    let linear = |part, rows| Linear::new(name(parent, part), rows, hidden);
    match shape.layout {
        DeltaLayout::ByKind => vec![
            linear("in_proj_qkv", shape.conv_cols()),
            linear("in_proj_z", shape.v_cols()),
            linear("in_proj_b", shape.v_heads),
            linear("in_proj_a", shape.v_heads),
        ],
        DeltaLayout::ByHead => vec![
            linear("in_proj_qkvz", shape.conv_cols() + shape.v_cols()),
            linear("in_proj_ba", 2 * shape.v_heads),
        ],
    }
}

fn output(shape: &GatedDelta, parent: &str, hidden: usize) -> Linear {
    Linear::new(name(parent, "out_proj"), hidden, shape.v_cols())
}

pub(super) fn modules(shape: &GatedDelta, parent: &str, hidden: usize) -> Vec<Module> {
    let linears = inputs(shape, parent, hidden).into_iter().chain([output(shape, parent, hidden)]);
    let vector =
        |part, shape: &[usize]| Module::Vector { name: name(parent, part), shape: shape.to_vec() };
    let kind = NormGain::Stored;
    let small = [
        vector("conv1d.weight", &[shape.conv_cols(), 1, shape.taps]),
        vector("A_log", &[shape.v_heads]),
        vector("dt_bias", &[shape.v_heads]),
        Module::Gain { name: name(parent, "norm"), len: shape.v_dim, kind },
    ];
    linears.map(Module::Linear).chain(small).collect()
}

pub(super) fn measure(shape: &GatedDelta, sizes: &mut ScratchSizes) {
    sizes.qkv = sizes.qkv.max(shape.row_cols());
    sizes.attended = sizes.attended.max(shape.v_cols());
}

/// A gated delta rule on a device.
pub(crate) struct GatedDeltaWeights<B: Backend> {
    shape: GatedDelta,
    inputs: LinearWeights<B>,
    conv: B::Vector,
    a_log: B::Vector,
    dt_bias: B::Vector,
    gain: B::Vector,
    out: LinearWeights<B>,
}

impl<B: Backend> GatedDeltaWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        shape: &GatedDelta,
        parent: &str,
    ) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let heads = |part| loader.numbers(&name(parent, part), shape.v_heads);
        let (cols, taps) = (shape.conv_cols(), shape.taps);
        // Stored column by column, the taps of each together.
        let stored = loader.numbers(&conv_name(parent), cols * taps)?;
        let conv: Vec<f32> =
            (0..taps).flat_map(|t| stored.iter().skip(t).step_by(taps).copied()).collect();
        Ok(GatedDeltaWeights {
            inputs: LinearWeights::load(loader, b, &inputs(shape, parent, hidden))?,
            conv: b.vector(&conv),
            a_log: b.vector(&heads("A_log")?),
            dt_bias: b.vector(&heads("dt_bias")?),
            gain: b.vector(&loader.gain(&name(parent, "norm"), shape.v_dim)?),
            out: LinearWeights::load(loader, b, &[output(shape, parent, hidden)])?,
            shape: shape.clone(),
        })
    }

    pub(super) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        states: &mut B::States,
        s: &mut Scratch<B>,
    ) {
        self.inputs.apply(b, wiring.input(&s.x), Output::Into(&mut s.qkv));
        let GatedDeltaWeights { conv, a_log, dt_bias, gain, .. } = self;
        let weights = DeltaWeights { conv, a_log, dt_bias, gain };
        b.gated_delta(&s.qkv, weights, &self.shape, states, pass.batch, &mut s.attended);
        wiring.finish(b, (&self.out, &s.attended), &mut s.x, &mut s.y);
    }
}
