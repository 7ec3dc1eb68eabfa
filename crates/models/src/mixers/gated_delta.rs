//! A gated delta rule: projections to everything a row brings along, one op, one projection back.

use backend::ops::{ConvWeights, DeltaRows, DeltaWeights, Input, Output};
use backend::{Backend, DeltaLayout, GatedDelta, NormGain, ReadOrder};
use weights::Matrix;

use super::conv::{self, Conv};
use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::Bias;
use crate::step::Wiring;

/// The name of a part of layer `parent`.
fn name(shape: &GatedDelta, parent: &str, part: &str) -> String {
    let mixer = match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => "linear_attn",
        DeltaLayout::Apart => "self_attn",
    };
    format!("{parent}.{mixer}.{part}")
}

/// The projections whose outputs are a row of the layout.
fn inputs(shape: &GatedDelta, parent: &str, hidden: usize) -> Vec<Linear> {
    let linear = |part, rows| Linear::new(name(shape, parent, part), rows, hidden);
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
        DeltaLayout::Apart => vec![
            linear("q_proj", shape.k_cols()),
            linear("k_proj", shape.k_cols()),
            linear("v_proj", shape.v_cols()),
            linear("b_proj", shape.v_heads),
        ],
    }
}

/// The two projections each, one behind the other, to gates and to decays, where these are rows of
/// their own.
fn gates(shape: &GatedDelta, parent: &str, hidden: usize) -> Option<[[Linear; 2]; 2]> {
    let pair = |[first, second]: [&str; 2], rows| {
        [
            Linear::new(name(shape, parent, first), shape.k_dim, hidden),
            Linear::new(name(shape, parent, second), rows, shape.k_dim),
        ]
    };
    match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => None,
        DeltaLayout::Apart => Some([
            pair(["g_a_proj", "g_b_proj"], shape.v_cols()),
            pair(["f_a_proj", "f_b_proj"], shape.decay_cols()),
        ]),
    }
}

fn output(shape: &GatedDelta, parent: &str, hidden: usize) -> Linear {
    let part = match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => "out_proj",
        DeltaLayout::Apart => "o_proj",
    };
    Linear::new(name(shape, parent, part), hidden, shape.v_cols())
}

/// The convolutions of layer `parent`, whose columns follow one another.
pub(crate) fn convs(shape: &GatedDelta, parent: &str) -> Vec<Conv> {
    let conv = |part, cols| {
        let name = name(shape, parent, part);
        Conv { name, cols, taps: shape.taps, bias: Bias::Absent }
    };
    match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => vec![conv("conv1d", shape.conv_cols())],
        DeltaLayout::Apart => vec![
            conv("q_conv1d", shape.k_cols()),
            conv("k_conv1d", shape.k_cols()),
            conv("v_conv1d", shape.v_cols()),
        ],
    }
}

fn norm_name(shape: &GatedDelta, parent: &str) -> String {
    let part = match shape.layout {
        DeltaLayout::ByKind | DeltaLayout::ByHead => "norm",
        DeltaLayout::Apart => "o_norm",
    };
    name(shape, parent, part)
}

pub(super) fn modules(shape: &GatedDelta, parent: &str, hidden: usize) -> Vec<Module> {
    let linears = inputs(shape, parent, hidden).into_iter().chain([output(shape, parent, hidden)]);
    let gates = gates(shape, parent, hidden).into_iter().flatten().flatten();
    let vector = |part, len| Module::Vector { name: name(shape, parent, part), shape: vec![len] };
    let small = [
        vector("A_log", shape.v_heads),
        vector("dt_bias", shape.decay_cols()),
        Module::Gain { name: norm_name(shape, parent), len: shape.v_dim, kind: NormGain::Stored },
    ];
    let convs = convs(shape, parent).into_iter().flat_map(|conv| conv.modules());
    linears.chain(gates).map(Module::Linear).chain(convs).chain(small).collect()
}

pub(super) fn measure(shape: &GatedDelta, sizes: &mut ScratchSizes) {
    sizes.qkv = sizes.qkv.max(shape.row_cols());
    sizes.attended = sizes.attended.max(shape.v_cols());
    if shape.layout == DeltaLayout::Apart {
        sizes.gate = sizes.gate.max(shape.v_cols());
        sizes.decays = sizes.decays.max(shape.decay_cols());
        sizes.low = sizes.low.max(shape.k_dim);
    }
}

