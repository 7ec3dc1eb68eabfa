//! What of the cache goes to disk, and in which order; and what of a prompt is there.
//!
//! Follows the changes of the index of prefixes: a block that was published is copied out some time
//! before the end, at the latest when it is about to be overwritten. Knows no sequences, and no
//! files: those are the store's.

use std::collections::VecDeque;

use backend::{BLOCK, BlockId, DeviceError, KvGroup, SlotId, TokenId};

use super::disk::{DiskCleared, DiskError, DiskOptions, DiskStats, Label, Store, Watch};
use super::panes::first_pane;
use super::parts::{Kind, Parts};
use crate::Executor;

/// What happened to the index of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A full block was entered, and from now on is only read.
    Published {
        block: BlockId,
        /// The block before it.
        parent: Option<BlockId>,
        tokens: [TokenId; BLOCK],
    },
    /// A block was dropped. It is intact until something is written to it.
    Dropped(BlockId),
    /// The state in `slot` is kept at the end of a block that was entered before.
    StateKept {
        /// The block.
        block: BlockId,
        /// Where the state is.
        slot: SlotId,
    },
    /// The state at the end of a block was dropped. It is intact until something is written to it.
    StateDropped(BlockId),
    /// Others are likely to need the pane of a block that was entered before.
    PaneKept {
        /// The block.
        block: BlockId,
        /// What layers that see only a window have for it.
        pane: BlockId,
    },
    /// The pane of a block was dropped. It is intact until something is written to it.
    PaneDropped(BlockId),
}

/// Something on disk that a sequence needs to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub label: Label,
    pub what: What,
}

/// What a [`Piece`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The next block of the sequence.
    Block,
    /// The next part of the pane of that block.
    Pane(More),
    /// The next part of the state at the end of the blocks.
    State(More),
}

/// Whether a part is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// Another one follows.
    Follows,
    /// It is.
    None,
}

/// What of a prompt is in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Tokens whose blocks are there, be it without what it takes to go on from them.
    pub known: usize,
    /// By block: its pane is there. Of a model without panes, none.
    pub panes: Vec<bool>,
}

/// What of a prompt is on disk.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What is to be brought back, in order. Each block that is in the window at their end is followed
    /// by its pane, and all of them by a state, as far as the model has any.
    pub pieces: VecDeque<Piece>,
    /// Tokens whose blocks are known, be it without what it takes to go on from them.
    pub known: usize,
}

/// What the tokens of a block are part of. Prompts come again more often than answers do, so they
/// go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Prompt,
    Answer,
}

/// The way to disk.
pub(crate) struct Spill {
    store: Store,
    /// By block id: what is known of those in the index.
    known: Vec<Option<Known>>,
    /// Blocks that may still have to be copied, oldest first.
    prompts: VecDeque<BlockId>,
    answers: VecDeque<BlockId>,
    /// Recurrent states.
    states: Parts,
    /// What layers that see only a window keep of blocks.
    panes: Parts,
    /// Positions that these see.
    window: usize,
    /// What there is of a block beside its pane.
    rest: Rest,
}

/// What of a block is a record of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// What layers that see everything keep of it.
    Full,
    /// Nothing: all layers see only a window.
    Nothing,
}

/// Where something that is to be written came from.
enum Source {
    Block(BlockId),
    State,
    Pane,
}

#[derive(Clone, Copy)]
struct Known {
    label: Label,
    saved: bool,
}

impl Spill {
    /// For the blocks and states of `executor`.
    pub(crate) fn open(options: &DiskOptions, executor: &dyn Executor) -> Result<Spill, DiskError> {
        let (rest, record_bytes) = match executor.block_bytes(KvGroup::Full) {
            0 => (Rest::Nothing, executor.block_bytes(KvGroup::Windowed)),
            bytes => (Rest::Full, bytes),
        };
        Ok(Spill {
            store: Store::open(options, record_bytes)?,
            known: vec![None; executor.shape().n_blocks],
            prompts: VecDeque::new(),
            answers: VecDeque::new(),
            states: Parts::new(Kind::State, executor),
            panes: Parts::new(Kind::Pane, executor),
            window: executor.window().unwrap_or(usize::MAX),
            rest,
        })
    }

