//! A router and many small layers of which every row meets a few, with or without one that every row
//! passes through.

use backend::ops::{ExpertWeights, Input, Output};
use backend::{Backend, ExpertForm, Experts};

use super::gated::GatedWeights;
use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{ExpertLinear, Linear, Module};
use crate::recipe::{Correction, ExpertLatent, GatedFfn, MoeFfn, Shared};
use crate::share::{Cuts, Shares, Unshared, evenly};
use crate::step::Wiring;

/// The projections of all experts.
struct Projections {
    /// Absent where there is no gate.
    gate: Option<ExpertLinear>,
    up: ExpertLinear,
    down: ExpertLinear,
}

impl MoeFfn {
    /// The full name of it in `layer`.
    fn name_in(&self, layer: &str) -> String {
        if self.name.is_empty() { layer.to_owned() } else { format!("{layer}.{}", self.name) }
    }

    fn router(&self, layer: &str, hidden: usize) -> Linear {
        let name = format!("{}.{}", self.name_in(layer), self.router.name);
        Linear { bias: self.router.bias, ..Linear::new(name, self.experts.n, hidden) }
    }

    /// The full name of what is added to scores, if anything is.
    fn correction(&self, layer: &str) -> Option<String> {
        match self.router.correction {
            Correction::Absent => None,
            Correction::Stored(name) | Correction::IfStored(name) => {
                Some(format!("{}.{name}", self.name_in(layer)))
            }
        }
    }

    /// The full name of what weights are multiplied with, if anything is.
    fn scales(&self, layer: &str) -> Option<String> {
        self.scales.map(|name| format!("{}.{name}", self.name_in(layer)))
    }

    fn projections(&self, layer: &str, hidden: usize) -> Projections {
        let inner = self.experts.inner;
        let width = self.latent.map_or(hidden, |latent| latent.cols);
        let experts = |projection, rows, cols| ExpertLinear {
            parent: self.name_in(layer),
            projection,
            n: self.experts.n,
            top_k: self.experts.top_k,
            rows,
            cols,
            bias: self.expert_bias,
            joined_rows: self.joined_rows,
        };
        Projections {
            gate: match self.experts.form {
                ExpertForm::Gated { .. } => Some(experts("gate_proj", inner, width)),
                ExpertForm::Plain(_) => None,
            },
            up: experts("up_proj", inner, width),
            down: experts("down_proj", width, inner),
        }
    }

    /// The projections to what experts read and back, if that is not the residual stream.
    fn latent(&self, layer: &str, hidden: usize) -> Option<[Linear; 2]> {
        let ExpertLatent { cols, bias } = self.latent?;
        let linear = |name, rows, cols| {
            let name = format!("{}.{name}", self.name_in(layer));
            Linear { bias, ..Linear::new(name, rows, cols) }
        };
        Some([linear("fc1_latent_proj", cols, hidden), linear("fc2_latent_proj", hidden, cols)])
    }

    /// The layer that every row passes through, and its gate if it has one.
    fn shared(&self, layer: &str, hidden: usize) -> Option<(&GatedFfn, Option<Linear>)> {
        match &self.shared {
            Shared::None => None,
            Shared::Gated(ffn) => {
                let name = format!("{layer}.{}.shared_expert_gate", self.name);
                Some((ffn, Some(Linear::new(name, 1, hidden))))
            }
            Shared::Whole(ffn) => Some((ffn, None)),
        }
    }

    pub(super) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let mut list = vec![Module::Linear(self.router(layer, hidden))];
        let vectors = self.correction(layer).into_iter().chain(self.scales(layer));
        list.extend(vectors.map(|name| Module::Vector { name, shape: vec![self.experts.n] }));
        list.extend(self.latent(layer, hidden).into_iter().flatten().map(Module::Linear));
        let Projections { gate, up, down } = self.projections(layer, hidden);
        list.extend(gate.into_iter().chain([up, down]).map(Module::Experts));
        if let Some((ffn, gate)) = self.shared(layer, hidden) {
            list.extend(ffn.modules(&format!("{layer}.{}", self.name), hidden));
            list.extend(gate.map(Module::Linear));
        }
        list
    }

    pub(super) fn measure(&self, hidden: usize, sizes: &mut ScratchSizes) {
        sizes.router = sizes.router.max(self.experts.n);
        if let Some(latent) = self.latent {
            sizes.low = sizes.low.max(latent.cols);
            sizes.shared = sizes.shared.max(latent.cols);
        }
        if let Some((ffn, gate)) = self.shared("", hidden) {
            ffn.measure(sizes);
            if gate.is_some() {
                sizes.shared = sizes.shared.max(hidden);
                sizes.shared_gate = 1;
            }
        }
    }
}

