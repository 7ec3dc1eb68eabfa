//! A convolution between two gates: one projection to both gates and what they are for, one op, one
//! projection back.

use backend::ops::{ConvWeights, Output};
use backend::{Backend, ShortConv};

use super::conv::{self, Conv};
use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::ShortConvMixer;
use crate::share::{Cuts, Run, Shares, Unshared, evenly};
use crate::step::Wiring;

impl ShortConvMixer {
    fn linear(&self, layer: &str, part: &str, rows: usize, cols: usize) -> Linear {
        Linear { name: format!("{layer}.conv.{part}"), rows, cols, bias: self.bias }
    }

    fn input(&self, layer: &str, hidden: usize) -> Linear {
        self.linear(layer, "in_proj", self.shape.row_cols(), hidden)
    }

    fn output(&self, layer: &str, hidden: usize) -> Linear {
        self.linear(layer, "out_proj", hidden, self.shape.cols)
    }

    fn conv(&self, layer: &str) -> Conv {
        let ShortConv { cols, taps } = self.shape;
        Conv { name: format!("{layer}.conv.conv"), cols, taps, bias: self.bias }
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let linears = [self.input(layer, hidden), self.output(layer, hidden)];
        linears.map(Module::Linear).into_iter().chain(self.conv(layer).modules()).collect()
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        sizes.qkv = sizes.qkv.max(self.shape.row_cols());
        sizes.attended = sizes.attended.max(self.shape.cols);
    }
}

/// Each machine has a share of the columns.
impl Shares for ShortConvMixer {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.shape.cols = evenly(self.shape.cols, ranks, "columns of convolutions")?;
        Ok(())
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        let cols = Run::of(self.shape.cols);
        cuts.rows(self.input(layer, 0).name, &[cols; 3]);
        self.conv(layer).cut(&[cols], cuts);
        cuts.columns(self.output(layer, 0).name, cols);
    }
}

/// A gated convolution on a device.
pub(crate) struct ShortConvWeights<B: Backend> {
    shape: ShortConv,
    input: LinearWeights<B>,
    taps: B::Vector,
    bias: Option<B::Vector>,
    out: LinearWeights<B>,
}

impl<B: Backend> ShortConvWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        mixer: &ShortConvMixer,
        layer: &str,
    ) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let (taps, bias) = conv::load(loader, &mixer.conv(layer))?;
        Ok(ShortConvWeights {
            shape: mixer.shape.clone(),
            input: LinearWeights::load(loader, b, &[mixer.input(layer, hidden)])?,
            taps: b.vector(&taps),
            bias: bias.map(|bias| b.vector(&bias)),
            out: LinearWeights::load(loader, b, &[mixer.output(layer, hidden)])?,
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
        let weights = ConvWeights { taps: &self.taps, bias: self.bias.as_ref() };
        b.short_conv(&s.qkv, weights, &self.shape, states, pass.batch, &mut s.attended);
        wiring.finish(b, (&self.out, &s.attended), &mut s.x, &mut s.y);
    }
}
