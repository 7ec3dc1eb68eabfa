//! One file per way for positions to exchange information, one variant of [`Mixer`] each.

mod attention;
pub(crate) mod conv;
pub(crate) mod gated_delta;
mod latent;
mod mamba2;
mod short_conv;

use backend::{Backend, BlockId, DeviceError, KvFormat, Recurrence, SlotId};

use self::attention::Kept;
use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::{KeysValues, Mixer};
use crate::step::Wiring;

/// A mixer on a device.
pub(crate) enum MixerWeights<B: Backend> {
    Attention(attention::AttentionWeights<B>),
    Latent(latent::LatentWeights<B>),
    GatedDelta(gated_delta::GatedDeltaWeights<B>),
    Mamba2(mamba2::Mamba2Weights<B>),
    ShortConv(short_conv::ShortConvWeights<B>),
}

/// Room for what the layers remember.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// How keys and values are stored.
    pub(crate) format: KvFormat,
    /// Blocks of positions.
    pub(crate) n_blocks: usize,
    /// Recurrent states.
    pub(crate) n_slots: usize,
}

/// What a mixer remembers between passes.
pub(crate) enum LayerStore<B: Backend> {
    Pages(B::Pages),
    States(B::States),
    /// Nothing: it reads what this mixer stores.
    Borrowed(usize),
}

/// What all mixers remember, which take theirs in turn.
pub(crate) struct Stores<'a, B: Backend> {
    all: &'a mut [LayerStore<B>],
    next: usize,
}

impl<'a, B: Backend> Stores<'a, B> {
    /// `all` has one entry per mixer, the first one first.
    pub(crate) fn new(all: &'a mut [LayerStore<B>]) -> Self {
        Stores { all, next: 0 }
    }

    /// Those of the mixers before the next one, and its own.
    fn take(&mut self) -> (&[LayerStore<B>], &mut LayerStore<B>) {
        let (before, from) = self.all.split_at_mut(self.next);
        self.next += 1;
        (before, from.first_mut().expect("a store is made for every mixer"))
    }
}

/// The named pieces of a mixer in layer `parent`.
pub(crate) fn modules(mixer: &Mixer, parent: &str, hidden: usize) -> Vec<Module> {
    match mixer {
        Mixer::Attention(attention) => attention.modules(parent, hidden),
        Mixer::Latent(latent) => latent.modules(parent, hidden),
        Mixer::GatedDelta(shape) => gated_delta::modules(shape, parent, hidden),
        Mixer::Mamba2(mixer) => mixer.modules(parent, hidden),
        Mixer::ShortConv(mixer) => mixer.modules(parent, hidden),
    }
}

/// Room that a mixer needs per row.
pub(crate) fn measure(mixer: &Mixer, hidden: usize, sizes: &mut ScratchSizes) {
    match mixer {
        Mixer::Attention(attention) => attention.measure(sizes),
        Mixer::Latent(latent) => latent.measure(sizes),
        Mixer::GatedDelta(shape) => gated_delta::measure(shape, sizes),
        Mixer::Mamba2(mixer) => mixer.measure(hidden, sizes),
        Mixer::ShortConv(mixer) => mixer.measure(sizes),
    }
}

impl<B: Backend> LayerStore<B> {
    pub(crate) fn new(mixer: &Mixer, room: Room, b: &B) -> Self {
        let Room { format, n_blocks, n_slots } = room;
        let spec = match mixer {
            Mixer::Attention(attention) => {
                return match attention.keys_values {
                    KeysValues::OfMixer(mixer) => LayerStore::Borrowed(mixer),
                    KeysValues::Own | KeysValues::OneProjection => {
                        LayerStore::Pages(b.pages(&attention.shape, format, n_blocks))
                    }
                };
            }
            Mixer::Latent(latent) => {
                return LayerStore::Pages(b.pages(&latent.shape.attention(), format, n_blocks));
            }
            Mixer::GatedDelta(shape) => Recurrence::GatedDelta(shape.clone()),
            Mixer::Mamba2(mixer) => Recurrence::Mamba2(mixer.shape.clone()),
            Mixer::ShortConv(mixer) => Recurrence::ShortConv(mixer.shape.clone()),
        };
        LayerStore::States(b.states(&spec, n_slots))
    }

