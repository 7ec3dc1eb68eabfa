//! The forward pass. There is only this one, for every family and every device.
//!
//! It knows neither sequences nor schedules: a batch of rows comes in, logits of the wanted rows come
//! out.

use backend::ops::RowsOf;
use backend::{Backend, BlockId, DeviceError, KvGroup, SlotId};
use weights::Checkpoint;

use crate::ends::Ends;
use crate::ffn;
use crate::layers::Layers;
use crate::loader::Loader;
use crate::mixers::{self, LayerStore, Room};
use crate::recipe::{Branch, Skip, Streams};
use crate::{Error, ModelSpec};

/// A loaded model: weights on the device, nothing that changes.
pub struct Decoder<B: Backend> {
    spec: ModelSpec,
    ends: Ends<B>,
    layers: Layers<B>,
    notes: Vec<String>,
}

/// What the model remembers between passes, one entry per mixer.
pub struct Store<B: Backend> {
    pub(crate) mixers: Vec<LayerStore<B>>,
}

/// What one pass scribbles on. Allocated once, for the largest batch.
pub struct Scratch<B: Backend> {
    /// The residual stream, or of several the one that layers compute with.
    pub(crate) x: B::Buf,
    /// All streams, if there are several.
    pub(crate) streams: B::Buf,
    /// Those that begin as something else than the embedding, or all of some rows.
    pub(crate) other_streams: B::Buf,
    /// What the router of streams says.
    pub(crate) modalities: B::Buf,
    /// What a branch reads.
    pub(crate) h: B::Buf,
    /// What a branch says, or the sum of several.
    pub(crate) y: B::Buf,
    /// What a branch says that cannot add to that sum by itself.
    pub(crate) more: B::Buf,
    /// What tokens bring along for all layers.
    pub(crate) inputs: B::Buf,
    /// Cosine and sine for each distinct rotation.
    pub(crate) angles: Vec<B::Buf>,
    /// What a mixer projects its input to.
    pub(crate) qkv: B::Buf,
    /// What it makes of that.
    pub(crate) attended: B::Buf,
    /// Queries of latent attention, then the values of its heads.
    pub(crate) heads: B::Buf,
    /// What the heads of attention are gated with.
    pub(crate) gate: B::Buf,
    /// Decays of a state, where these are rows of their own.
    pub(crate) decays: B::Buf,
    /// What is between two projections to one of the two, or what latent attention keeps.
    pub(crate) low: B::Buf,
    /// What a gated feed-forward layer has between its projections.
    pub(crate) inner: B::Buf,
    pub(crate) router: B::Buf,
    pub(crate) shared: B::Buf,
    pub(crate) shared_gate: B::Buf,
    pub(crate) logits: B::Buf,
}

/// What all layers of one pass see.
pub(crate) struct Pass<'a, B: Backend> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) batch: &'a B::Staged,
    /// Which rows of the batch the residual stream has by now.
    pub(crate) rows: RowsOf<'a, B>,
}

// Written out because a derive would ask for `B: Copy`.
impl<B: Backend> Clone for Pass<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Pass<'_, B> {}

/// Columns that the layers need, the largest of each.
#[derive(Debug, Default)]
pub(crate) struct ScratchSizes {
    pub(crate) more: usize,
    pub(crate) qkv: usize,
    pub(crate) attended: usize,
    pub(crate) heads: usize,
    pub(crate) gate: usize,
    pub(crate) decays: usize,
    pub(crate) low: usize,
    pub(crate) inner: usize,
    pub(crate) router: usize,
    pub(crate) shared: usize,
    pub(crate) shared_gate: usize,
}

impl ScratchSizes {
    /// What the layers of `spec` need.
    pub(crate) fn of(spec: &ModelSpec) -> ScratchSizes {
        let mut sizes = ScratchSizes { router: spec.coefficient_cols(), ..ScratchSizes::default() };
        for step in spec.layers.iter().flat_map(|layer| &layer.steps) {
            if step.branches.len() > 1 || spec.streams != Streams::One {
                sizes.more = spec.hidden;
            }
            if let Skip::Laurel(laurel) = &step.skip {
                laurel.measure(spec.hidden, &mut sizes);
            }
            for branch in &step.branches {
                match branch {
                    Branch::Mixer(mixer) => mixers::measure(mixer, spec.hidden, &mut sizes),
                    Branch::Ffn(ffn) => ffn::measure(ffn, spec.hidden, &mut sizes),
                }
            }
        }
        sizes
    }

