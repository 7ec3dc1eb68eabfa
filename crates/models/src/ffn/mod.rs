//! One file per way to think about a single position, one variant of [`Ffn`] each.

mod gated;
mod moe;

use backend::Backend;

use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::NormsWeights;
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::Ffn;

/// A feed-forward part on a device.
pub(crate) enum FfnWeights<B: Backend> {
    Gated(gated::GatedWeights<B>),
    Moe(moe::MoeWeights<B>),
}

/// The named pieces of the feed-forward part of layer `parent`.
pub(crate) fn modules(ffn: &Ffn, parent: &str, hidden: usize) -> Vec<Module> {
    let parent = format!("{parent}.mlp");
    match ffn {
        Ffn::Gated(gated) => gated.modules(&parent, hidden),
        Ffn::Moe(moe) => moe.modules(&parent, hidden),
    }
}

/// Room that a feed-forward part needs per row.
pub(crate) fn measure(ffn: &Ffn, hidden: usize, sizes: &mut ScratchSizes) {
    match ffn {
        Ffn::Gated(gated) => gated.measure(sizes),
        Ffn::Moe(moe) => moe.measure(hidden, sizes),
    }
}

impl<B: Backend> FfnWeights<B> {
    pub(crate) fn load(loader: &Loader, b: &B, ffn: &Ffn, parent: &str) -> Result<Self, Error> {
        let parent = format!("{parent}.mlp");
        Ok(match ffn {
            Ffn::Gated(gated) => {
                FfnWeights::Gated(gated::GatedWeights::load(loader, b, gated, &parent)?)
            }
            Ffn::Moe(moe) => FfnWeights::Moe(moe::MoeWeights::load(loader, b, moe, &parent)?),
        })
    }

    /// Adds to `s.x` what this says about it, through `norms`.
    pub(crate) fn forward(&self, b: &B, norms: &NormsWeights<B>, s: &mut Scratch<B>) {
        match self {
            FfnWeights::Gated(gated) => {
                gated.enter(b, norms.before().input(&s.x), &mut s.inner);
                norms.finish(b, (gated.last(), &s.inner), (&mut s.y, &mut s.h), &mut s.x);
            }
            FfnWeights::Moe(moe) => {
                norms.before().apply(b, &s.x, &mut s.h);
                moe.forward(b, s);
                norms.leave(b, &s.y, &mut s.h, &mut s.x);
            }
        }
    }
}
