//! One forward pass over several sequences, as plain data.
//!
//! There is no prefill batch and no decode batch. A prompt chunk and one decoded token are the same
//! thing: some new rows at the end of a sequence.

use std::ops::Range;

/// Index into a model's vocabulary.
pub type TokenId = u32;
/// Names one block of [`crate::BLOCK`] KV rows, in every attention layer at once.
pub type BlockId = u32;

/// The rows of one pass.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Input tokens of all sequences, concatenated: one row each.
    pub tokens: Vec<TokenId>,
    /// Which rows belong to which sequence. In row order, covering every row once.
    pub spans: Vec<Span>,
    /// Rows whose logits the caller will read, ascending.
    pub want: Vec<u32>,
}

/// The rows of one sequence.
#[derive(Clone, Debug)]
pub struct Span {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Position of the first row in its sequence.
    pub start: usize,
    /// Block table. Covers positions `0..start + rows.len()`.
    pub blocks: Vec<BlockId>,
}

impl Batch {
    /// Rows of the pass.
    pub fn n_rows(&self) -> usize {
        self.tokens.len()
    }
}
