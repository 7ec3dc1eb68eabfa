//! Numbers about the engine, for gauges and counters.
//!
//! Not measurements of single requests: those come with their last event.

use std::time::Duration;

use crate::spread::{STEP_MICROS, STEP_ROWS, Spread};
use crate::{DiskStats, Miss};

/// A picture of the engine after its latest step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests in passes.
    pub running: usize,
    /// Requests that wait to run, parked ones included.
    pub waiting: usize,
    /// Of those that wait, the ones that ran already and gave up their blocks.
    pub parked: usize,
    /// Cache blocks.
    pub blocks: Blocks,
    /// Recurrent states, of a model that has them.
    pub states: States,
    /// Blocks of layers that see only a window, of a model that has them.
    pub panes: Panes,
    /// What is kept on disk. `None`: nothing is.
    pub disk: Option<DiskStats>,
    /// How fast it goes.
    pub pace: Pace,
    /// How long passes took and how large they were.
    pub passes: Passes,
    /// What was done since the start.
    pub totals: Totals,
}

/// Where the cache blocks are. Free, cached and held add up to all there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Empty.
    pub free: usize,
    /// Kept for prompts that start alike; given away when room is needed.
    pub cached: usize,
    /// In use by running sequences.
    pub held: usize,
    /// Of those cached or held, the ones that are pinned.
    pub pinned: usize,
}

/// Where the recurrent states are. Free, kept and held add up to all there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// Empty.
    pub free: usize,
    /// Kept at the ends of blocks, for prompts that start alike; given away when one is needed.
    pub kept: usize,
    /// In use by running sequences.
    pub held: usize,
}

/// Where the blocks of layers that see only a window are. Free, kept and held add up to all there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Panes {
    /// Empty.
    pub free: usize,
    /// Kept beside cached blocks, for prompts that start alike; given away when one is needed.
    pub kept: usize,
    /// In the windows of running sequences.
    pub held: usize,
}

/// How fast the engine goes. Means weigh recent things more; all are zero until something was
/// measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The latest step.
    pub last_step: Duration,
    /// A step.
    pub mean_step: Duration,
    /// An answer, from the time it leaves the queue to its last token.
    pub mean_answer: Duration,
}

/// Every pass since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// How long it took, with all that was done around it, in microseconds.
    pub micros: Spread<16>,
    /// Rows of it: tokens that went through the model.
    pub rows: Spread<13>,
}

impl Default for Passes {
    fn default() -> Passes {
        Passes { micros: Spread::new(STEP_MICROS), rows: Spread::new(STEP_ROWS) }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Passes.
    pub steps: u64,
    /// Rows of all passes: tokens that went through the model.
    pub rows: u64,
    /// Of these, rows of prompts.
    pub prompt_rows: u64,
    /// Of these, rows of answers.
    pub answer_rows: u64,
    /// Tokens of all prompts that were started.
    pub prompt_tokens: u64,
    /// How many of them came from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens that were brought back from disk, for requests that resume too.
    pub disk_tokens: u64,
    /// Tokens that were looked up in the prefix cache, by requests that resume too.
    pub prefix_queries: u64,
    /// How many of them were there.
    pub prefix_hits: u64,
    /// Prompts that were not found whole.
    pub misses: Misses,
    /// Passes in which a request left a stretch of its prompt to another one that has the same.
    pub prefix_waits: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Times a running request was parked, because blocks ran out or for one of higher priority.
    pub preemptions: u64,
    /// Times a parked request went on.
    pub resumed: u64,
    /// Answers that were completed.
    pub done: u64,
    /// Requests whose receiver left.
    pub cancelled: u64,
    /// Requests that failed, out of time or otherwise.
    pub failed: u64,
    /// Requests whose time was over before they had begun.
    pub queue_timeouts: u64,
    /// Requests whose time was over while they ran or were parked.
    pub run_timeouts: u64,
    /// Times the cache books did not balance. Anything but zero is a bug of ours.
    pub book_faults: u64,
}

/// Prompts that were not found whole in the prefix cache, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// [`Miss::TooShort`].
    pub too_short: u64,
    /// [`Miss::Cold`].
    pub cold: u64,
    /// [`Miss::Diverged`].
    pub diverged: u64,
    /// [`Miss::Evicted`].
    pub evicted: u64,
    /// [`Miss::NoState`].
    pub no_state: u64,
    /// [`Miss::NoWindow`].
    pub no_window: u64,
    /// [`Miss::InProgress`].
    pub in_progress: u64,
}

impl Misses {
    /// Every reason by [`Miss::name`], with its count.
    pub fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            ("too_short", self.too_short),
            ("cold", self.cold),
            ("diverged", self.diverged),
            ("evicted", self.evicted),
            ("no_state", self.no_state),
            ("no_window", self.no_window),
            ("in_progress", self.in_progress),
        ]
    }

    pub(crate) fn count(&mut self, miss: Miss) {
        let counter = match miss {
            Miss::TooShort => &mut self.too_short,
            Miss::Cold => &mut self.cold,
            Miss::Diverged { .. } => &mut self.diverged,
            Miss::Evicted { .. } => &mut self.evicted,
            Miss::NoState { .. } => &mut self.no_state,
            Miss::NoWindow { .. } => &mut self.no_window,
            Miss::InProgress { .. } => &mut self.in_progress,
        };
        *counter += 1;
    }
}
