//! Draft heads on a device: what a position has become and the token that follows it go in, logits for
//! the token after that come out.
//!
//! No drafter: whoever calls decides for which rows, how many heads one after the other, and what
//! becomes of a guess. A head has a cache of its own, in which position `i` belongs to the token at
//! `i + 1`; positions may be counted from either, because only distances count in a rotation.

mod gains;

use backend::Backend;
use backend::ops::{Input, Output};
use weights::Checkpoint;

use crate::Error;
use crate::decoder::{Decoder, Scratch, Store};
use crate::dense::{LinearWeights, NormWeights};
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::{Draft, ModelSpec, Norm, PairOrder};

/// A draft head on a device. Embedding and output matrix are those of the model; devices that use
/// weights where they lie do not have them twice.
pub struct DraftHead<B: Backend> {
    token_norm: NormWeights<B>,
    hidden_norm: NormWeights<B>,
    projection: LinearWeights<B>,
    order: PairOrder,
    body: Decoder<B>,
}

/// What a pass of a draft head scribbles on.
pub struct DraftScratch<B: Backend> {
    /// Tokens and positions side by side.
    pair: B::Buf,
    body: Scratch<B>,
}

/// The draft heads that a checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredDrafts {
    /// How many, one for each token ahead.
    pub n: usize,
    /// Numbers in all of them, without those that they share with the model.
    pub n_params: u64,
    /// Bytes of these as stored.
    pub n_bytes: u64,
}

/// Counts the draft heads of `spec` that `checkpoint` has, without loading them.
///
/// # Errors
/// A head of which a part is missing or misshapen.
pub fn stored_drafts(spec: &ModelSpec, checkpoint: &Checkpoint) -> Result<StoredDrafts, Error> {
    let trunk = Loader::new(spec, checkpoint)?;
    let mut sum = StoredDrafts { n: 0, n_params: 0, n_bytes: 0 };
    for draft in stored(trunk.spec(), checkpoint) {
        let loader = Loader::new(&draft.body(trunk.spec()), checkpoint)?;
        sum.n += 1;
        for module in draft.modules(loader.spec()) {
            sum.n_params += module.n_params();
            sum.n_bytes += loader.n_bytes(&module)?;
        }
    }
    Ok(sum)
}

/// The heads of `spec` whose first part is there, up to the first one that is not.
fn stored<'a>(spec: &'a ModelSpec, checkpoint: &'a Checkpoint) -> impl Iterator<Item = &'a Draft> {
    let is_there = |draft: &&Draft| checkpoint.has_weight(&draft.projection(spec.hidden).name);
    spec.drafts.iter().take_while(is_there)
}

impl Draft {
    fn projection(&self, hidden: usize) -> Linear {
        Linear::new(format!("{}.{}", self.parent, self.projection), hidden, 2 * hidden)
    }

    /// Everything that a checkpoint has for this head alone. `body` is [`Draft::body`], settled.
    pub(crate) fn modules(&self, body: &ModelSpec) -> Vec<Module> {
        let gain = |norm: &Norm| norm.modules(norm.name_in(&self.parent), body.hidden);
        let mut list = gain(&self.token_norm);
        list.extend(gain(&self.hidden_norm));
        list.push(Module::Linear(self.projection(body.hidden)));
        let (embedding, head) = (body.embedding(), body.lm_head());
        let is_own = |module: &Module| match module {
            Module::Embedding(linear) => *linear != embedding,
            Module::Linear(linear) => *linear != head,
            _ => true,
        };
        list.extend(body.modules().into_iter().filter(is_own));
        list
    }
}

impl<B: Backend> DraftHead<B> {
    /// The draft heads of `spec` that `checkpoint` has, the one for the nearest token first.
    ///
    /// # Errors
    /// A head of which a part is missing, misshapen, or there without the spec using it.
    pub fn load(spec: &ModelSpec, checkpoint: &Checkpoint, b: &B) -> Result<Vec<Self>, Error> {
        let trunk = Loader::new(spec, checkpoint)?;
        let mut heads = Vec::new();
        for draft in stored(trunk.spec(), checkpoint) {
            let draft = gains::settled(draft, &trunk, checkpoint)?;
            let body = draft.body(trunk.spec());
            let norm = |norm: &Norm| {
                NormWeights::load(&trunk, b, norm, &norm.name_in(&draft.parent), body.hidden)
            };
            heads.push(DraftHead {
                token_norm: norm(&draft.token_norm)?,
                hidden_norm: norm(&draft.hidden_norm)?,
                projection: LinearWeights::load(&trunk, b, &[draft.projection(body.hidden)])?,
                order: draft.order,
                body: Decoder::load(&body, checkpoint, b)?,
            });
        }
        Ok(heads)
    }

    /// The head as a model of few layers: what its [`Store`] is made from.
    pub fn spec(&self) -> &ModelSpec {
        self.body.spec()
    }

    /// Runs `batch`, whose tokens are those that follow the rows of `hidden`. Leaves the wanted logits
    /// in [`DraftScratch::logits`]. Allocates nothing.
    pub fn forward(
        &self,
        b: &B,
        (batch, hidden): (&B::Staged, &B::Buf),
        store: &mut Store<B>,
        s: &mut DraftScratch<B>,
    ) {
        let DraftScratch { pair, body } = s;
        self.body.embed(b, batch, body);
        self.token_norm.apply(b, &body.x, &mut body.h);
        self.hidden_norm.apply(b, hidden, &mut body.y);
        match self.order {
            PairOrder::TokenFirst => b.join(&body.h, &body.y, pair),
            PairOrder::HiddenFirst => b.join(&body.y, &body.h, pair),
        }
        self.projection.apply(b, Input::Rows(pair), Output::Into(&mut body.x));
        self.body.run(b, batch, store, body);
    }

    /// What the last pass made of its wanted rows: what the next head goes on from, or this one for
    /// one token more.
    pub fn hidden(&self, b: &B, s: &DraftScratch<B>, out: &mut B::Buf) {
        self.body.hidden(b, &s.body, out);
    }
}

impl<B: Backend> DraftScratch<B> {
    /// Room for batches of up to `max_rows` rows of which up to `max_want` are wanted, for a head with
    /// this [`DraftHead::spec`].
    pub fn new(spec: &ModelSpec, max_rows: usize, max_want: usize, b: &B) -> Self {
        let body = Scratch::new(spec, max_rows, max_want, b);
        DraftScratch { pair: b.buf(2 * max_rows * spec.hidden), body }
    }

    /// The logits of the last pass, one row of `vocab` per wanted row, in the batch's order.
    pub fn logits(&self) -> &B::Buf {
        self.body.logits()
    }
}
