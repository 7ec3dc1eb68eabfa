//! A router and many gated layers of which every row meets a few, with or without one that every
//! row passes through.

use backend::ops::{Input, Output};
use backend::{Backend, Experts};

use super::gated::GatedWeights;
use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{ExpertLinear, Linear, Module};
use crate::recipe::{Bias, GateUp, GatedFfn, MoeFfn, Shared};

impl MoeFfn {
    fn router(&self, parent: &str, hidden: usize) -> Linear {
        Linear::new(format!("{parent}.gate"), self.experts.n, hidden)
    }

    /// Gate, up and down of all experts.
    fn projections(&self, parent: &str, hidden: usize) -> [ExpertLinear; 3] {
        let inner = self.experts.inner;
        let experts = |projection, rows, cols| ExpertLinear {
            parent: parent.to_owned(),
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

    /// The layer that every row passes through, with its name and its gate.
    fn shared(&self, parent: &str, hidden: usize) -> Option<(GatedFfn, String, Linear)> {
        let Shared::Gated { inner } = self.shared else { return None };
        let ffn = GatedFfn {
            inner,
            activation: self.experts.activation,
            gate_up: GateUp::Split,
            bias: Bias::Absent,
        };
        let gate = Linear::new(format!("{parent}.shared_expert_gate"), 1, hidden);
        Some((ffn, format!("{parent}.shared_expert"), gate))
    }

    pub(super) fn modules(&self, parent: &str, hidden: usize) -> Vec<Module> {
        let mut list = vec![Module::Linear(self.router(parent, hidden))];
        list.extend(self.projections(parent, hidden).map(Module::Experts));
        if let Some((ffn, name, gate)) = self.shared(parent, hidden) {
            list.extend(ffn.modules(&name, hidden));
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
    pub(super) fn load(loader: &Loader, b: &B, moe: &MoeFfn, parent: &str) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let [gate, up, down] = moe.projections(parent, hidden);
        let (gates, ups) = (loader.experts(&gate)?, loader.experts(&up)?);
        let gate_up: Vec<_> = gates.into_iter().zip(ups).flat_map(|(g, u)| [g, u]).collect();
        let shared = match moe.shared(parent, hidden) {
            Some((ffn, name, gate)) => Some(SharedWeights {
                ffn: GatedWeights::load(loader, b, &ffn, &name)?,
                gate: LinearWeights::load(loader, b, &[gate])?,
            }),
            None => None,
        };
        Ok(MoeWeights {
            experts: moe.experts.clone(),
            router: LinearWeights::load(loader, b, &[moe.router(parent, hidden)])?,
            gate_up: b.weight(&gate_up),
            down: b.weight(&loader.experts(&down)?),
            shared,
        })
    }

    /// Reads `s.h`, writes `s.y`.
    pub(super) fn forward(&self, b: &B, s: &mut Scratch<B>) {
        self.router.apply(b, Input::Rows(&s.h), Output::Into(&mut s.router));
        b.experts(&s.h, &s.router, &self.experts, &self.gate_up, &self.down, &mut s.y);
        if let Some(shared) = &self.shared {
            shared.ffn.enter(b, Input::Rows(&s.h), &mut s.inner);
            shared.ffn.last().apply(b, Input::Rows(&s.inner), Output::Into(&mut s.shared));
            shared.gate.apply(b, Input::Rows(&s.h), Output::Into(&mut s.shared_gate));
            b.add_gated(&mut s.y, &s.shared_gate, &s.shared);
        }
    }
}
