//! The forward pass. There is only this one, for every family and every device.
//!
//! It knows neither sequences nor schedules: a batch of rows comes in, logits of the wanted rows come
//! out.

use backend::ops::Output;
use backend::{Backend, BlockId, DeviceError, SlotId};
use weights::Checkpoint;

use crate::dense::{LinearWeights, NormWeights, NormsWeights};
use crate::ffn::{self, FfnWeights};
use crate::loader::Loader;
use crate::mixers::{self, LayerStore, MixerWeights};
use crate::modules::layer_name;
use crate::recipe::{Head, Layer};
use crate::{Error, ModelSpec};

/// A loaded model: weights on the device, nothing that changes.
pub struct Decoder<B: Backend> {
    spec: ModelSpec,
    embed: B::Weight,
    layers: Vec<LayerWeights<B>>,
    final_norm: NormWeights<B>,
    head: HeadWeights<B>,
    notes: Vec<String>,
}

struct LayerWeights<B: Backend> {
    mixer_norms: NormsWeights<B>,
    mixer: MixerWeights<B>,
    ffn_norms: NormsWeights<B>,
    ffn: FfnWeights<B>,
}

enum HeadWeights<B: Backend> {
    Tied,
    Separate(LinearWeights<B>),
}

/// What the model remembers between passes, one entry per layer.
pub struct Store<B: Backend> {
    layers: Vec<LayerStore<B>>,
}

/// What one pass scribbles on. Allocated once, for the largest batch.
pub struct Scratch<B: Backend> {
    /// The residual stream.
    pub(crate) x: B::Buf,
    /// What a branch reads.
    pub(crate) h: B::Buf,
    /// What a branch says.
    pub(crate) y: B::Buf,
    /// Cosine and sine for each distinct rotation.
    pub(crate) angles: Vec<B::Buf>,
    /// What a mixer projects its input to.
    pub(crate) qkv: B::Buf,
    /// What it makes of that.
    pub(crate) attended: B::Buf,
    /// What the heads of attention are gated with.
    pub(crate) gate: B::Buf,
    /// What a gated feed-forward layer has between its projections.
    pub(crate) inner: B::Buf,
    pub(crate) router: B::Buf,
    pub(crate) shared: B::Buf,
    pub(crate) shared_gate: B::Buf,
    logits: B::Buf,
}

/// What all layers of one pass see.
pub(crate) struct Pass<'a, B: Backend> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) batch: &'a B::Staged,
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
    pub(crate) qkv: usize,
    pub(crate) attended: usize,
    pub(crate) gate: usize,
    pub(crate) inner: usize,
    pub(crate) router: usize,
    pub(crate) shared: usize,
    pub(crate) shared_gate: usize,
}

impl ScratchSizes {
    /// What the layers of `spec` need.
    pub(crate) fn of(spec: &ModelSpec) -> ScratchSizes {
        let mut sizes = ScratchSizes::default();
        for layer in &spec.layers {
            mixers::measure(&layer.mixer, &mut sizes);
            ffn::measure(&layer.ffn, spec.hidden, &mut sizes);
        }
        sizes
    }

    /// Numbers that [`Scratch::new`] allocates for each row, without logits.
    pub(crate) fn numbers_per_row(&self, spec: &ModelSpec) -> usize {
        let angles: usize = spec.ropes.iter().map(|rope| 2 * rope.inv_freq.len()).sum();
        let ScratchSizes { qkv, attended, gate, inner, router, shared, shared_gate } = *self;
        3 * spec.hidden + angles + qkv + attended + gate + inner + router + shared + shared_gate
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
        let embed = b.weight(&[loader.matrix(&spec.embedding())?]);
        let mut layers = Vec::with_capacity(spec.layers.len());
        for (i, layer) in spec.layers.iter().enumerate() {
            layers.push(LayerWeights::load(&loader, b, layer, &layer_name(i))?);
            progress(i + 1, spec.layers.len());
        }
        let name = spec.final_norm_name();
        let final_norm = NormWeights::load(&loader, b, &spec.final_norm, &name, spec.hidden)?;
        let head = match spec.head {
            Head::Tied => HeadWeights::Tied,
            Head::Separate | Head::IfStored => {
                HeadWeights::Separate(LinearWeights::load(&loader, b, &[spec.lm_head()])?)
            }
        };
        Ok(Decoder { embed, layers, final_norm, head, notes: loader.into_notes(), spec })
    }

