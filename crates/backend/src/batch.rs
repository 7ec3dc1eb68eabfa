//! One forward pass over several sequences, as plain data.
//!
//! There is no prefill batch and no decode batch. A prompt chunk and one decoded token are the same
//! thing: some new rows at the end of a sequence.

use std::ops::Range;

/// Index into a model's vocabulary.
pub type TokenId = u32;
/// Names one block of [`crate::BLOCK`] KV rows, in every attention layer of a [`KvGroup`] at once.
pub type BlockId = u32;
/// Names one recurrent state, in every recurrent layer at once.
pub type SlotId = u32;

/// Attention layers whose blocks are given up at the same time. Each group has blocks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvGroup {
    /// Those that read every position.
    Full,
    /// Those that read the latest positions only, each up to its own number of them.
    Windowed,
}

impl KvGroup {
    /// The group of layers that read `window` positions, or all.
    pub const fn of(window: Option<usize>) -> KvGroup {
        match window {
            None => KvGroup::Full,
            Some(_) => KvGroup::Windowed,
        }
    }
}

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
    /// Block table of [`KvGroup::Full`]. Covers positions `0..start + rows.len()`.
    pub blocks: Vec<BlockId>,
    /// Block table of [`KvGroup::Windowed`], as long. Blocks of which no row of the span sees anything
    /// may be any: nobody looks at them. A model without such layers needs none.
    pub windowed: Vec<BlockId>,
    /// Recurrent state before the first row. `None`: that of a sequence that has not begun.
    pub state_in: Option<SlotId>,
    /// Recurrent states to keep: after which row of the span, counted from 0, and in which slot.
    /// Ascending by row. No slot is written twice in a pass, and none that a span of it reads.
    pub states_out: Vec<(usize, SlotId)>,
}

impl Span {
    /// A span that neither reads nor keeps recurrent states, with the same blocks in both groups.
    pub fn new(rows: Range<usize>, start: usize, blocks: Vec<BlockId>) -> Span {
        let windowed = blocks.clone();
        Span { rows, start, blocks, windowed, state_in: None, states_out: Vec::new() }
    }

    /// The block table of a group.
    pub fn table(&self, group: KvGroup) -> &[BlockId] {
        match group {
            KvGroup::Full => &self.blocks,
            KvGroup::Windowed => &self.windowed,
        }
    }
}

impl Batch {
    /// Rows of the pass.
    pub fn n_rows(&self) -> usize {
        self.tokens.len()
    }
}
