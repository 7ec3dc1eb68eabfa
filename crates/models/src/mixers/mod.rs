//! One file per way for positions to exchange information, one variant of [`Mixer`] each.

mod attention;

use backend::{Backend, BlockId, DeviceError};

use crate::Error;
use crate::decoder::{Pass, Scratch, ScratchSizes};
use crate::dense::NormsWeights;
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::Mixer;

/// A mixer on a device.
pub(crate) enum MixerWeights<B: Backend> {
    Attention(attention::AttentionWeights<B>),
}

/// What a mixer remembers between passes.
pub(crate) enum LayerStore<B: Backend> {
    Pages(B::Pages),
}

/// The named pieces of a mixer in layer `parent`.
pub(crate) fn modules(mixer: &Mixer, parent: &str, hidden: usize) -> Vec<Module> {
    match mixer {
        Mixer::Attention(attention) => attention.modules(parent, hidden),
    }
}

/// Room that a mixer needs per row.
pub(crate) fn measure(mixer: &Mixer, sizes: &mut ScratchSizes) {
    match mixer {
        Mixer::Attention(attention) => attention.measure(sizes),
    }
}

impl<B: Backend> LayerStore<B> {
    pub(crate) fn new(mixer: &Mixer, n_blocks: usize, b: &B) -> Self {
        match mixer {
            Mixer::Attention(attention) => LayerStore::Pages(b.pages(&attention.shape, n_blocks)),
        }
    }

    /// Bytes of one block.
    pub(crate) fn block_bytes(&self, b: &B) -> usize {
        match self {
            LayerStore::Pages(pages) => b.block_bytes(pages),
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
        }
    }

    pub(crate) fn write_block(&mut self, b: &B, block: BlockId, bytes: &[u8]) {
        match self {
            LayerStore::Pages(pages) => b.write_block(pages, block, bytes),
        }
    }
}

impl<B: Backend> MixerWeights<B> {
    pub(crate) fn load(loader: &Loader, b: &B, mixer: &Mixer, parent: &str) -> Result<Self, Error> {
        Ok(match mixer {
            Mixer::Attention(attention) => MixerWeights::Attention(
                attention::AttentionWeights::load(loader, b, attention, parent)?,
            ),
        })
    }

    /// Adds to `s.x` what this says about it, through `norms`.
    pub(crate) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        norms: &NormsWeights<B>,
        store: &mut LayerStore<B>,
        s: &mut Scratch<B>,
    ) {
        match (self, store) {
            (MixerWeights::Attention(attention), LayerStore::Pages(pages)) => {
                attention.forward(b, pass, norms, pages, s);
            }
        }
    }
}