    /// The recipe this was made from, its head settled.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What loading decided or ignored, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Runs `batch`, leaving the wanted logits in [`Scratch::logits`].
    ///
    /// Does nothing but call ops, and allocates nothing.
    pub fn forward(&self, b: &B, batch: &B::Staged, store: &mut Store<B>, s: &mut Scratch<B>) {
        b.embed(&self.embed, batch, self.spec.embed_scale, &mut s.x);
        for (rope, angles) in self.spec.ropes.iter().zip(&mut s.angles) {
            b.angles(rope, batch, angles);
        }
        let pass = Pass { spec: &self.spec, batch };
        for (i, (layer, store)) in self.layers.iter().zip(&mut store.layers).enumerate() {
            layer.mixer.forward(b, pass, &layer.mixer_norms, store, s);
            if i + 1 == self.layers.len() {
                // Nobody looks back at this layer, so only rows that say something go on.
                b.gather(&s.x, batch, &mut s.h);
                std::mem::swap(&mut s.x, &mut s.h);
            }
            layer.ffn.forward(b, &layer.ffn_norms, s);
        }
        let (x, logits) = (self.final_norm.input(&s.x), Output::Into(&mut s.logits));
        match &self.head {
            HeadWeights::Tied => b.linear(x, &self.embed, None, logits),
            HeadWeights::Separate(head) => head.apply(b, x, logits),
        }
        if let Some(cap) = self.spec.final_soft_cap {
            b.soft_cap(&mut s.logits, cap);
        }
    }
}

impl<B: Backend> LayerWeights<B> {
    fn load(loader: &Loader, b: &B, layer: &Layer, name: &str) -> Result<Self, Error> {
        Ok(LayerWeights {
            mixer_norms: NormsWeights::load(loader, b, &layer.mixer_norms, name)?,
            mixer: MixerWeights::load(loader, b, &layer.mixer, name)?,
            ffn_norms: NormsWeights::load(loader, b, &layer.ffn_norms, name)?,
            ffn: FfnWeights::load(loader, b, &layer.ffn, name)?,
        })
    }
}

impl<B: Backend> Store<B> {
    /// Caches for `n_blocks` blocks of [`backend::BLOCK`] positions and `n_slots` recurrent states,
    /// shared by all sequences.
    pub fn new(spec: &ModelSpec, n_blocks: usize, n_slots: usize, b: &B) -> Store<B> {
        let store = |layer: &Layer| LayerStore::new(&layer.mixer, n_blocks, n_slots, b);
        Store { layers: spec.layers.iter().map(store).collect() }
    }

    /// Bytes of one block in all layers together, as [`Store::read_block`] gives them.
    pub fn block_bytes(&self, b: &B) -> usize {
        self.layers.iter().map(|layer| layer.block_bytes(b)).sum()
    }

    /// Copies what all layers hold in `block` into `out`, layer after layer, in the device's own
    /// layout.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_block(&self, b: &B, block: BlockId, mut out: &mut [u8]) -> Result<(), DeviceError> {
        for layer in &self.layers {
            let (own, rest) = out.split_at_mut(layer.block_bytes(b));
            layer.read_block(b, block, own)?;
            out = rest;
        }
        Ok(())
    }

    /// Makes `block` hold what [`Store::read_block`] gave, bit for bit, in all layers.
    pub fn write_block(&mut self, b: &B, block: BlockId, mut bytes: &[u8]) {
        for layer in &mut self.layers {
            let (own, rest) = bytes.split_at(layer.block_bytes(b));
            layer.write_block(b, block, own);
            bytes = rest;
        }
    }

    /// Bytes of one recurrent state in all layers together, as [`Store::read_state`] gives them. 0
    /// for a model that has none.
    pub fn state_bytes(&self, b: &B) -> usize {
        self.layers.iter().map(|layer| layer.state_bytes(b)).sum()
    }

    /// Copies the states in `slot` into `out`, layer after layer, in the device's own layout.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_state(&self, b: &B, slot: SlotId, mut out: &mut [u8]) -> Result<(), DeviceError> {
        for layer in &self.layers {
            let (own, rest) = out.split_at_mut(layer.state_bytes(b));
            layer.read_state(b, slot, own)?;
            out = rest;
        }
        Ok(())
    }

    /// Makes `slot` hold what [`Store::read_state`] gave, bit for bit, in all layers.
    pub fn write_state(&mut self, b: &B, slot: SlotId, mut bytes: &[u8]) {
        for layer in &mut self.layers {
            let (own, rest) = bytes.split_at(layer.state_bytes(b));
            layer.write_state(b, slot, own);
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
            h: rows(spec.hidden),
            y: rows(spec.hidden),
            angles: spec.ropes.iter().map(|rope| rows(2 * rope.inv_freq.len())).collect(),
            qkv: rows(sizes.qkv),
            attended: rows(sizes.attended),
            gate: rows(sizes.gate),
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
        for family in ["llama", "qwen2_moe", "gemma2", "phi3", "qwen3_next", "qwen3_5_text"] {
            let config = tiny::config(family).expect("there is a tiny one");
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
