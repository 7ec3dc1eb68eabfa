//! Multi-head latent attention: queries, at once or by way of a low rank; one projection to what is
//! kept of a position; attention in the space of the latent; values out of it; one projection back.
//!
//! The large matrix that a checkpoint stores, from the latent to the keys and values of all heads,
//! is never multiplied with what is kept: its first part meets the queries instead, and its second
//! part what attention gives.

use backend::ops::{AttentionLayer, LatentKeys, LatentRows, Output};
use backend::{Attention, Backend, Latent, LatentOrder};

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::{LinearWeights, NormWeights};
use crate::loader::Loader;
use crate::modules::{LatentUp, Linear, Module};
use crate::recipe::{Bias, LatentMixer, LatentQuery, Norm};
use crate::share::{Cuts, Run, Shares, Unshared, evenly};
use crate::step::Wiring;

/// The full name of a part of layer `parent`.
fn name(parent: &str, part: &str) -> String {
    format!("{parent}.self_attn.{part}")
}

impl LatentMixer {
    fn linear(&self, parent: &str, part: &str, rows: usize, cols: usize) -> Linear {
        Linear { name: name(parent, part), rows, cols, bias: self.bias }
    }

    /// The projections that make queries, in the order they are applied.
    fn queries(&self, parent: &str, hidden: usize) -> Vec<Linear> {
        let q_cols = self.shape.q_cols();
        let plain =
            |part, cols| Linear { bias: Bias::Absent, ..self.linear(parent, part, q_cols, cols) };
        match self.query {
            LatentQuery::Direct => vec![plain("q_proj", hidden)],
            LatentQuery::LowRank { rank, .. } => {
                vec![self.linear(parent, "q_a_proj", rank, hidden), plain("q_b_proj", rank)]
            }
        }
    }

    /// The projection to what is kept of a position.
    fn down(&self, parent: &str, hidden: usize) -> Linear {
        self.linear(parent, "kv_a_proj_with_mqa", self.shape.kept_cols(), hidden)
    }

    fn up(&self, parent: &str) -> LatentUp {
        LatentUp { parent: format!("{parent}.self_attn"), shape: self.shape.clone() }
    }

    fn output(&self, parent: &str, hidden: usize) -> Linear {
        self.linear(parent, "o_proj", hidden, self.shape.v_cols())
    }

    /// The norms, with how many columns they have.
    fn norms(&self) -> Vec<(&Norm, usize)> {
        let query = match &self.query {
            LatentQuery::Direct => None,
            LatentQuery::LowRank { rank, norm } => Some((norm, *rank)),
        };
        query.into_iter().chain([(&self.norm, self.shape.rank)]).collect()
    }

    pub(super) fn modules(&self, parent: &str, hidden: usize) -> Vec<Module> {
        let gain = |(norm, len): (&Norm, usize)| norm.modules(name(parent, norm.name), len);
        let mut list: Vec<Module> = self.norms().into_iter().flat_map(gain).collect();
        list.extend(self.queries(parent, hidden).into_iter().map(Module::Linear));
        list.push(Module::Linear(self.down(parent, hidden)));
        list.push(Module::LatentUp(self.up(parent)));
        list.push(Module::Linear(self.output(parent, hidden)));
        list
    }

    pub(super) fn measure(&self, sizes: &mut ScratchSizes) {
        let (shape, attention) = (&self.shape, self.shape.attention());
        let low = match self.query {
            LatentQuery::Direct => 0,
            LatentQuery::LowRank { rank, .. } => rank,
        };
        sizes.low = sizes.low.max(low).max(shape.kept_cols());
        sizes.heads = sizes.heads.max(shape.q_cols()).max(shape.v_cols());
        sizes.qkv = sizes.qkv.max(attention.qkv_cols());
        sizes.attended = sizes.attended.max(attention.out_cols());
    }
}

