//! What a model costs, from its spec alone: parameters, and memory per cached token.
//!
//! Bytes of weights depend on how they are packed and are counted from a checkpoint, in
//! [`Footprint::of`].

use backend::{BLOCK, KvFormat, KvGroup, Recurrence};
use weights::{Checkpoint, Matrix};

use crate::decoder::ScratchSizes;
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::{AttentionMixer, Head, KeysValues, Mixer, ModelSpec};
use crate::{Error, Part, Share};

impl ModelSpec {
    /// Numbers in the model. A tied head counts once.
    pub fn n_params(&self) -> u64 {
        self.modules().iter().fold(0, |sum, module| sum.saturating_add(module.n_params()))
    }

    /// Numbers that decoding one token reads: all but the experts it does not meet and the
    /// embeddings of other tokens. A tied head counts.
    pub fn n_active_params(&self) -> u64 {
        let head = match self.head {
            Head::Tied => self.lm_head().n_params(),
            Head::Separate | Head::UnitColumns | Head::IfStored => 0,
        };
        self.modules().iter().fold(head, |sum, module| sum.saturating_add(module.n_active_params()))
    }

    /// Bytes that one more position takes in the caches of all mixers together, on average and
    /// rounded up.
    pub fn kv_bytes_per_token(&self) -> usize {
        self.kv_bytes_per_block().div_ceil(BLOCK)
    }

    /// Bytes of one recurrent state of all mixers together, however long the sequence is. 0: this
    /// model has none.
    pub fn state_bytes(&self) -> usize {
        let bytes = |mixer: &Mixer| match mixer.cache(self.kv_format) {
            Cache::Pages { .. } | Cache::Borrowed { .. } => 0,
            Cache::State { bytes } => bytes,
        };
        self.mixers().map(bytes).fold(0, usize::saturating_add)
    }

    /// Bytes of one KV block of all mixers together, of both groups.
    pub fn kv_bytes_per_block(&self) -> usize {
        self.group_bytes_per_block(KvGroup::Full) + self.group_bytes_per_block(KvGroup::Windowed)
    }

    /// Bytes of one KV block of all mixers of a group together.
    pub fn group_bytes_per_block(&self, group: KvGroup) -> usize {
        let per_block = |mixer: &Mixer| match mixer.cache(self.kv_format) {
            Cache::Pages { bytes_per_block, window } if KvGroup::of(window) == group => {
                bytes_per_block
            }
            Cache::Pages { .. } | Cache::Borrowed { .. } | Cache::State { .. } => 0,
        };
        self.mixers().map(per_block).sum()
    }

    /// Positions that mixers of [`KvGroup::Windowed`] read, the most that any does. `None`: there are
    /// no such mixers.
    pub fn window(&self) -> Option<usize> {
        let window = |mixer: &Mixer| match mixer.cache(self.kv_format) {
            Cache::Pages { window, .. } | Cache::Borrowed { window, .. } => window,
            Cache::State { .. } => None,
        };
        self.mixers().filter_map(window).max()
    }

    /// Bytes of everything a pass of up to `rows` rows scribbles on, logits of `want` rows included:
    /// what [`crate::Scratch::new`] allocates.
    pub fn scratch_bytes(&self, rows: usize, want: usize) -> usize {
        let numbers = ScratchSizes::of(self).numbers_per_row(self).saturating_mul(rows);
        numbers.saturating_add(self.vocab.saturating_mul(want)).saturating_mul(size_of::<f32>())
    }

    /// Bytes of keys and values that decoding one token at the end of `context` positions reads:
    /// mixers with a window read no more than it.
    pub fn kv_bytes_read(&self, context: usize) -> usize {
        let read = |mixer: &Mixer| match mixer.cache(self.kv_format) {
            Cache::Pages { bytes_per_block, window }
            | Cache::Borrowed { bytes_per_block, window } => {
                let seen = window.map_or(context, |window| window.min(context));
                seen.saturating_mul(bytes_per_block) / BLOCK
            }
            Cache::State { .. } => 0,
        };
        self.mixers().map(read).fold(0, usize::saturating_add)
    }
}

/// What a mixer remembers of a sequence, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Keys and values of every position.
    Pages {
        /// Bytes of a block of [`BLOCK`] positions.
        bytes_per_block: usize,
        /// Positions that are read, if not all.
        window: Option<usize>,
    },
    /// Keys and values that another mixer stores, and which count there.
    Borrowed {
        /// Bytes that are read for a block of [`BLOCK`] positions.
        bytes_per_block: usize,
        /// Positions that are read, if not all.
        window: Option<usize>,
    },
    /// One state, however many positions there were.
    State {
        /// Bytes of it.
        bytes: usize,
    },
}