/// Each machine has all experts, and a share of each.
impl Shares for MoeFfn {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.experts.inner = evenly(self.experts.inner, ranks, "columns of experts")?;
        match &mut self.shared {
            Shared::None => Ok(()),
            Shared::Gated(ffn) | Shared::Whole(ffn) => ffn.share(ranks),
        }
    }

    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        if let Some((ffn, _)) = self.shared(layer, 0) {
            ffn.cut(&format!("{layer}.{}", self.name), cuts);
        }
    }
}

/// A mixture of experts on a device.
pub(crate) struct MoeWeights<B: Backend> {
    experts: Experts,
    router: LinearWeights<B>,
    latent: Option<[LinearWeights<B>; 2]>,
    correction: Option<B::Vector>,
    scales: Option<B::Vector>,
    gate_up: B::Weight,
    gate_up_bias: Option<B::Vector>,
    down: B::Weight,
    down_bias: Option<B::Vector>,
    shared: Option<SharedWeights<B>>,
}

struct SharedWeights<B: Backend> {
    ffn: GatedWeights<B>,
    gate: Option<LinearWeights<B>>,
}

impl<B: Backend> MoeWeights<B> {
    pub(super) fn load(loader: &Loader, b: &B, moe: &MoeFfn, layer: &str) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let Projections { gate, up, down } = moe.projections(layer, hidden);
        let entrance = loader.entrance(gate.as_ref(), &up)?;
        let mut experts = moe.experts.clone();
        if let ExpertForm::Gated { rows, .. } = &mut experts.form {
            *rows = entrance.rows;
        }
        let shared = match moe.shared(layer, hidden) {
            Some((ffn, gate)) => Some(SharedWeights {
                ffn: GatedWeights::load(loader, b, ffn, &format!("{layer}.{}", moe.name))?,
                gate: gate.map(|gate| LinearWeights::load(loader, b, &[gate])).transpose()?,
            }),
            None => None,
        };
        let vector = |values: Option<Vec<f32>>| values.map(|values| b.vector(&values));
        let numbers =
            |name: Option<String>| name.map(|name| loader.numbers(&name, experts.n)).transpose();
        let (correction, scales) = (numbers(moe.correction(layer))?, numbers(moe.scales(layer))?);
        Ok(MoeWeights {
            router: LinearWeights::load(loader, b, &[moe.router(layer, hidden)])?,
            latent: match moe.latent(layer, hidden) {
                Some([to, from]) => Some([
                    LinearWeights::load(loader, b, &[to])?,
                    LinearWeights::load(loader, b, &[from])?,
                ]),
                None => None,
            },
            correction: vector(correction),
            scales: vector(scales),
            gate_up: b.weight(&entrance.weight),
            gate_up_bias: vector(entrance.bias),
            down: match loader.shares_experts() {
                true => b.summed_weight(&loader.experts(&down)?),
                false => b.weight(&loader.experts(&down)?),
            },
            down_bias: vector(loader.expert_bias(&down)?),
            shared,
            experts,
        })
    }

    /// The logits of the router for rows that it reads as `input`.
    pub(super) fn choose(&self, b: &B, input: Input<'_, B>, router: &mut B::Buf) {
        self.router.apply(b, input, Output::Into(router));
    }

    /// What the experts that `router` chooses say about `x`.
    pub(super) fn ask(&self, b: &B, x: &B::Buf, router: &B::Buf, out: &mut B::Buf) {
        let weights = ExpertWeights {
            gate_up: &self.gate_up,
            gate_up_bias: self.gate_up_bias.as_ref(),
            down: &self.down,
            down_bias: self.down_bias.as_ref(),
            correction: self.correction.as_ref(),
            scales: self.scales.as_ref(),
        };
        b.experts(x, router, &self.experts, weights, out);
    }

    pub(super) fn forward(&self, b: &B, wiring: &Wiring<'_, B>, s: &mut Scratch<B>) {
        let x = wiring.rows(b, &s.x, &mut s.h);
        let said = wiring.said(&mut s.y, &mut s.more);
        self.choose(b, Input::Rows(x), &mut s.router);
        match &self.latent {
            None => self.ask(b, x, &s.router, said),
            Some([to, from]) => {
                to.apply(b, Input::Rows(x), Output::Into(&mut s.low));
                self.ask(b, &s.low, &s.router, &mut s.shared);
                from.apply(b, Input::Rows(&s.shared), Output::Into(said));
            }
        }
        if let Some(shared) = &self.shared {
            shared.ffn.enter(b, Input::Rows(x), &mut s.qkv, &mut s.inner);
            let inner = Input::Rows(&s.inner);
            match &shared.gate {
                None => shared.ffn.last().apply(b, inner, Output::Onto(said)),
                Some(gate) => {
                    shared.ffn.last().apply(b, inner, Output::Into(&mut s.shared));
                    gate.apply(b, Input::Rows(x), Output::Into(&mut s.shared_gate));
                    b.add_gated(said, &s.shared_gate, &s.shared);
                }
            }
        }
        wiring.leave(b, &mut s.x, &mut s.y, &s.more);
    }
}
