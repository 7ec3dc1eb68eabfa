//! A gated layer and a mixture of experts side by side, each between norms of its own: Gemma 4 with
//! experts.

use backend::Backend;
use backend::ops::{Input, Output};

use super::gated::GatedWeights;
use super::moe::MoeWeights;
use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::NormWeights;
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::TwinFfn;
use crate::share::{Cuts, Shares, Unshared};
use crate::step::Wiring;

/// What the router multiplies what it reads with.
fn router_scale(layer: &str) -> String {
    format!("{layer}.router.scale")
}

impl TwinFfn {
    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let mut list = self.dense.modules(layer, hidden);
        for norm in [&self.dense_after, &self.experts_before, &self.experts_after] {
            list.extend(norm.modules(norm.name_in(layer), hidden));
        }
        list.push(Module::Vector { name: router_scale(layer), shape: vec![hidden] });
        list.extend(self.experts.modules(layer, hidden));
        list
    }

    pub(super) fn measure(&self, hidden: usize, sizes: &mut ScratchSizes) {
        self.dense.measure(sizes);
        self.experts.measure(hidden, sizes);
        sizes.shared = hidden;
    }
}

/// Each machine has a share of both; what is normed is their sums.
impl Shares for TwinFfn {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.dense.share(ranks)?;
        self.experts.share(ranks)
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        self.dense.cut(layer, cuts);
        self.experts.cut(layer, cuts);
    }
}

/// Both on a device.
pub(crate) struct TwinWeights<B: Backend> {
    dense: GatedWeights<B>,
    dense_after: NormWeights<B>,
    router_norm: NormWeights<B>,
    experts_before: NormWeights<B>,
    experts: MoeWeights<B>,
    experts_after: NormWeights<B>,
}

impl<B: Backend> TwinWeights<B> {
    pub(super) fn load(loader: &Loader, b: &B, ffn: &TwinFfn, layer: &str) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let norm = |norm| -> Result<_, Error> {
            NormWeights::load(loader, b, norm, &norm.name_in(layer), hidden)
        };
        let root = (hidden as f32).powf(-0.5);
        let scale = loader.numbers(&router_scale(layer), hidden)?;
        let gain: Vec<f32> = scale.into_iter().map(|scale| scale * root).collect();
        Ok(TwinWeights {
            dense: GatedWeights::load(loader, b, &ffn.dense, layer)?,
            dense_after: norm(&ffn.dense_after)?,
            router_norm: NormWeights::rms(b, &gain, ffn.experts_before.eps),
            experts_before: norm(&ffn.experts_before)?,
            experts: MoeWeights::load(loader, b, &ffn.experts, layer)?,
            experts_after: norm(&ffn.experts_after)?,
        })
    }

    pub(super) fn forward(&self, b: &B, wiring: &Wiring<'_, B>, s: &mut Scratch<B>) {
        let said = wiring.said(&mut s.y, &mut s.more);
        self.dense.enter(b, wiring.input(&s.x), &mut s.qkv, &mut s.inner);
        self.dense.last().apply(b, Input::Rows(&s.inner), Output::Into(&mut s.shared));
        self.dense_after.apply(b, &s.shared, said);
        self.experts.choose(b, self.router_norm.input(&s.x), &mut s.router);
        self.experts_before.apply(b, &s.x, &mut s.h);
        self.experts.ask(b, &s.h, &s.router, &mut s.shared);
        self.experts_after.apply(b, &s.shared, &mut s.h);
        b.add(said, &s.h, 1.0);
        wiring.leave(b, &mut s.x, &mut s.y, &s.more);
    }
}