    /// Numbers that [`Scratch::new`] allocates for each row, without logits.
    pub(crate) fn numbers_per_row(&self, spec: &ModelSpec) -> usize {
        let angles: usize = spec.ropes.iter().map(|rope| 2 * rope.inv_freq.len()).sum();
        let ScratchSizes { more, qkv, attended, heads, gate, decays, low, .. } = *self;
        let ScratchSizes { inner, router, shared, shared_gate, .. } = *self;
        3 * spec.hidden
            + 2 * spec.stream_cols()
            + spec.coefficient_cols().isqrt()
            + spec.layer_input_cols()
            + more
            + angles
            + qkv
            + attended
            + heads
            + gate
            + decays
            + low
            + inner
            + router
            + shared
            + shared_gate
    }
}

impl<B: Backend> Decoder<B> {
    /// Takes the weights that `spec` names out of `checkpoint` and gives them to the device.
    ///
    /// # Errors
    /// A tensor that is missing, misshapen, or there without the spec using it.
    pub fn load(spec: &ModelSpec, checkpoint: &Checkpoint, b: &B) -> Result<Decoder<B>, Error> {
        Decoder::load_with_progress(spec, checkpoint, b, &mut |_, _| {})
    }

    /// Like [`Decoder::load`]; calls `progress(done, total)` after each layer.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn load_with_progress(
        spec: &ModelSpec,
        checkpoint: &Checkpoint,
        b: &B,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Decoder<B>, Error> {
        let loader = Loader::new(spec, checkpoint)?;
        let spec = loader.spec().clone();
        let ends = Ends::load(&loader, b)?;
        let layers = Layers::load(&loader, b, 0..spec.layers.len(), progress)?;
        Ok(Decoder { ends, layers, notes: loader.into_notes(), spec })
    }

    /// The recipe this was made from, its head settled.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What loading decided or ignored, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the last pass made of its wanted rows, as the output matrix reads it: what draft heads go
    /// on from. `out` needs room for the spec's `hidden` numbers a row.
    pub fn hidden(&self, b: &B, s: &Scratch<B>, out: &mut B::Buf) {
        self.ends.final_norm.apply(b, &s.x, out);
    }

    /// Runs `batch`, leaving the wanted logits in [`Scratch::logits`].
    ///
    /// Does nothing but call ops, and allocates nothing.
    pub fn forward(&self, b: &B, batch: &B::Staged, store: &mut Store<B>, s: &mut Scratch<B>) {
        self.ends.enter(b, &self.spec, batch, s);
        self.run(b, batch, store, s);
    }

    /// Makes the residual stream the embeddings of the batch's tokens.
    pub(crate) fn embed(&self, b: &B, batch: &B::Staged, s: &mut Scratch<B>) {
        self.ends.embed(b, &self.spec, batch, s);
    }

    /// Takes the residual stream through all layers, to logits.
    pub(crate) fn run(&self, b: &B, batch: &B::Staged, store: &mut Store<B>, s: &mut Scratch<B>) {
        self.layers.all(b, (&self.spec, batch), store, s);
        self.ends.leave(b, &self.spec, s);
    }
}

impl<B: Backend> Store<B> {
    /// Caches in the spec's format with `room` for blocks of [`backend::BLOCK`] positions and for
    /// recurrent states, shared by all sequences.
    pub fn new(spec: &ModelSpec, room: Room, b: &B) -> Store<B> {
        let store = |mixer| LayerStore::new(mixer, spec.kv_format, room, b);
        Store { mixers: spec.mixers().map(store).collect() }
    }

    /// Bytes of one block of all mixers of a group together, as [`Store::read_block`] gives them.
    pub fn block_bytes(&self, b: &B, group: KvGroup) -> usize {
        self.mixers_of(group).map(|store| store.block_bytes(b)).sum()
    }

    /// Those with pages of a group.
    fn mixers_of(&self, group: KvGroup) -> impl Iterator<Item = &LayerStore<B>> {
        self.mixers.iter().filter(move |store| store.group() == Some(group))
    }

