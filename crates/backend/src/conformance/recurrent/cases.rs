//! Layers of every kind with random weights, and how each is run. Not the checks.

use super::super::data::{Rng, Rows, upload};
use crate::ops::{ConvWeights, DeltaRows, DeltaWeights, Mamba2Weights};
use crate::{
    Backend, DeltaLayout, DeltaRule, GatedDelta, Mamba2, MambaGate, MambaScales, ReadOrder,
    Recurrence, ShortConv,
};

/// A layer, and the rows of some sequences.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) spec: Recurrence,
    /// What the layer's op wants, in the order that [`run`] takes it.
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) sequences: Vec<Rows>,
}

pub(super) fn cases(rng: &mut Rng) -> Vec<Case> {
    let lengths = [[40, 1, 33], [65, 7, 3], [5, 97, 32]].into_iter().cycle();
    let specs = deltas().into_iter().chain(mambas()).chain(short_convs());
    let case = |(spec, lengths): (Recurrence, [usize; 3])| Case {
        vectors: vectors(&spec, rng),
        sequences: lengths.map(|n| rng.rows(n, whole_cols(&spec))).to_vec(),
        spec,
    };
    specs.zip(lengths).map(case).collect()
}

fn deltas() -> Vec<Recurrence> {
    use DeltaLayout::{Apart, ByHead, ByKind};
    use DeltaRule::{PerChannel, PerHead};
    let layer = |(sizes, taps, layout, rule): ([usize; 4], usize, DeltaLayout, DeltaRule)| {
        let [k_heads, v_heads, k_dim, v_dim] = sizes;
        let eps = 1e-5;
        Recurrence::GatedDelta(GatedDelta {
            k_heads,
            v_heads,
            k_dim,
            v_dim,
            taps,
            eps,
            rule,
            layout,
            read_order: ReadOrder::ByKeyHead,
        })
    };
    let layers = [
        ([1, 1, 32, 32], 4, ByKind, PerHead),
        ([2, 4, 32, 64], 4, ByKind, PerHead),
        ([2, 4, 32, 64], 4, ByHead, PerHead),
        // Nothing a vector register would like.
        ([3, 3, 20, 12], 2, ByHead, PerHead),
        ([2, 6, 7, 33], 3, ByKind, PerHead),
        ([2, 4, 128, 128], 4, ByHead, PerHead),
        ([2, 2, 32, 32], 4, Apart, PerChannel),
        ([3, 3, 21, 12], 3, ByKind, PerChannel),
        ([2, 2, 128, 128], 4, Apart, PerChannel),
    ];
    let mut all = layers.map(layer).to_vec();
    for i in [1, 4] {
        let Recurrence::GatedDelta(spec) = &all[i] else { continue };
        let read_order = ReadOrder::InTurn;
        all.push(Recurrence::GatedDelta(GatedDelta { read_order, ..spec.clone() }));
    }
    all
}

fn mambas() -> Vec<Recurrence> {
    let wide = [0.0, f32::INFINITY];
    let layer = |(sizes, taps, dt_limit, gate): ([usize; 4], usize, [f32; 2], MambaGate)| {
        let [heads, head_dim, groups, state] = sizes;
        let scales = MambaScales::NONE;
        Recurrence::Mamba2(Mamba2 { heads, head_dim, groups, state, taps, dt_limit, scales, gate })
    };
    let scaled = Recurrence::Mamba2(Mamba2 {
        heads: 10,
        head_dim: 24,
        groups: 2,
        state: 17,
        taps: 3,
        dt_limit: wide,
        scales: MambaScales { z: 0.7, dt: 1.3 },
        gate: MambaGate::Bare,
    });
    let layers = [
        ([4, 32, 1, 32], 4, wide, MambaGate::ThenNorm(1e-5)),
        ([6, 20, 3, 13], 2, wide, MambaGate::ThenNorm(1e-5)),
        ([6, 33, 2, 16], 4, wide, MambaGate::AfterNorm(1e-5)),
        ([5, 12, 1, 40], 4, [0.1, 0.6], MambaGate::ThenNorm(1e-5)),
        ([8, 64, 1, 128], 4, wide, MambaGate::Bare),
    ];
    layers.map(layer).into_iter().chain([scaled]).collect()
}

