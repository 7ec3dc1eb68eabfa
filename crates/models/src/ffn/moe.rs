//! A router and many gated layers of which every row meets a few, with or without one that every
//! row passes through.

use backend::ops::{ExpertWeights, Input, Output};
use backend::{Backend, Experts};

use super::gated::GatedWeights;
use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{ExpertLinear, Linear, Module};
use crate::recipe::{GatedFfn, MoeFfn, Shared};
use crate::step::Wiring;

impl MoeFfn {
    fn router(&self, layer: &str, hidden: usize) -> Linear {
        Linear::new(format!("{layer}.{}.gate", self.name), self.experts.n, hidden)
    }

    /// Gate, up and down of all experts.
    fn projections(&self, layer: &str, hidden: usize) -> [ExpertLinear; 3] {
        let inner = self.experts.inner;
        let experts = |projection, rows, cols| ExpertLinear {
            parent: format!("{layer}.{}", self.name),
            projection,
            n: self.experts.n,
            top_k: self.experts.top_k,
            rows,
            cols,
        };
        [
            experts("gate_proj", inner, hidden),
            experts("up_proj", inner, hidden),
            experts("down_proj", hidden, inner),
        ]
    }

    /// The layer that every row passes through, with the name of what it lies in and its gate.
    fn shared(&self, layer: &str, hidden: usize) -> Option<(&GatedFfn, String, Linear)> {
        let Shared::Gated(ffn) = &self.shared else { return None };
        let parent = format!("{layer}.{}", self.name);
        let gate = Linear::new(format!("{parent}.shared_expert_gate"), 1, hidden);
        Some((ffn, parent, gate))
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let mut list = vec![Module::Linear(self.router(layer, hidden))];
        list.extend(self.projections(layer, hidden).map(Module::Experts));
        if let Some((ffn, parent, gate)) = self.shared(layer, hidden) {
            list.extend(ffn.modules(&parent, hidden));
            list.push(Module::Linear(gate));
        }
        list
    }

    pub(super) fn measure(&self, hidden: usize, sizes: &mut ScratchSizes) {
        sizes.router = sizes.router.max(self.experts.n);
        if let Some((ffn, ..)) = self.shared("", hidden) {
            ffn.measure(sizes);
            sizes.shared = hidden;
            sizes.shared_gate = 1;
        }
    }
}

/// A mixture of experts on a device.
pub(crate) struct MoeWeights<B: Backend> {
    experts: Experts,
    router: LinearWeights<B>,
    gate_up: B::Weight,
    down: B::Weight,
    shared: Option<SharedWeights<B>>,
}

struct SharedWeights<B: Backend> {
    ffn: GatedWeights<B>,
    gate: LinearWeights<B>,
}

impl<B: Backend> MoeWeights<B> {
    pub(super) fn load(loader: &Loader, b: &B, moe: &MoeFfn, layer: &str) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let [gate, up, down] = moe.projections(layer, hidden);
        let (gates, ups) = (loader.experts(&gate)?, loader.experts(&up)?);
        let gate_up: Vec<_> = gates.into_iter().zip(ups).flat_map(|(g, u)| [g, u]).collect();
        let shared = match moe.shared(layer, hidden) {
            Some((ffn, parent, gate)) => Some(SharedWeights {
                ffn: GatedWeights::load(loader, b, ffn, &parent)?,
                gate: LinearWeights::load(loader, b, &[gate])?,
            }),
            None => None,
        };
        Ok(MoeWeights {
            experts: moe.experts.clone(),
            router: LinearWeights::load(loader, b, &[moe.router(layer, hidden)])?,
            gate_up: b.weight(&gate_up),
            down: b.weight(&loader.experts(&down)?),
            shared,
        })
    }

    pub(super) fn forward(&self, b: &B, wiring: &Wiring<'_, B>, s: &mut Scratch<B>) {
        let x = wiring.rows(b, &s.x, &mut s.h);
        let said = wiring.said(&mut s.y, &mut s.more);
        self.router.apply(b, Input::Rows(x), Output::Into(&mut s.router));
        let weights = ExpertWeights {
            gate_up: &self.gate_up,
            gate_up_bias: None,
            down: &self.down,
            down_bias: None,
            correction: None,
        };
        b.experts(x, &s.router, &self.experts, weights, said);
        if let Some(shared) = &self.shared {
            shared.ffn.enter(b, Input::Rows(x), &mut s.inner);
            shared.ffn.last().apply(b, Input::Rows(&s.inner), Output::Into(&mut s.shared));
            shared.gate.apply(b, Input::Rows(x), Output::Into(&mut s.shared_gate));
            b.add_gated(said, &s.shared_gate, &s.shared);
        }
        wiring.leave(b, &mut s.x, &mut s.y, &s.more);
    }
}
