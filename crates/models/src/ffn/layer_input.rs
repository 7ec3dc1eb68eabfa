//! What a token brings along for a layer, gated by what the layer makes of the residual stream: Gemma's
//! per-layer inputs. They are made once per pass, in `layer_inputs.rs`.

use backend::ops::Output;
use backend::{Activation, Backend};

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::LayerInputFfn;
use crate::share::{Cuts, Shares, Unshared};
use crate::step::Wiring;

impl LayerInputFfn {
    /// The projection to the gate, and the one back.
    fn linears(&self, layer: &str, hidden: usize) -> [Linear; 2] {
        [
            Linear::new(format!("{layer}.per_layer_input_gate"), self.width, hidden),
            Linear::new(format!("{layer}.per_layer_projection"), hidden, self.width),
        ]
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        self.linears(layer, hidden).map(Module::Linear).into()
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        sizes.inner = sizes.inner.max(self.width);
    }
}

/// It is small, and every machine has all of it.
impl Shares for LayerInputFfn {
    fn share(&mut self, _ranks: usize) -> Result<(), Unshared> {
        Ok(())
    }

    fn cut(&self, _layer: &str, _cuts: &mut Cuts) {}
}

/// A gate for a layer's inputs on a device.
pub(crate) struct LayerInputWeights<B: Backend> {
    activation: Activation,
    /// Where this layer's columns begin among those of all layers.
    first: usize,
    gate: LinearWeights<B>,
    out: LinearWeights<B>,
}

impl<B: Backend> LayerInputWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        ffn: &LayerInputFfn,
        layer: &str,
    ) -> Result<Self, Error> {
        let [gate, out] = ffn.linears(layer, loader.spec().hidden);
        Ok(LayerInputWeights {
            activation: ffn.activation,
            first: ffn.layer * ffn.width,
            gate: LinearWeights::load(loader, b, &[gate])?,
            out: LinearWeights::load(loader, b, &[out])?,
        })
    }

    pub(super) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        s: &mut Scratch<B>,
    ) {
        self.gate.apply(b, wiring.input(&s.x), Output::Into(&mut s.inner));
        b.glu_with(&mut s.inner, self.activation, &s.inputs, self.first, pass.rows);
        wiring.finish(b, (&self.out, &s.inner), &mut s.x, &mut s.y);
    }
}
