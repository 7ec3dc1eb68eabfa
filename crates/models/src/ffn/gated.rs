//! `down(act(gate(x)) * up(x))`, gate and up being one matrix.

use backend::ops::{Input, Output};
use backend::{Activation, Backend};

use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::{GateKept, GateUp, GatedFfn};
use crate::share::{Cuts, Run, Shares, Unshared, evenly};
use crate::step::Wiring;

impl GatedFfn {
    fn linear(&self, layer: &str, name: &str, rows: usize, cols: usize) -> Linear {
        Linear { name: format!("{layer}.{}.{name}", self.name), rows, cols, bias: self.bias }
    }

    /// The projections to gate and up, in this order.
    fn inputs(&self, layer: &str, hidden: usize) -> Vec<Linear> {
        let linear = |name, rows| self.linear(layer, name, rows, hidden);
        match self.gate_up {
            GateUp::Split => {
                vec![linear("gate_proj", self.inner), linear("up_proj", self.inner)]
            }
            GateUp::Fused => vec![linear("gate_up_proj", 2 * self.inner)],
            GateUp::Numbered => vec![linear("w1", self.inner), linear("w3", self.inner)],
            GateUp::InOut => vec![linear("input_linear", 2 * self.inner)],
        }
    }

    fn output(&self, layer: &str, hidden: usize) -> Linear {
        let name = match self.gate_up {
            GateUp::Split | GateUp::Fused => "down_proj",
            GateUp::Numbered => "w2",
            GateUp::InOut => "output_linear",
        };
        self.linear(layer, name, hidden, self.inner)
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let inputs = self.inputs(layer, hidden).into_iter();
        inputs.chain([self.output(layer, hidden)]).map(Module::Linear).collect()
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        sizes.inner = sizes.inner.max(self.inner);
        if self.kept != GateKept::All {
            sizes.qkv = sizes.qkv.max(2 * self.inner);
        }
    }
}

/// Each machine has a share of the columns between.
impl Shares for GatedFfn {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        if self.kept != GateKept::All {
            return Err(format!("a gate that looks at all of its {} columns", self.inner));
        }
        self.inner = evenly(self.inner, ranks, "columns of feed-forward layers")?;
        Ok(())
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        for linear in self.inputs(layer, 0) {
            // Gate and up are one or two matrices.
            cuts.rows(linear.name, &vec![Run::of(self.inner); linear.rows / self.inner]);
        }
        cuts.columns(self.output(layer, 0).name, Run::of(self.inner));
    }
}

/// A gated feed-forward layer on a device.
pub(crate) struct GatedWeights<B: Backend> {
    activation: Activation,
    kept: GateKept,
    inner: usize,
    gate_up: LinearWeights<B>,
    down: LinearWeights<B>,
}

impl<B: Backend> GatedWeights<B> {
    pub(super) fn load(loader: &Loader, b: &B, ffn: &GatedFfn, layer: &str) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        Ok(GatedWeights {
            activation: ffn.activation,
            kept: ffn.kept,
            inner: ffn.inner,
            gate_up: LinearWeights::load(loader, b, &ffn.inputs(layer, hidden))?,
            down: LinearWeights::load(loader, b, &[ffn.output(layer, hidden)])?,
        })
    }

    pub(super) fn forward(&self, b: &B, wiring: &Wiring<'_, B>, s: &mut Scratch<B>) {
        self.enter(b, wiring.input(&s.x), &mut s.qkv, &mut s.inner);
        wiring.finish(b, (&self.down, &s.inner), &mut s.x, &mut s.y);
    }

    /// Gate, up and activation; [`GatedWeights::last`] makes the branch's answer of `inner`. May
    /// overwrite `both`.
    pub(super) fn enter(&self, b: &B, x: Input<'_, B>, both: &mut B::Buf, inner: &mut B::Buf) {
        match self.kept {
            GateKept::All => self.gate_up.apply(b, x, Output::Gated(self.activation, inner)),
            GateKept::Above(deviations) => {
                self.gate_up.apply(b, x, Output::Into(both));
                b.keep_largest(both, self.inner, deviations);
                b.glu(both, self.activation, inner);
            }
        }
    }

    /// The projection back.
    pub(super) fn last(&self) -> &LinearWeights<B> {
        &self.down
    }
}