/// A gated delta rule on a device.
pub(crate) struct GatedDeltaWeights<B: Backend> {
    shape: GatedDelta,
    inputs: LinearWeights<B>,
    gates: Option<[[LinearWeights<B>; 2]; 2]>,
    taps: B::Vector,
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
        let numbers = |part, len| loader.numbers(&name(shape, parent, part), len);
        let linear = |linear| LinearWeights::load(loader, b, &[linear]);
        let gates = match gates(shape, parent, hidden) {
            Some([[g_a, g_b], [f_a, f_b]]) => {
                Some([[linear(g_a)?, linear(g_b)?], [linear(f_a)?, linear(f_b)?]])
            }
            None => None,
        };
        Ok(GatedDeltaWeights {
            inputs: LinearWeights::of(b, &input_matrices(loader, shape, parent)?, None),
            gates,
            taps: b.vector(&taps(loader, &convs(shape, parent), shape.taps)?),
            a_log: b.vector(&numbers("A_log", shape.v_heads)?),
            dt_bias: b.vector(&numbers("dt_bias", shape.decay_cols())?),
            gain: b.vector(&loader.gain(&norm_name(shape, parent), shape.v_dim)?),
            out: linear(output(shape, parent, hidden))?,
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
        let rows = match &self.gates {
            None => DeltaRows::whole(&s.qkv),
            Some(gates) => {
                for ([first, second], out) in gates.iter().zip([&mut s.gate, &mut s.decays]) {
                    first.apply(b, wiring.input(&s.x), Output::Into(&mut s.low));
                    second.apply(b, Input::Rows(&s.low), Output::Into(out));
                }
                DeltaRows { qkv: &s.qkv, z: &s.gate, a: &s.decays }
            }
        };
        let GatedDeltaWeights { taps, a_log, dt_bias, gain, .. } = self;
        let conv = ConvWeights { taps, bias: None };
        let weights = DeltaWeights { conv, a_log, dt_bias, gain };
        b.gated_delta(rows, weights, &self.shape, states, pass.batch, &mut s.attended);
        wiring.finish(b, (&self.out, &s.attended), &mut s.x, &mut s.y);
    }
}

/// The rows of the layout, where they are stored.
fn input_matrices(loader: &Loader, shape: &GatedDelta, parent: &str) -> Result<Vec<Matrix>, Error> {
    let linears = inputs(shape, parent, loader.spec().hidden);
    let stored = linears.iter().map(|linear| loader.matrix(linear)).collect::<Result<_, _>>()?;
    Ok(match (shape.read_order, shape.layout) {
        (ReadOrder::InTurn, DeltaLayout::ByKind) => by_key_head(shape, stored),
        _ => stored,
    })
}

/// `[q | k | v]`, gates, strengths and decays with the heads of values and gates by key head. They are
/// stored in turn, as what is read is.
fn by_key_head(shape: &GatedDelta, stored: Vec<Matrix>) -> Vec<Matrix> {
    let mut parts = Vec::new();
    for (i, matrix) in stored.into_iter().enumerate() {
        let first = match i {
            0 => 2 * shape.k_cols(),
            1 => 0,
            _ => {
                parts.push(matrix);
                continue;
            }
        };
        if first > 0 {
            parts.push(matrix.rows_range(0..first));
        }
        for head in 0..shape.v_heads {
            let at = head % shape.group() * shape.k_heads + head / shape.group();
            let start = first + at * shape.v_dim;
            parts.push(matrix.rows_range(start..start + shape.v_dim));
        }
    }
    parts
}

/// Taps of all columns row by row, the oldest row first.
fn taps(loader: &Loader, convs: &[Conv], n_taps: usize) -> Result<Vec<f32>, Error> {
    let parts = convs.iter().map(|conv| Ok(conv::load(loader, conv)?.0));
    let parts = parts.collect::<Result<Vec<_>, Error>>()?;
    let row = |t: usize| {
        let part =
            move |(taps, conv): (&Vec<f32>, &Conv)| taps[t * conv.cols..][..conv.cols].to_vec();
        parts.iter().zip(convs).flat_map(part)
    };
    Ok((0..n_taps).flat_map(row).collect())
}