    /// Copies what all mixers of a group hold in one of its blocks into `out`, one after the other, in
    /// the device's own layout.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_block(
        &self,
        b: &B,
        (group, block): (KvGroup, BlockId),
        mut out: &mut [u8],
    ) -> Result<(), DeviceError> {
        for store in self.mixers_of(group) {
            let (own, rest) = out.split_at_mut(store.block_bytes(b));
            store.read_block(b, block, own)?;
            out = rest;
        }
        Ok(())
    }

    /// Makes a block of a group hold what [`Store::read_block`] gave, bit for bit.
    pub fn write_block(&mut self, b: &B, (group, block): (KvGroup, BlockId), mut bytes: &[u8]) {
        for store in self.mixers.iter_mut().filter(|store| store.group() == Some(group)) {
            let (own, rest) = bytes.split_at(store.block_bytes(b));
            store.write_block(b, block, own);
            bytes = rest;
        }
    }

    /// Bytes of one recurrent state of all mixers together, as [`Store::read_state`] gives them. 0
    /// for a model that has none.
    pub fn state_bytes(&self, b: &B) -> usize {
        self.mixers.iter().map(|store| store.state_bytes(b)).sum()
    }

    /// Copies the states in `slot` into `out`, one after the other, in the device's own layout.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_state(&self, b: &B, slot: SlotId, mut out: &mut [u8]) -> Result<(), DeviceError> {
        for store in &self.mixers {
            let (own, rest) = out.split_at_mut(store.state_bytes(b));
            store.read_state(b, slot, own)?;
            out = rest;
        }
        Ok(())
    }

    /// Makes `slot` hold what [`Store::read_state`] gave, bit for bit, for all mixers.
    pub fn write_state(&mut self, b: &B, slot: SlotId, mut bytes: &[u8]) {
        for store in &mut self.mixers {
            let (own, rest) = bytes.split_at(store.state_bytes(b));
            store.write_state(b, slot, own);
            bytes = rest;
        }
    }
}

impl<B: Backend> Scratch<B> {
    /// Room for batches of up to `max_rows` rows of which up to `max_want` are wanted.
    pub fn new(spec: &ModelSpec, max_rows: usize, max_want: usize, b: &B) -> Scratch<B> {
        Scratch::with(spec, max_rows, max_want, &|numbers| b.buf(numbers))
    }

    /// [`Scratch::new`] with the buffers that `buf` makes.
    fn with(
        spec: &ModelSpec,
        max_rows: usize,
        max_want: usize,
        buf: &dyn Fn(usize) -> B::Buf,
    ) -> Scratch<B> {
        let sizes = ScratchSizes::of(spec);
        let rows = |cols| buf(max_rows * cols);
        Scratch {
            x: rows(spec.hidden),
            streams: rows(spec.stream_cols()),
            other_streams: rows(spec.stream_cols()),
            modalities: rows(spec.coefficient_cols().isqrt()),
            h: rows(spec.hidden),
            y: rows(spec.hidden),
            more: rows(sizes.more),
            inputs: rows(spec.layer_input_cols()),
            angles: spec.ropes.iter().map(|rope| rows(2 * rope.inv_freq.len())).collect(),
            qkv: rows(sizes.qkv),
            attended: rows(sizes.attended),
            heads: rows(sizes.heads),
            gate: rows(sizes.gate),
            decays: rows(sizes.decays),
            low: rows(sizes.low),
            inner: rows(sizes.inner),
            router: rows(sizes.router),
            shared: rows(sizes.shared),
            shared_gate: rows(sizes.shared_gate),
            logits: buf(max_want * spec.vocab),
        }
    }

    /// The logits of the last pass, one row of `vocab` per wanted row, in the batch's order.
    pub fn logits(&self) -> &B::Buf {
        &self.logits
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use backend::ops::Memory;
    use backend::reference::Reference;

    use super::*;
    use crate::tiny;

    /// What is allocated is what the plan says.
    #[test]
    fn scratch_is_what_the_plan_says() {
        for (family, names) in crate::FAMILIES {
            let config = tiny::config(names[0]).expect("there is a tiny one");
            let spec = crate::recipe(&config).expect("it is sound");
            let allocated = Cell::new(0);
            let device = Reference;
            let buf = |numbers: usize| {
                allocated.set(allocated.get() + numbers);
                device.buf(numbers)
            };
            let scratch: Scratch<Reference> = Scratch::with(&spec, 7, 3, &buf);
            assert_eq!(spec.scratch_bytes(7, 3), 4 * allocated.get(), "{family}");
            drop(scratch);
        }
    }
}
