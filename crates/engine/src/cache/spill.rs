//! What of the cache goes to disk, and in which order; and what of a prompt is there.
//!
//! Follows the changes of the index of prefixes: a block that was published is copied out some time
//! before the end, at the latest when it is about to be overwritten. Knows no sequences, and no
//! files: those are the store's.

use std::collections::VecDeque;

use backend::{BLOCK, BlockId, DeviceError, TokenId};

use super::disk::{DiskCleared, DiskError, DiskOptions, DiskStats, Label, Store};
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
}

#[derive(Clone, Copy)]
struct Known {
    label: Label,
    saved: bool,
}

impl Spill {
    /// For the `n_blocks` blocks of an executor whose blocks have `block_bytes` bytes.
    pub(crate) fn open(
        options: &DiskOptions,
        n_blocks: usize,
        block_bytes: usize,
    ) -> Result<Spill, DiskError> {
        Ok(Spill {
            store: Store::open(options, block_bytes)?,
            known: vec![None; n_blocks],
            prompts: VecDeque::new(),
            answers: VecDeque::new(),
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
        let saved = self.store.contains(&label.key);
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
            let Some((block, label)) = self.next_unsaved() else { break };
            let bytes = self.copy(block, executor)?;
            if self.store.offer(label, bytes).is_err() {
                self.prompts.push_front(block);
                break;
            }
            self.mark_saved(block);
        }
        Ok(())
    }

    /// Copies one block out and waits until the writer takes it. Says whether there was one.
    pub(crate) fn save_one(&mut self, executor: &mut dyn Executor) -> Result<bool, DeviceError> {
        let Some((block, label)) = self.next_unsaved() else { return Ok(false) };
        let bytes = self.copy(block, executor)?;
        self.store.put(label, bytes);
        self.mark_saved(block);
        Ok(true)
    }

    /// Labels of the blocks on disk that go on where the first `len` of `tokens` end, leaving at
    /// least one token to compute.
    pub(crate) fn find(&self, tokens: &[TokenId], len: usize) -> VecDeque<Label> {
        let mut found = VecDeque::new();
        let mut parent = self.store.root();
        let all_but_one = &tokens[..tokens.len().saturating_sub(1)];
        for (idx, tokens) in all_but_one.as_chunks::<BLOCK>().0.iter().enumerate() {
            let label = Label { key: parent.child(tokens), parent, tokens: *tokens };
            parent = label.key;
            if idx < len / BLOCK {
                continue;
            }
            if !self.store.contains(&label.key) {
                break;
            }
            found.push_back(label);
        }
        found
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
        let cleared = self.store.clear();
        for (block, known) in (0..).zip(&mut self.known) {
            if let Some(known) = known {
                known.saved = false;
                self.prompts.push_back(block);
            }
        }
        cleared
    }

    pub(crate) fn stats(&self) -> DiskStats {
        self.store.stats()
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.store.block_bytes()
    }

    fn next_unsaved(&mut self) -> Option<(BlockId, Label)> {
        while let Some(block) = self.prompts.pop_front().or_else(|| self.answers.pop_front()) {
            // It may have been saved or dropped meanwhile, and even be another block by now.
            if let Some(Known { label, saved: false }) = self.known[block as usize] {
                return Some((block, label));
            }
        }
        None
    }

    fn mark_saved(&mut self, block: BlockId) {
        if let Some(known) = &mut self.known[block as usize] {
            known.saved = true;
        }
    }

    fn copy(&self, block: BlockId, executor: &mut dyn Executor) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.store.block_bytes()];
        executor.read_block(block, &mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::Batch;
    use proptest::prelude::*;

    use crate::ExecutorShape;

    const N_BLOCKS: usize = 6;

    /// Memory of blocks that hold one number each.
    struct Memory([u64; N_BLOCKS]);

    impl Executor for Memory {
        fn vocab(&self) -> usize {
            1
        }

        fn max_positions(&self) -> usize {
            1
        }

        fn shape(&self) -> ExecutorShape {
            ExecutorShape { n_blocks: N_BLOCKS, n_slots: 0, max_rows: 1, max_want: 1 }
        }

        fn step(&mut self, _: &Batch, _: &mut Vec<f32>) -> Result<(), DeviceError> {
            Ok(())
        }

        fn block_bytes(&self) -> usize {
            8
        }

        fn read_block(&mut self, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
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
            let mut spill = Spill::open(&options, N_BLOCKS, 8).unwrap();
            let mut memory = Memory([0; N_BLOCKS]);
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
                let found = spill.find(&tokens, 0);
                prop_assert_eq!(found.len(), 1);
                prop_assert_eq!(spill.read(&found[0]), Some(&n.to_le_bytes()[..]));
            }
        }
    }
}