fn short_convs() -> Vec<Recurrence> {
    // The last one has more columns than a task takes.
    let layers = [(32, 3), (7, 2), (601, 4)];
    layers.map(|(cols, taps)| Recurrence::ShortConv(ShortConv { cols, taps })).to_vec()
}

/// Columns of a row with all that the layer reads.
fn whole_cols(spec: &Recurrence) -> usize {
    match spec {
        Recurrence::GatedDelta(delta) if delta.layout == DeltaLayout::Apart => {
            spec.row_cols() + delta.v_cols() + delta.decay_cols()
        }
        _ => spec.row_cols(),
    }
}

fn vectors(spec: &Recurrence, rng: &mut Rng) -> Vec<Vec<f32>> {
    // Decays from one that forgets at once to one that hardly does.
    let rates = |n, rng: &mut Rng| (0..n).map(|_| 2.0 * rng.uniform()).collect::<Vec<_>>();
    let biases = |n, rng: &mut Rng| (0..n).map(|_| 3.0 * rng.uniform() - 2.0).collect::<Vec<_>>();
    match spec {
        Recurrence::GatedDelta(spec) => vec![
            rng.vector(spec.taps * spec.conv_cols()),
            rates(spec.v_heads, rng),
            biases(spec.decay_cols(), rng),
            rng.vector(spec.v_dim),
        ],
        Recurrence::Mamba2(spec) => vec![
            rng.vector(spec.taps * spec.conv_cols()),
            rng.vector(spec.conv_cols()),
            rates(spec.heads, rng),
            biases(spec.heads, rng),
            rng.vector(spec.heads),
            rng.vector(spec.inner()),
        ],
        Recurrence::ShortConv(spec) => {
            vec![rng.vector(spec.taps * spec.cols), rng.vector(spec.cols)]
        }
    }
}

impl Case {
    /// The longest sequence.
    pub(super) fn longest(&self) -> &Rows {
        self.sequences.iter().max_by_key(|rows| rows.rows).expect("there are sequences")
    }

    /// Runs the op of the layer.
    pub(super) fn run_op<B: Backend>(
        &self,
        device: &B,
        (x, batch): (&Rows, &B::Staged),
        vectors: &[B::Vector],
        states: &mut B::States,
        out: &mut B::Buf,
    ) {
        match (&self.spec, vectors) {
            (Recurrence::GatedDelta(spec), [taps, a_log, dt_bias, gain]) => {
                let conv = ConvWeights { taps, bias: None };
                let weights = DeltaWeights { conv, a_log, dt_bias, gain };
                let widths = match spec.layout {
                    DeltaLayout::Apart => vec![spec.row_cols(), spec.v_cols(), spec.decay_cols()],
                    DeltaLayout::ByKind | DeltaLayout::ByHead => vec![spec.row_cols()],
                };
                let parts = x.split(&widths).into_iter().map(|part| upload(device, &part));
                let parts: Vec<B::Buf> = parts.collect();
                let rows = match parts.as_slice() {
                    [qkv, z, a] => DeltaRows { qkv, z, a },
                    parts => DeltaRows::whole(&parts[0]),
                };
                device.gated_delta(rows, weights, spec, states, batch, out);
            }
            (Recurrence::Mamba2(spec), [taps, bias, a_log, dt_bias, skip, gain]) => {
                let conv = ConvWeights { taps, bias: Some(bias) };
                let gain = (spec.gate != MambaGate::Bare).then_some(gain);
                let weights = Mamba2Weights { conv, a_log, dt_bias, skip, gain };
                device.mamba2(&upload(device, x), weights, spec, states, batch, out);
            }
            (Recurrence::ShortConv(spec), [taps, bias]) => {
                let weights = ConvWeights { taps, bias: (spec.taps != 3).then_some(bias) };
                device.short_conv(&upload(device, x), weights, spec, states, batch, out);
            }
            _ => unreachable!("a case has the vectors of its layer"),
        }
    }
}