/// Each machine has a share of the heads, and all of what is kept: the projection to latents is on every
/// machine, and so is what comes of it.
impl Shares for LatentMixer {
    fn share(&mut self, ranks: usize) -> Result<(), Unshared> {
        self.shape.heads = evenly(self.shape.heads, ranks, "heads of latent attention")?;
        Ok(())
    }

    /// The projection from latents to heads is cut where its storage is known, in `loader/latent.rs`.
    fn cut(&self, layer: &str, cuts: &mut Cuts) {
        let Latent { heads, plain, rotated, v_dim, .. } = self.shape;
        let queries = self.queries(layer, 0).pop().expect("there is a last projection to queries");
        cuts.rows(queries.name, &[Run { n: heads, each: plain + rotated }]);
        cuts.columns(self.output(layer, 0).name, Run { n: heads, each: v_dim });
    }
}

/// Latent attention on a device.
pub(crate) struct LatentWeights<B: Backend> {
    shape: Latent,
    attention: Attention,
    query: QueryWeights<B>,
    down: LinearWeights<B>,
    norm: NormWeights<B>,
    keys: B::Weight,
    order: LatentOrder,
    values: B::Weight,
    rope: Option<usize>,
    out: LinearWeights<B>,
}

enum QueryWeights<B: Backend> {
    Direct(LinearWeights<B>),
    LowRank { down: LinearWeights<B>, norm: NormWeights<B>, up: LinearWeights<B> },
}

impl<B: Backend> LatentWeights<B> {
    pub(super) fn load(
        loader: &Loader,
        b: &B,
        mixer: &LatentMixer,
        parent: &str,
    ) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let linear = |linear| LinearWeights::load(loader, b, &[linear]);
        let gain =
            |norm: &Norm, len| NormWeights::load(loader, b, norm, &name(parent, norm.name), len);
        let mut queries = mixer.queries(parent, hidden).into_iter().map(linear);
        let mut next = || queries.next().expect("as many projections as the query has");
        let query = match &mixer.query {
            LatentQuery::Direct => QueryWeights::Direct(next()?),
            LatentQuery::LowRank { rank, norm } => {
                QueryWeights::LowRank { down: next()?, norm: gain(norm, *rank)?, up: next()? }
            }
        };
        let up = loader.latent_up(&mixer.up(parent))?;
        Ok(LatentWeights {
            shape: mixer.shape.clone(),
            attention: mixer.shape.attention(),
            query,
            down: LinearWeights::load(loader, b, &[mixer.down(parent, hidden)])?,
            norm: gain(&mixer.norm, mixer.shape.rank)?,
            keys: b.weight(&up.keys),
            order: up.order,
            values: b.weight(&up.values),
            rope: mixer.rope,
            out: LinearWeights::load(loader, b, &[mixer.output(parent, hidden)])?,
        })
    }

    pub(super) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        pages: &mut B::Pages,
        s: &mut Scratch<B>,
    ) {
        match &self.query {
            QueryWeights::Direct(q) => {
                q.apply(b, wiring.input(&s.x), Output::Into(&mut s.heads));
            }
            QueryWeights::LowRank { down, norm, up } => {
                down.apply(b, wiring.input(&s.x), Output::Into(&mut s.low));
                up.apply(b, norm.input(&s.low), Output::Into(&mut s.heads));
            }
        }
        self.down.apply(b, wiring.input(&s.x), Output::Into(&mut s.low));
        let rows = LatentRows { q: &s.heads, kept: &s.low };
        let (weight, order) = (&self.keys, self.order);
        let keys = LatentKeys { weight, order, norm: self.norm.row_norm() };
        let rotation = self.rope.map(|i| (&pass.spec.ropes[i], &s.angles[i]));
        b.latent_queries(rows, keys, rotation, &self.shape, &mut s.qkv);
        let layer = AttentionLayer { spec: &self.attention, sinks: None };
        b.attend(&s.qkv, layer, pages, pass.batch, &mut s.attended);
        b.latent_values(&s.attended, &self.values, &self.shape, &mut s.heads);
        wiring.finish(b, (&self.out, &s.heads), &mut s.x, &mut s.y);
    }
}
