//! A selective state space: one projection to everything a row brings along, one op, one projection
//! back.

use backend::ops::{ConvWeights, Mamba2Weights as SmallWeights, Output};
use backend::{Backend, Mamba2, MambaGate, MambaScales, NormGain};

use super::conv::{self, Conv};
use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::Mamba2Mixer;
use crate::share::{Cuts, Run, Shares, Unshared, evenly, evenly_or_one};
use crate::step::Wiring;

impl Mamba2Mixer {
    fn part(&self, layer: &str, part: &str) -> String {
        format!("{layer}.{}.{part}", self.name)
    }

    fn input(&self, layer: &str, hidden: usize) -> Linear {
        let (name, rows) = (self.part(layer, "in_proj"), self.shape.row_cols());
        Linear { name, rows, cols: hidden, bias: self.in_bias }
    }

    fn output(&self, layer: &str, hidden: usize) -> Linear {
        let (name, cols) = (self.part(layer, "out_proj"), self.shape.inner());
        Linear { name, rows: hidden, cols, bias: self.out_bias }
    }

    pub(crate) fn conv(&self, layer: &str) -> Conv {
        let name = self.part(layer, "conv1d");
        Conv { name, cols: self.shape.conv_cols(), taps: self.shape.taps, bias: self.conv_bias }
    }

    /// Whether anything is multiplied with anything but one.
    pub(crate) fn has_factors(&self) -> bool {
        self.shape.scales != MambaScales::NONE
            || self.conv_scales != [1.0; 3]
            || self.out_scale != 1.0
    }

    /// Whether there is a norm of what is read.
    fn has_norm(&self) -> bool {
        self.shape.gate != MambaGate::Bare
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let linears = [self.input(layer, hidden), self.output(layer, hidden)];
        let heads = ["A_log", "dt_bias", "D"].map(|part| Module::Vector {
            name: self.part(layer, part),
            shape: vec![self.shape.heads],
        });
        let gain = self.has_norm().then(|| Module::Gain {
            name: self.part(layer, "norm"),
            len: self.shape.inner(),
            kind: NormGain::Stored,
        });
        let small = self.conv(layer).modules().into_iter().chain(heads).chain(gain);
        linears.map(Module::Linear).into_iter().chain(small).collect()
    }

    pub(super) fn measure(&self, hidden: usize, sizes: &mut ScratchSizes) {
        sizes.qkv = sizes.qkv.max(self.shape.row_cols());
        sizes.attended = sizes.attended.max(self.shape.inner());
        if self.out_scale != 1.0 {
            sizes.more = hidden;
        }
    }
}

/// Each machine has a share of the heads, and the groups that these go with. Where several machines have
/// heads of one group, its norm goes over what all of them read.
impl Shares for Mamba2Mixer {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.shape.heads = evenly(self.shape.heads, ranks, "heads of state spaces")?;
        self.shape.groups = evenly_or_one(self.shape.groups, ranks, "groups of heads")?;
        Ok(())
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        let Mamba2 { heads, head_dim, groups, state, .. } = self.shape;
        let each = |each| Run { n: heads, each };
        let (inner, shared) = (each(head_dim), Run { n: groups, each: state });
        cuts.rows(self.input(layer, 0).name, &[inner, inner, shared, shared, each(1)]);
        self.conv(layer).cut(&[inner, shared, shared], cuts);
        for part in ["A_log", "dt_bias", "D"] {
            cuts.rows(self.part(layer, part), &[each(1)]);
        }
        if self.has_norm() {
            let over = (cuts.share().ranks / groups).max(1);
            cuts.norm(self.part(layer, "norm"), inner, over);
        }
        cuts.columns(self.output(layer, 0).name, inner);
    }
}

/// A selective state space on a device.
pub(crate) struct Mamba2Weights<B: Backend> {
    shape: Mamba2,
    input: LinearWeights<B>,
    taps: B::Vector,
    conv_bias: Option<B::Vector>,
    /// Logarithms of decays, biases of steps, what passes by the state.
    heads: [B::Vector; 3],
    gain: Option<B::Vector>,
    out: LinearWeights<B>,
    out_scale: f32,
}

impl<B: Backend> Mamba2Weights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        mixer: &Mamba2Mixer,
        layer: &str,
    ) -> Result<Self, Error> {
        let (hidden, shape) = (loader.spec().hidden, &mixer.shape);
        let heads = |part| {
            let values = loader.numbers(&mixer.part(layer, part), shape.heads)?;
            Ok::<_, Error>(b.vector(&values))
        };
        let (mut taps, bias) = conv::load(loader, &mixer.conv(layer))?;
        scale_parts(&mut taps, mixer);
        let gain = match mixer.has_norm() {
            true => {
                let name = mixer.part(layer, "norm");
                let gain = loader.gain(&name, shape.inner())?;
                Some(b.gain(&gain, loader.norm_over(&name)))
            }
            false => None,
        };
        Ok(Mamba2Weights {
            input: LinearWeights::load(loader, b, &[mixer.input(layer, hidden)])?,
            taps: b.vector(&taps),
            conv_bias: bias.map(|bias| b.vector(&bias)),
            heads: [heads("A_log")?, heads("dt_bias")?, heads("D")?],
            gain,
            out: LinearWeights::load(loader, b, &[mixer.output(layer, hidden)])?,
            out_scale: mixer.out_scale,
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
        self.input.apply(b, wiring.input(&s.x), Output::Into(&mut s.qkv));
        let [a_log, dt_bias, skip] = &self.heads;
        let conv = ConvWeights { taps: &self.taps, bias: self.conv_bias.as_ref() };
        let weights = SmallWeights { conv, a_log, dt_bias, skip, gain: self.gain.as_ref() };
        b.mamba2(&s.qkv, weights, &self.shape, states, pass.batch, &mut s.attended);
        let sums = (&mut s.x, &mut s.y, &mut s.more);
        wiring.finish_scaled(b, (&self.out, &s.attended), self.out_scale, sums);
    }
}

/// Multiplies the taps of `x`, `B` and `C` with what these are multiplied with: what they read is the
/// same then.
fn scale_parts(taps: &mut [f32], mixer: &Mamba2Mixer) {
    let Mamba2 { groups, state, .. } = mixer.shape;
    let widths = [mixer.shape.inner(), groups * state, groups * state];
    for row in taps.chunks_exact_mut(mixer.shape.conv_cols()) {
        let mut rest = row;
        for (width, scale) in widths.into_iter().zip(mixer.conv_scales) {
            let (part, after) = rest.split_at_mut(width);
            part.iter_mut().for_each(|tap| *tap *= scale);
            rest = after;
        }
    }
}