impl Mixer {
    /// What it remembers, with keys and values in `format`.
    pub fn cache(&self, format: KvFormat) -> Cache {
        match self {
            Mixer::Attention(AttentionMixer { shape, keys_values, .. }) => {
                let bytes_per_block = shape.block_bytes(format);
                let window = shape.window;
                match keys_values {
                    KeysValues::Own | KeysValues::OneProjection => {
                        Cache::Pages { bytes_per_block, window }
                    }
                    KeysValues::OfMixer(_) => Cache::Borrowed { bytes_per_block, window },
                }
            }
            Mixer::Latent(latent) => {
                let bytes_per_block = latent.shape.attention().block_bytes(format);
                Cache::Pages { bytes_per_block, window: None }
            }
            Mixer::GatedDelta(shape) => of_states(&Recurrence::GatedDelta(shape.clone())),
            Mixer::Mamba2(mixer) => of_states(&Recurrence::Mamba2(mixer.shape.clone())),
            Mixer::ShortConv(mixer) => of_states(&Recurrence::ShortConv(mixer.shape.clone())),
        }
    }
}

fn of_states(spec: &Recurrence) -> Cache {
    Cache::State { bytes: spec.state_len().saturating_mul(size_of::<f32>()) }
}

/// The weights of a model as a checkpoint stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of everything the model uses.
    pub weight_bytes: u64,
    /// How many of them are copied when the model is loaded: gains and biases. The others stay in
    /// the mapped files, unless the checkpoint was made in memory.
    pub copied_bytes: u64,
    /// Bytes that decoding one token reads. What bounds its speed is this over the memory's
    /// bandwidth.
    pub bytes_per_token: u64,
}

impl Footprint {
    /// Counts without loading anything.
    ///
    /// # Errors
    /// A missing or misshapen tensor, as in loading.
    pub fn of(spec: &ModelSpec, checkpoint: &Checkpoint) -> Result<Footprint, Error> {
        let loader = Loader::new(spec, checkpoint)?;
        Footprint::sum(&loader, loader.spec().modules())
    }

    /// What one of several machines has of them.
    ///
    /// # Errors
    /// As [`Footprint::of`].
    pub fn of_part(
        spec: &ModelSpec,
        part: &Part,
        checkpoint: &Checkpoint,
    ) -> Result<Footprint, Error> {
        let loader = Loader::new(spec, checkpoint)?;
        Footprint::sum(&loader, loader.spec().modules_of(part))
    }

    /// What one of several machines has, where they share every matrix.
    ///
    /// # Errors
    /// As [`Footprint::of`] and [`ModelSpec::shared`].
    pub fn of_share(
        spec: &ModelSpec,
        share: Share,
        checkpoint: &Checkpoint,
    ) -> Result<Footprint, Error> {
        let loader = Loader::of_share(spec, checkpoint, share)?;
        let mut sum = Footprint::sum(&loader, loader.spec().modules())?;
        if let (Head::Tied, Some(own)) = (loader.spec().head, loader.own_head()?) {
            // Beside the embedding, which each has all of and reads one row of.
            let own = own.iter().map(Matrix::n_bytes).sum::<usize>() as u64;
            sum.weight_bytes += own;
            sum.bytes_per_token -= own * (share.ranks as u64 - 1);
        }
        Ok(sum)
    }

    fn sum(loader: &Loader<'_>, modules: Vec<Module>) -> Result<Footprint, Error> {
        let mut sum = Footprint { weight_bytes: 0, copied_bytes: 0, bytes_per_token: 0 };
        for module in modules {
            let bytes = loader.n_bytes(&module)?;
            sum.weight_bytes += bytes;
            sum.copied_bytes += loader.n_copied_bytes(&module)?;
            sum.bytes_per_token += match &module {
                Module::Linear(_)
                | Module::LatentUp(_)
                | Module::Gain { .. }
                | Module::Vector { .. } => bytes,
                Module::Experts(e) => bytes / e.n as u64 * e.top_k as u64,
                Module::Embedding(linear)
                    if loader.spec().head == Head::Tied && *linear == loader.spec().embedding() =>
                {
                    bytes + bytes / linear.rows as u64
                }
                Module::Embedding(linear) => bytes / linear.rows as u64,
            };
        }
        Ok(sum)
    }
}
