//! What serving a model takes in memory: the one sum that the planner, the pool and `hearth info` go
//! by. What a request takes of the cache is `cache/charge.rs`, in blocks of
//! [`ModelSpec::kv_bytes_per_block`] bytes.
//!
//! How a budget for the cache is divided into blocks and states stands here too: [`Shares`].
//!
//! Not a measurement. What a process really holds is for those to say who know the machine.

use models::{Footprint, ModelSpec};

use crate::ExecutorShape;

/// Rows of logits that live beside the device's: what was read from it, and what a sampler sorts
/// (a copy, probabilities, and order).
const ROWS_BESIDE: usize = 4;

/// What a budget for the cache becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Cache blocks.
    pub blocks: usize,
    /// Recurrent states to be kept for others to go on from.
    pub states: usize,
}

/// Of a budget for the cache, the states that are kept get one part in so many.
const STATES_PART: u64 = 4;
/// But as many as this are kept in any case, if half of the budget is enough for them.
const FEW_STATES: u64 = 4;

impl Shares {
    /// Divides `bytes` for the cache of a model, `least` blocks in any case. Without states all of it
    /// is blocks. A state weighs as much as the keys and values of one or two thousand tokens, and
    /// without one they are of no use to others.
    pub fn of(spec: &ModelSpec, bytes: u64, least: usize) -> Shares {
        let (block, state) = (spec.kv_bytes_per_block().max(1) as u64, spec.state_bytes() as u64);
        let beyond = bytes.saturating_sub(block.saturating_mul(least as u64));
        let part = (bytes / STATES_PART).max(state.saturating_mul(FEW_STATES).min(bytes / 2));
        // At most one at the end of each block.
        let states = part.min(beyond).checked_div(state).unwrap_or(0).min(bytes / block);
        let blocks = (bytes - states * state) / block;
        let count = |n| usize::try_from(n).unwrap_or(usize::MAX);
        Shares { blocks: count(blocks), states: count(states) }
    }
}

/// Bytes of memory, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Weights that stay in mapped files. The system may drop them and read them again, which makes
    /// every pass slow, so they count.
    pub mapped: u64,
    /// Weights that are copied.
    pub copied: u64,
    /// Keys and values of all cache blocks.
    pub cache: u64,
    /// Recurrent states, those of running requests and those that are kept.
    pub states: u64,
    /// What a pass scribbles on, and logits.
    pub scratch: u64,
}

impl Cost {
    /// The cost of a model with room for `shape`.
    pub fn of(spec: &ModelSpec, footprint: &Footprint, shape: ExecutorShape) -> Cost {
        let ExecutorShape { n_blocks, n_slots, max_rows, max_want } = shape;
        let row = spec.vocab as u64 * size_of::<f32>() as u64;
        let beside = row.saturating_mul((max_want + ROWS_BESIDE) as u64);
        Cost {
            mapped: footprint.weight_bytes - footprint.copied_bytes,
            copied: footprint.copied_bytes,
            cache: (n_blocks as u64).saturating_mul(spec.kv_bytes_per_block() as u64),
            states: (n_slots as u64).saturating_mul(spec.state_bytes() as u64),
            scratch: beside.saturating_add(spec.scratch_bytes(max_rows, max_want) as u64),
        }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        let Cost { mapped, copied, cache, states, scratch } = *self;
        [mapped, copied, cache, states, scratch].into_iter().fold(0, u64::saturating_add)
    }
}