    /// Notes what happened to the index. Must come before anything is written to a dropped block.
    pub(crate) fn follow(
        &mut self,
        changes: &[Change],
        origin: Origin,
        executor: &mut dyn Executor,
    ) -> Result<(), DeviceError> {
        for change in changes {
            match change {
                Change::Published { block, parent, tokens } => {
                    self.published(*block, *parent, tokens, origin);
                }
                Change::Dropped(block) => self.dropped(*block, executor)?,
                Change::StateKept { block, slot } => {
                    if let Some(known) = &self.known[*block as usize] {
                        self.states.kept(*block, *slot, known.label, &self.store);
                    }
                }
                Change::StateDropped(block) => {
                    if let Some(copy) = self.states.dropped(*block, executor)?
                        && !self.states.take_on(copy)
                    {
                        self.store.count_dropped();
                    }
                }
                Change::PaneKept { block, pane } => {
                    if let Some(known) = &self.known[*block as usize] {
                        self.panes.kept(*block, *pane, known.label, &self.store);
                    }
                }
                Change::PaneDropped(block) => {
                    if let Some(copy) = self.panes.dropped(*block, executor)?
                        && !self.panes.offer(copy, &self.store)
                    {
                        self.store.count_dropped();
                    }
                }
            }
        }
        Ok(())
    }

    fn published(
        &mut self,
        block: BlockId,
        parent: Option<BlockId>,
        tokens: &[TokenId; BLOCK],
        origin: Origin,
    ) {
        let parent = match parent {
            None => self.store.root(),
            Some(parent) => match &self.known[parent as usize] {
                Some(known) => known.label.key,
                // What comes after a block without a name has none either.
                None => return,
            },
        };
        let label = Label { key: parent.child(tokens), parent, tokens: *tokens };
        let saved = self.rest == Rest::Nothing || self.store.contains(&label.key);
        self.known[block as usize] = Some(Known { label, saved });
        if !saved {
            match origin {
                Origin::Prompt => self.prompts.push_back(block),
                Origin::Answer => self.answers.push_back(block),
            }
        }
    }

