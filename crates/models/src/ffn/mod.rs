//! One file per way to think about a single position, one variant of [`Ffn`] each.

mod gated;
mod layer_input;
mod moe;
mod plain;
mod twin;

use backend::Backend;

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::Ffn;
use crate::step::Wiring;

/// A feed-forward part on a device.
pub(crate) enum FfnWeights<B: Backend> {
    Gated(gated::GatedWeights<B>),
    Plain(plain::PlainWeights<B>),
    Moe(moe::MoeWeights<B>),
    Twin(twin::TwinWeights<B>),
    LayerInput(layer_input::LayerInputWeights<B>),
}

/// The named pieces of a feed-forward part of the layer called `layer`.
pub(crate) fn modules(ffn: &Ffn, layer: &str, hidden: usize) -> Vec<Module> {
    match ffn {
        Ffn::Gated(gated) => gated.modules(layer, hidden),
        Ffn::Plain(plain) => plain.modules(layer, hidden),
        Ffn::Moe(moe) => moe.modules(layer, hidden),
        Ffn::Twin(twin) => twin.modules(layer, hidden),
        Ffn::LayerInput(input) => input.modules(layer, hidden),
    }
}

/// Room that a feed-forward part needs per row.
pub(crate) fn measure(ffn: &Ffn, hidden: usize, sizes: &mut ScratchSizes) {
    match ffn {
        Ffn::Gated(gated) => gated.measure(sizes),
        Ffn::Plain(plain) => plain.measure(sizes),
        Ffn::Moe(moe) => moe.measure(hidden, sizes),
        Ffn::Twin(twin) => twin.measure(hidden, sizes),
        Ffn::LayerInput(input) => input.measure(sizes),
    }
}

impl<B: Backend> FfnWeights<B> {
    pub(crate) fn load(loader: &Loader, b: &B, ffn: &Ffn, layer: &str) -> Result<Self, Error> {
        Ok(match ffn {
            Ffn::Gated(gated) => {
                FfnWeights::Gated(gated::GatedWeights::load(loader, b, gated, layer)?)
            }
            Ffn::Plain(plain) => {
                FfnWeights::Plain(plain::PlainWeights::load(loader, b, plain, layer)?)
            }
            Ffn::Moe(moe) => FfnWeights::Moe(moe::MoeWeights::load(loader, b, moe, layer)?),
            Ffn::Twin(twin) => FfnWeights::Twin(twin::TwinWeights::load(loader, b, twin, layer)?),
            Ffn::LayerInput(input) => FfnWeights::LayerInput(layer_input::LayerInputWeights::load(
                loader, b, input, layer,
            )?),
        })
    }

    /// Says something about `s.x`, to where `wiring` leads.
    pub(crate) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        s: &mut Scratch<B>,
    ) {
        match self {
            FfnWeights::Gated(gated) => gated.forward(b, wiring, s),
            FfnWeights::Plain(plain) => plain.forward(b, wiring, s),
            FfnWeights::Moe(moe) => moe.forward(b, wiring, s),
            FfnWeights::Twin(twin) => twin.forward(b, wiring, s),
            FfnWeights::LayerInput(input) => input.forward(b, pass, wiring, s),
        }
    }
}
