//! What serving a model takes in memory: the one sum that the planner, the pool and `hearth info` go
//! by. What a request takes of the cache is `cache/charge.rs`, in blocks of
//! [`ModelSpec::group_bytes_per_block`] bytes.
//!
//! How a budget for the cache is divided into blocks and states stands here too: [`Shares`].
//!
//! Not a measurement. What a process really holds is for those to say who know the machine.

use backend::{BLOCK, KvGroup};
use models::{Footprint, ModelSpec};

use crate::ExecutorShape;
use crate::cache::least_panes;

/// Rows of logits that live beside the device's: what was read from it, and what a sampler sorts
/// (a copy, probabilities, and order).
const ROWS_BESIDE: usize = 4;

/// What a budget for the cache becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Cache blocks of layers that see everything. If there are no such layers they weigh nothing, and
    /// are only counted.
    pub blocks: usize,
    /// Cache blocks of layers that see only a window, at most as many. 0: there are no such layers.
    pub panes: usize,
    /// Recurrent states to be kept for others to go on from.
    pub states: usize,
}

/// What a cache is divided for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Blocks that there are to be in any case: those of the longest context that has to fit.
    pub least: usize,
    /// Requests that run at once.
    pub seqs: usize,
    /// Rows of a pass.
    pub rows: usize,
}

/// Of a budget for the cache, the states that are kept get one part in so many.
const STATES_PART: u64 = 4;
/// But as many as this are kept in any case, if half of the budget is enough for them.
const FEW_STATES: u64 = 4;
/// So many windows are to be kept for others to go on from, beside those of running requests; as many
/// as these if they are more.
const KEPT_WINDOWS: usize = 8;

impl Shares {
    /// Divides `bytes` for the cache of a model. A state weighs as much as the keys and values of one or
    /// two thousand tokens, and without one they are of no use to others. Of layers that see only a
    /// window each request needs no more than that, so there are as many panes as the windows of all
    /// requests take and of some that are kept, if half of the budget is enough for them.
    pub fn of(spec: &ModelSpec, bytes: u64, traffic: Traffic) -> Shares {
        let least = Shares::for_one(spec, traffic.least, traffic.rows).bytes(spec);
        let (block, state) = (spec.kv_bytes_per_block().max(1) as u64, spec.state_bytes() as u64);
        let beyond = bytes.saturating_sub(least);
        let part = (bytes / STATES_PART).max(state.saturating_mul(FEW_STATES).min(bytes / 2));
        // At most one at the end of each block.
        let states = part.min(beyond).checked_div(state).unwrap_or(0).min(bytes / block);
        let bytes = bytes - states * state;
        let shares = match spec.window() {
            None => Shares { blocks: count(bytes / block), ..Shares::default() },
            Some(window) => divide_panes(spec, bytes, window, traffic),
        };
        Shares { states: count(states), ..shares }
    }

    /// What one request of `blocks` blocks needs, if nobody else is there and its prompt is computed in
    /// passes of `rows` rows.
    pub fn for_one(spec: &ModelSpec, blocks: usize, rows: usize) -> Shares {
        let panes = spec.window().map_or(0, |window| alone(window, rows).min(blocks));
        Shares { blocks, panes, states: 0 }
    }

    /// Of all blocks together, without states.
    pub fn bytes(self, spec: &ModelSpec) -> u64 {
        let bytes =
            |n: usize, group| (n as u64).saturating_mul(spec.group_bytes_per_block(group) as u64);
        bytes(self.blocks, KvGroup::Full).saturating_add(bytes(self.panes, KvGroup::Windowed))
    }
}

/// Panes of one request whose prompt is computed in passes of `rows` rows.
fn alone(window: usize, rows: usize) -> usize {
    least_panes(window).saturating_add(rows.div_ceil(BLOCK))
}

/// Divides `bytes` between blocks and panes.
fn divide_panes(spec: &ModelSpec, bytes: u64, window: usize, traffic: Traffic) -> Shares {
    let full = spec.group_bytes_per_block(KvGroup::Full) as u64;
    let pane = (spec.group_bytes_per_block(KvGroup::Windowed) as u64).max(1);
    let Traffic { least, seqs, rows } = traffic;
    if full == 0 {
        let panes = bytes / pane;
        let blocks = if panes < alone(window, rows) as u64 { panes } else { bytes };
        return Shares { blocks: count(blocks), panes: count(panes), states: 0 };
    }
    let least_panes = least_panes(window) as u64;
    let windows = (seqs + seqs.max(KEPT_WINDOWS)) as u64;
    let wish = windows.saturating_mul(least_panes) + rows.div_ceil(BLOCK) as u64;
    let spare = bytes.saturating_sub(full.saturating_mul(least as u64)) / pane;
    let panes = wish.min(bytes / 2 / pane).min(spare).max(alone(window, rows) as u64);
    let blocks = bytes.saturating_sub(panes.saturating_mul(pane)) / full;
    // In little room every block has its pane, as if there were no windows.
    let (blocks, panes) = match blocks < panes {
        true => (bytes / (full + pane), bytes / (full + pane)),
        false => (blocks, panes),
    };
    Shares { blocks: count(blocks), panes: count(panes), states: 0 }
}

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
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
        let ExecutorShape { n_blocks, n_windowed, n_slots, max_rows, max_want } = shape;
        let blocks = Shares { blocks: n_blocks, panes: n_windowed, states: 0 };
        let row = spec.vocab as u64 * size_of::<f32>() as u64;
        let beside = row.saturating_mul((max_want + ROWS_BESIDE) as u64);
        Cost {
            mapped: footprint.weight_bytes - footprint.copied_bytes,
            copied: footprint.copied_bytes,
            cache: blocks.bytes(spec),
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
