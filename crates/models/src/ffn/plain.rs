//! `down(act(up(x)))`: a feed-forward layer without a gate.

use backend::ops::Output;
use backend::{Activation, Backend};

use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::PlainFfn;
use crate::share::{Cuts, Run, Shares, Unshared, evenly};
use crate::step::Wiring;

impl PlainFfn {
    /// The projections up and down, in this order.
    fn linears(&self, layer: &str, hidden: usize) -> [Linear; 2] {
        let linear = |name, rows, cols| Linear {
            name: format!("{layer}.{}.{name}", self.name),
            rows,
            cols,
            bias: self.bias,
        };
        [linear(self.up, self.inner, hidden), linear(self.down, hidden, self.inner)]
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        self.linears(layer, hidden).map(Module::Linear).into()
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        sizes.inner = sizes.inner.max(self.inner);
    }
}

/// Each machine has a share of the columns between.
impl Shares for PlainFfn {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.inner = evenly(self.inner, ranks, "columns of feed-forward layers")?;
        Ok(())
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        let [up, down] = self.linears(layer, 0);
        cuts.rows(up.name, &[Run::of(self.inner)]);
        cuts.columns(down.name, Run::of(self.inner));
    }
}

/// A plain feed-forward layer on a device.
pub(crate) struct PlainWeights<B: Backend> {
    activation: Activation,
    up: LinearWeights<B>,
    down: LinearWeights<B>,
}

impl<B: Backend> PlainWeights<B> {
    pub(super) fn load(loader: &Loader, b: &B, ffn: &PlainFfn, layer: &str) -> Result<Self, Error> {
        let [up, down] = ffn.linears(layer, loader.spec().hidden);
        Ok(PlainWeights {
            activation: ffn.activation,
            up: LinearWeights::load(loader, b, &[up])?,
            down: LinearWeights::load(loader, b, &[down])?,
        })
    }

    pub(super) fn forward(&self, b: &B, wiring: &Wiring<'_, B>, s: &mut Scratch<B>) {
        let inner = Output::Activated(self.activation, &mut s.inner);
        self.up.apply(b, wiring.input(&s.x), inner);
        wiring.finish(b, (&self.down, &s.inner), &mut s.x, &mut s.y);
    }
}