    /// The last chance to keep a block.
    fn dropped(&mut self, block: BlockId, executor: &mut dyn Executor) -> Result<(), DeviceError> {
        match self.known[block as usize].take() {
            Some(Known { label, saved: false }) => {
                let bytes = self.copy(block, executor)?;
                if self.store.offer(label, bytes).is_err() {
                    self.store.count_dropped();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Copies up to `n` blocks out and hands them to the writer, as long as it takes them without
    /// waiting.
    pub(crate) fn save(
        &mut self,
        n: usize,
        executor: &mut dyn Executor,
    ) -> Result<(), DeviceError> {
        for _ in 0..n {
            let Some((source, label, bytes)) = self.next_unsaved(executor)? else { break };
            if self.store.offer(label, bytes).is_err() {
                if let Source::Block(block) = source {
                    self.prompts.push_front(block);
                }
                break;
            }
            self.mark_saved(source);
        }
        Ok(())
    }

    /// Copies one block out and waits until the writer takes it. Says whether there was one.
    pub(crate) fn save_one(&mut self, executor: &mut dyn Executor) -> Result<bool, DeviceError> {
        let Some((source, label, bytes)) = self.next_unsaved(executor)? else {
            return Ok(false);
        };
        self.store.put(label, bytes);
        self.mark_saved(source);
        Ok(true)
    }

    /// What on disk goes on where the first `len` of `tokens` end, leaving at least one token to
    /// compute, given what is in memory. It ends where a sequence can go on: with the panes of a whole
    /// window and with a state, as far as the model has any.
    pub(crate) fn find(&self, tokens: &[TokenId], len: usize, memory: &Memory) -> Found {
        let mut known = memory.known;
        let (mut labels, mut end) = (Vec::new(), 0);
        // From this block on all panes are to be had.
        let mut from = 0;
        let mut parent = self.store.root();
        let all_but_one = &tokens[..tokens.len().saturating_sub(1)];
        for (idx, tokens) in all_but_one.as_chunks::<BLOCK>().0.iter().enumerate() {
            let label = Label { key: parent.child(tokens), parent, tokens: *tokens };
            parent = label.key;
            let has_pane = memory.panes.get(idx) == Some(&true);
            let has_pane =
                has_pane || !self.panes.any() || self.panes.is_saved(&label, &self.store);
            if !has_pane {
                from = idx + 1;
            }
            if idx < len / BLOCK {
                continue;
            }
            if idx >= memory.known / BLOCK {
                match self.rest {
                    Rest::Full if !self.store.contains(&label.key) => break,
                    Rest::Nothing if !has_pane => {}
                    Rest::Full | Rest::Nothing => known = known.max((idx + 1) * BLOCK),
                }
            }
            labels.push(label);
            let has_state = !self.states.any() || self.states.is_saved(&label, &self.store);
            if has_state && from <= self.first_pane((idx + 1) * BLOCK) {
                end = labels.len();
            }
        }
        labels.truncate(end);
        Found { pieces: self.pieces(len / BLOCK, &labels), known }
    }

    /// What has to be brought back for blocks of these labels, the first of which is the `n_before`th,
    /// so that a sequence can go on from their end.
    fn pieces(&self, n_before: usize, labels: &[Label]) -> VecDeque<Piece> {
        let mut pieces = VecDeque::new();
        let record_bytes = self.store.block_bytes();
        let first = self.first_pane((n_before + labels.len()) * BLOCK);
        for (idx, label) in (n_before..).zip(labels) {
            pieces.push_back(Piece { label: *label, what: What::Block });
            if self.panes.any() && idx >= first {
                let parts = self.panes.labels(label, record_bytes);
                add_parts(&mut pieces, parts, What::Pane);
            }
        }
        if let Some(last) = labels.last().filter(|_| self.states.any()) {
            add_parts(&mut pieces, self.states.labels(last, record_bytes), What::State);
        }
        pieces
    }

    fn first_pane(&self, len: usize) -> usize {
        if self.panes.any() { first_pane(len, self.window) } else { 0 }
    }

    /// Blocks have something beside their panes, that has to be read.
    pub(crate) fn reads_blocks(&self) -> bool {
        self.rest == Rest::Full
    }

    /// Reads a block. `None` if it is not there after all.
    pub(crate) fn read(&mut self, label: &Label) -> Option<&[u8]> {
        self.store.read(label)
    }

    /// Forgets what is in memory, whose blocks nobody can vouch for any more.
    pub(crate) fn forget(&mut self) {
        self.known.fill(None);
        self.prompts.clear();
        self.answers.clear();
        self.states.forget();
        self.panes.forget();
    }

    /// Waits until what was handed over is in its file.
    pub(crate) fn flush(&self) {
        self.store.flush();
    }

    /// Removes everything this model has on disk. `dropped` is what was dropped from memory and
    /// is not to be kept; what is in use there will be written again.
    pub(crate) fn clear(&mut self, dropped: &[Change]) -> DiskCleared {
        for change in dropped {
            if let Change::Dropped(block) = change {
                self.known[*block as usize] = None;
            }
        }
        self.states.cleared(dropped.iter().filter_map(|change| match change {
            Change::StateDropped(block) => Some(*block),
            _ => None,
        }));
        self.panes.cleared(dropped.iter().filter_map(|change| match change {
            Change::PaneDropped(block) => Some(*block),
            _ => None,
        }));
        let cleared = self.store.clear();
        for (block, known) in (0..).zip(&mut self.known) {
            if let Some(known) = known {
                known.saved = self.rest == Rest::Nothing;
                self.prompts.push_back(block);
            }
        }
        cleared
    }

    pub(crate) fn stats(&self) -> DiskStats {
        self.store.stats()
    }

    /// Sees what the writer does, also while nobody asks the engine.
    pub(crate) fn watch(&self) -> Watch {
        self.store.watch()
    }

    /// Bytes of a record.
    pub(crate) fn record_bytes(&self) -> usize {
        self.store.block_bytes()
    }

    /// Copies out what is to be written next: blocks of prompts, then the states and panes that go with
    /// them, then blocks of answers.
    fn next_unsaved(
        &mut self,
        executor: &mut dyn Executor,
    ) -> Result<Option<(Source, Label, Vec<u8>)>, DeviceError> {
        let mut next = unsaved(&self.known, &mut self.prompts);
        if next.is_none() {
            let record_bytes = self.store.block_bytes();
            for (parts, source) in
                [(&mut self.panes, Source::Pane), (&mut self.states, Source::State)]
            {
                if let Some((label, bytes)) = parts.next(record_bytes, executor)? {
                    return Ok(Some((source, label, bytes)));
                }
            }
            next = unsaved(&self.known, &mut self.answers);
        }
        let Some((block, label)) = next else { return Ok(None) };
        Ok(Some((Source::Block(block), label, self.copy(block, executor)?)))
    }

    fn mark_saved(&mut self, source: Source) {
        match source {
            Source::State => self.states.advance(self.store.block_bytes()),
            Source::Pane => self.panes.advance(self.store.block_bytes()),
            Source::Block(block) => {
                if let Some(known) = &mut self.known[block as usize] {
                    known.saved = true;
                }
            }
        }
    }

    fn copy(&self, block: BlockId, executor: &mut dyn Executor) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.store.block_bytes()];
        executor.read_block((KvGroup::Full, block), &mut bytes)?;
        Ok(bytes)
    }
}

/// Adds parts of one thing.
fn add_parts(
    pieces: &mut VecDeque<Piece>,
    labels: impl Iterator<Item = Label>,
    what: fn(More) -> What,
) {
    pieces.extend(labels.map(|label| Piece { label, what: what(More::Follows) }));
    if let Some(last) = pieces.back_mut() {
        last.what = what(More::None);
    }
}

/// The first of `queue` that is not on disk.
fn unsaved(known: &[Option<Known>], queue: &mut VecDeque<BlockId>) -> Option<(BlockId, Label)> {
    while let Some(block) = queue.pop_front() {
        // It may have been saved or dropped meanwhile, and even be another block by now.
        if let Some(Known { label, saved: false }) = known[block as usize] {
            return Some((block, label));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::Batch;
    use proptest::prelude::*;

    use crate::ExecutorShape;

    const N_BLOCKS: usize = 6;

    /// Memory of blocks that hold one number each.
    struct Cells([u64; N_BLOCKS]);

    impl Executor for Cells {
        fn vocab(&self) -> usize {
            1
        }

        fn max_positions(&self) -> usize {
            1
        }

        fn shape(&self) -> ExecutorShape {
            ExecutorShape {
                n_blocks: N_BLOCKS,
                n_windowed: 0,
                n_slots: 0,
                max_rows: 1,
                max_want: 1,
            }
        }

        fn step(&mut self, _: &Batch, _: &mut Vec<f32>) -> Result<(), DeviceError> {
            Ok(())
        }

        fn block_bytes(&self, group: KvGroup) -> usize {
            if group == KvGroup::Full { 8 } else { 0 }
        }

        fn read_block(
            &mut self,
            (_, block): (KvGroup, BlockId),
            out: &mut [u8],
        ) -> Result<(), DeviceError> {
            out.copy_from_slice(&self.0[block as usize].to_le_bytes());
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whenever blocks are copied out, and whatever their places hold by then: every block that
        /// was ever published is on disk in the end, as it was when it was published.
        #[test]
        fn blocks_are_kept_as_they_were_published(
            happenings in prop::collection::vec((0..N_BLOCKS as BlockId, 0..4usize, any::<bool>()), 1..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let options = DiskOptions {
                dir: dir.path().to_owned(),
                max_bytes: 1 << 30,
                min_free_bytes: 0,
                fingerprint: [0; 32],
            };
            let mut spill = Spill::open(&options, &Cells([0; N_BLOCKS])).unwrap();
            let mut memory = Cells([0; N_BLOCKS]);
            let mut in_index = [false; N_BLOCKS];
            let mut published = Vec::new();
            for (n, (block, n_saved, is_prompt)) in (1..).zip(happenings) {
                let at = block as usize;
                if std::mem::replace(&mut in_index[at], true) {
                    spill.follow(&[Change::Dropped(block)], Origin::Answer, &mut memory).unwrap();
                }
                // Written over, and for a while neither the old block nor the new one.
                memory.0[at] = u64::MAX;
                spill.save(n_saved, &mut memory).unwrap();
                memory.0[at] = n;
                let tokens = [n as TokenId; BLOCK];
                let origin = if is_prompt { Origin::Prompt } else { Origin::Answer };
                let change = Change::Published { block, parent: None, tokens };
                spill.follow(&[change], origin, &mut memory).unwrap();
                published.push((n, tokens));
            }
            while spill.save_one(&mut memory).unwrap() {}
            spill.flush();
            for (n, tokens) in published {
                let tokens = [&tokens[..], &[0]].concat();
                let found = spill.find(&tokens, 0, &Memory::default()).pieces;
                prop_assert_eq!(found.len(), 1);
                prop_assert_eq!(spill.read(&found[0].label), Some(&n.to_le_bytes()[..]));
            }
        }
    }
}