    /// Bytes of one block; a mixer with states has none.
    pub(crate) fn block_bytes(&self, b: &B) -> usize {
        match self {
            LayerStore::Pages(pages) => b.block_bytes(pages),
            LayerStore::States(_) | LayerStore::Borrowed(_) => 0,
        }
    }

    pub(crate) fn read_block(
        &self,
        b: &B,
        block: BlockId,
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        match self {
            LayerStore::Pages(pages) => b.read_block(pages, block, out),
            LayerStore::States(_) | LayerStore::Borrowed(_) => Ok(()),
        }
    }

    pub(crate) fn write_block(&mut self, b: &B, block: BlockId, bytes: &[u8]) {
        match self {
            LayerStore::Pages(pages) => b.write_block(pages, block, bytes),
            LayerStore::States(_) | LayerStore::Borrowed(_) => {}
        }
    }

    /// Bytes of one state; a mixer with pages has none.
    pub(crate) fn state_bytes(&self, b: &B) -> usize {
        match self {
            LayerStore::Pages(_) | LayerStore::Borrowed(_) => 0,
            LayerStore::States(states) => b.state_bytes(states),
        }
    }

    pub(crate) fn read_state(
        &self,
        b: &B,
        slot: SlotId,
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        match self {
            LayerStore::Pages(_) | LayerStore::Borrowed(_) => Ok(()),
            LayerStore::States(states) => b.read_state(states, slot, out),
        }
    }

    pub(crate) fn write_state(&mut self, b: &B, slot: SlotId, bytes: &[u8]) {
        match self {
            LayerStore::Pages(_) | LayerStore::Borrowed(_) => {}
            LayerStore::States(states) => b.write_state(states, slot, bytes),
        }
    }
}

impl<B: Backend> MixerWeights<B> {
    pub(crate) fn load(loader: &Loader, b: &B, mixer: &Mixer, parent: &str) -> Result<Self, Error> {
        Ok(match mixer {
            Mixer::Attention(attention) => MixerWeights::Attention(
                attention::AttentionWeights::load(loader, b, attention, parent)?,
            ),
            Mixer::Latent(latent) => {
                MixerWeights::Latent(latent::LatentWeights::load(loader, b, latent, parent)?)
            }
            Mixer::GatedDelta(shape) => MixerWeights::GatedDelta(
                gated_delta::GatedDeltaWeights::load(loader, b, shape, parent)?,
            ),
            Mixer::Mamba2(mixer) => {
                MixerWeights::Mamba2(mamba2::Mamba2Weights::load(loader, b, mixer, parent)?)
            }
            Mixer::ShortConv(mixer) => MixerWeights::ShortConv(short_conv::ShortConvWeights::load(
                loader, b, mixer, parent,
            )?),
        })
    }

    /// Says something about `s.x`, to where `wiring` leads.
    pub(crate) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        wiring: &Wiring<'_, B>,
        stores: &mut Stores<'_, B>,
        s: &mut Scratch<B>,
    ) {
        let (before, own) = stores.take();
        match (self, own) {
            (MixerWeights::Attention(attention), LayerStore::Pages(pages)) => {
                attention.forward(b, pass, wiring, Kept::Own(pages), s);
            }
            (MixerWeights::Attention(attention), LayerStore::Borrowed(other)) => {
                let LayerStore::Pages(pages) = &before[*other] else {
                    unreachable!("only pages are borrowed");
                };
                attention.forward(b, pass, wiring, Kept::Others(pages), s);
            }
            (MixerWeights::Latent(latent), LayerStore::Pages(pages)) => {
                latent.forward(b, pass, wiring, pages, s);
            }
            (MixerWeights::GatedDelta(delta), LayerStore::States(states)) => {
                delta.forward(b, pass, wiring, states, s);
            }
            (MixerWeights::Mamba2(mamba), LayerStore::States(states)) => {
                mamba.forward(b, pass, wiring, states, s);
            }
            (MixerWeights::ShortConv(conv), LayerStore::States(states)) => {
                conv.forward(b, pass, wiring, states, s);
            }
            _ => unreachable!("a store is made from the same spec as the weights"),
        }
    }
}
