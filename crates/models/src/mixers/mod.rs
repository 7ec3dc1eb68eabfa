//! One file per way for positions to exchange information, one variant of [`Mixer`] each.

mod attention;
pub(crate) mod conv;
pub(crate) mod gated_delta;
mod latent;
mod mamba2;
mod short_conv;

use backend::{Attention, Backend, BlockId, DeviceError, KvFormat, KvGroup, Recurrence, SlotId};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Blocks of positions of layers that read all of them.
    pub n_blocks: usize,
    /// Blocks of positions of layers that read a window.
    pub n_windowed: usize,
    /// Recurrent states.
    pub n_slots: usize,
}

impl Room {
    /// Blocks of a group.
    pub fn blocks(&self, group: KvGroup) -> usize {
        match group {
            KvGroup::Full => self.n_blocks,
            KvGroup::Windowed => self.n_windowed,
        }
    }
}

/// What a mixer remembers between passes.
pub(crate) enum LayerStore<B: Backend> {
    Pages(KvGroup, B::Pages),
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
    pub(crate) fn new(mixer: &Mixer, format: KvFormat, room: Room, b: &B) -> Self {
        let pages = |spec: &Attention| {
            let group = spec.group();
            LayerStore::Pages(group, b.pages(spec, format, room.blocks(group)))
        };
        let spec = match mixer {
            Mixer::Attention(attention) => {
                return match attention.keys_values {
                    KeysValues::OfMixer(mixer) => LayerStore::Borrowed(mixer),
                    KeysValues::Own | KeysValues::OneProjection => pages(&attention.shape),
                };
            }
            Mixer::Latent(latent) => {
                return pages(&latent.shape.attention());
            }
            Mixer::GatedDelta(shape) => Recurrence::GatedDelta(shape.clone()),
            Mixer::Mamba2(mixer) => Recurrence::Mamba2(mixer.shape.clone()),
            Mixer::ShortConv(mixer) => Recurrence::ShortConv(mixer.shape.clone()),
        };
        LayerStore::States(b.states(&spec, room.n_slots))
    }

    /// The group of its pages; a mixer with states has none.
    pub(crate) fn group(&self) -> Option<KvGroup> {
        match self {
            LayerStore::Pages(group, _) => Some(*group),
            LayerStore::States(_) | LayerStore::Borrowed(_) => None,
        }
    }

    /// Bytes of one block; a mixer with states has none.
    pub(crate) fn block_bytes(&self, b: &B) -> usize {
        match self {
            LayerStore::Pages(_, pages) => b.block_bytes(pages),
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
            LayerStore::Pages(_, pages) => b.read_block(pages, block, out),
            LayerStore::States(_) | LayerStore::Borrowed(_) => Ok(()),
        }
    }

    pub(crate) fn write_block(&mut self, b: &B, block: BlockId, bytes: &[u8]) {
        match self {
            LayerStore::Pages(_, pages) => b.write_block(pages, block, bytes),
            LayerStore::States(_) | LayerStore::Borrowed(_) => {}
        }
    }

    /// Bytes of one state; a mixer with pages has none.
    pub(crate) fn state_bytes(&self, b: &B) -> usize {
        match self {
            LayerStore::Pages(..) | LayerStore::Borrowed(_) => 0,
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
            LayerStore::Pages(..) | LayerStore::Borrowed(_) => Ok(()),
            LayerStore::States(states) => b.read_state(states, slot, out),
        }
    }

    pub(crate) fn write_state(&mut self, b: &B, slot: SlotId, bytes: &[u8]) {
        match self {
            LayerStore::Pages(..) | LayerStore::Borrowed(_) => {}
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
            (MixerWeights::Attention(attention), LayerStore::Pages(_, pages)) => {
                attention.forward(b, pass, wiring, Kept::Own(pages), s);
            }
            (MixerWeights::Attention(attention), LayerStore::Borrowed(other)) => {
                let LayerStore::Pages(_, pages) = &before[*other] else {
                    unreachable!("only pages are borrowed");
                };
                attention.forward(b, pass, wiring, Kept::Others(pages), s);
            }
            (MixerWeights::Latent(latent), LayerStore::Pages(_, pages)) => {
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
