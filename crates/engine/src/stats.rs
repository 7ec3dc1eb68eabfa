//! Numbers about the engine, for gauges and counters.
//!
//! Not measurements of single requests: those come with their last event.

/// A picture of the engine after its latest step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests in passes.
    pub running: usize,
    /// Requests that wait to run.
    pub waiting: usize,
    /// Cache blocks.
    pub blocks: Blocks,
    /// What was done since the start.
    pub totals: Totals,
}

/// Where the cache blocks are. The three add up to all there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Empty.
    pub free: usize,
    /// Kept for prompts that start alike; given away when room is needed.
    pub cached: usize,
    /// In use by running sequences.
    pub held: usize,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Passes.
    pub steps: u64,
    /// Rows of all passes: tokens that went through the model.
    pub rows: u64,
    /// Tokens of all prompts that were started.
    pub prompt_tokens: u64,
    /// How many of them came from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Answers that were completed.
    pub done: u64,
    /// Requests whose receiver left.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Times the cache books did not balance. Anything but zero is a bug of ours.
    pub book_faults: u64,
}
