//! The books: which sequence holds which blocks, and whether there is room for more.
//!
//! Not an executor: it never sees what is in a block.

use std::collections::BTreeMap;

use backend::{BLOCK, BlockId, TokenId};

use super::{Charge, pool::Pool, prefix::PrefixIndex, spill::Change};
use crate::{Blocks, Miss};

/// No room now. Whoever asked waits until others have finished.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// One block in so many may be pinned.
const PINNED_SHARE: usize = 4;

/// Names an open sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeqKey(u64);

/// A block is always exactly one of:
/// - free;
/// - held by the sequences that read it, one of which may still be writing it;
/// - cached: full, in the index, held by nobody, dropped when room is needed.
///
/// Every full block of an open sequence is in the index. So the blocks that nobody holds are
/// never before ones that somebody holds, and all of them can be dropped.
pub(crate) struct CacheBook {
    pool: Pool,
    index: PrefixIndex,
    seqs: BTreeMap<SeqKey, Seq>,
    next_key: u64,
    now: u64,
}

/// What one sequence holds.
struct Seq {
    /// Positions that are committed. The blocks cover them, and those that are reserved.
    len: usize,
    blocks: Vec<BlockId>,
    /// So many of its first blocks are pinned once they are full.
    n_pin: usize,
    charge: Charge,
}

impl Seq {
    /// Blocks it may come to need beyond those it holds.
    fn may_need(&self) -> usize {
        self.charge.most.saturating_sub(self.blocks.len())
    }

    fn expected_to_need(&self) -> usize {
        self.charge.expected.saturating_sub(self.blocks.len())
    }
}

impl CacheBook {
    pub(crate) fn new(n_blocks: usize) -> CacheBook {
        CacheBook {
            pool: Pool::new(n_blocks),
            index: PrefixIndex::new(n_blocks, n_blocks / PINNED_SHARE),
            seqs: BTreeMap::new(),
            next_key: 0,
            now: 0,
        }
    }

    /// Starts a sequence from the longest cached prefix of `tokens`, leaving at least one token to
    /// compute, if there is room for what it is charged. Whole blocks only: a block that is not
    /// full is still being written by somebody. Whole blocks among the first `pin` tokens are
    /// pinned.
    pub(crate) fn open(
        &mut self,
        tokens: &[TokenId],
        charge: Charge,
        pin: usize,
    ) -> Result<SeqKey, Full> {
        let key = SeqKey(self.next_key);
        self.next_key += 1;
        let n_pin = pin.min(tokens.len()) / BLOCK;
        self.seqs.insert(key, Seq { len: 0, blocks: Vec::new(), n_pin, charge });
        self.adopt(key, tokens);
        let expected: usize = self.seqs.values().map(Seq::expected_to_need).sum();
        if expected <= self.n_available() && self.all_can_finish(None) {
            return Ok(key);
        }
        self.close(key);
        Err(Full)
    }

    /// Takes over what the index has of `tokens` beyond what the sequence has, leaving at least one
    /// token to compute. The sequence must be at the end of a block. Returns how many tokens it
    /// gained.
    pub(crate) fn adopt(&mut self, key: SeqKey, tokens: &[TokenId]) -> usize {
        let Some(seq) = self.seqs.get_mut(&key) else { return 0 };
        let before = seq.len;
        let all_but_one = &tokens[..tokens.len().saturating_sub(1)];
        if !before.is_multiple_of(BLOCK) || before >= all_but_one.len() {
            return 0;
        }
        for tokens in all_but_one[before..].as_chunks::<BLOCK>().0 {
            let Some(block) = self.index.find(seq.blocks.last().copied(), tokens) else { break };
            if self.pool.share(block) {
                self.index.wake(block);
            }
            if seq.blocks.len() < seq.n_pin {
                self.index.pin(block);
            }
            seq.blocks.push(block);
            seq.len += BLOCK;
        }
        seq.len - before
    }

    /// Why the index has no more of `tokens` than the sequence has. `None`: it has all there is to
    /// know, or the sequence goes on from everything that was known.
    pub(crate) fn miss(&self, key: SeqKey, tokens: &[TokenId]) -> Option<Miss> {
        let seq = self.seqs.get(&key)?;
        let all_but_one = &tokens[..tokens.len().saturating_sub(1)];
        let blocks = all_but_one.as_chunks::<BLOCK>().0;
        if blocks.is_empty() {
            return Some(Miss::TooShort);
        }
        let n_known = seq.len / BLOCK;
        let next = blocks.get(n_known)?;
        let parent = n_known.checked_sub(1).map(|last| seq.blocks[last]);
        self.index.miss(parent, next, n_known)
    }

    /// Everything that was published or dropped since the last call, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.index.take_changes()
    }

    /// Drops all cached blocks. Says how many.
    pub(crate) fn clear(&mut self) -> usize {
        let mut n = 0;
        while let Some(block) = self.index.evict() {
            self.pool.put_back(block);
            n += 1;
        }
        self.index.forget_ghosts();
        n
    }

    /// Makes room for `rows` more rows.
    ///
    /// Refuses when the pool is empty, and also when giving these blocks away could end in a state
    /// where every sequence waits for a block and none can finish. What it gives out always leaves
    /// an order in which all sequences can take the most they may need, finish, and free their
    /// blocks for the next (the banker's algorithm). The first in that order is never refused, so
    /// in every pass somebody advances.
    pub(crate) fn reserve(&mut self, key: SeqKey, rows: usize) -> Result<(), Full> {
        let Some(seq) = self.seqs.get(&key) else { return Err(Full) };
        let n_blocks = (seq.len + rows).div_ceil(BLOCK).saturating_sub(seq.blocks.len());
        if n_blocks == 0 {
            return Ok(());
        }
        if n_blocks > self.n_available() || !self.all_can_finish(Some((key, n_blocks))) {
            return Err(Full);
        }
        for _ in 0..n_blocks {
            if self.pool.free().is_empty()
                && let Some(block) = self.index.evict()
            {
                self.pool.put_back(block);
            }
            let block = self.pool.take().ok_or(Full)?;
            self.seqs.get_mut(&key).ok_or(Full)?.blocks.push(block);
        }
        Ok(())
    }

    /// The first `rows` reserved rows now hold what follows from `tokens`, which is the whole
    /// sequence at least up to there. Publishes every block that filled, gives back every block
    /// that no row went to.
    pub(crate) fn commit(&mut self, key: SeqKey, rows: usize, tokens: &[TokenId]) {
        let Some(mut seq) = self.seqs.remove(&key) else { return };
        let first = seq.len / BLOCK;
        seq.len += rows;
        let full = tokens[..seq.len].as_chunks::<BLOCK>().0;
        for (idx, tokens) in full.iter().enumerate().skip(first) {
            let parent = idx.checked_sub(1).map(|idx| seq.blocks[idx]);
            match self.index.find(parent, tokens) {
                // Another sequence got there first. The two blocks hold the same, so one will do.
                Some(block) => {
                    if self.pool.share(block) {
                        self.index.wake(block);
                    }
                    let own = std::mem::replace(&mut seq.blocks[idx], block);
                    self.release(own);
                }
                None => self.index.publish(parent, tokens, seq.blocks[idx]),
            }
            if idx < seq.n_pin {
                self.index.pin(seq.blocks[idx]);
            }
        }
        for block in seq.blocks.drain(seq.len.div_ceil(BLOCK)..) {
            self.release(block);
        }
        self.seqs.insert(key, seq);
    }

    /// Ends a sequence. Its full blocks stay cached.
    pub(crate) fn close(&mut self, key: SeqKey) {
        self.now += 1;
        for block in self.seqs.remove(&key).into_iter().flat_map(|seq| seq.blocks) {
            self.release(block);
        }
    }

    /// Positions of a sequence that are committed.
    pub(crate) fn len(&self, key: SeqKey) -> usize {
        self.seqs.get(&key).map_or(0, |seq| seq.len)
    }

    /// The block table of a sequence, reserved blocks included.
    pub(crate) fn blocks(&self, key: SeqKey) -> &[BlockId] {
        self.seqs.get(&key).map_or(&[], |seq| &seq.blocks)
    }

    /// Where the blocks are.
    pub(crate) fn counts(&self) -> Blocks {
        let held = self.pool.n_held();
        let free = self.pool.free().len();
        let cached = self.pool.holders().len() - held - free;
        Blocks { free, cached, held, pinned: self.index.n_pinned() }
    }

    /// What is wrong with the books, counted anew from the open sequences. `None` is as it should
    /// be: every block is free, cached or held, and exactly one of these.
    pub(crate) fn faults(&self) -> Option<String> {
        let mut holders = vec![0; self.pool.holders().len()];
        for &block in self.seqs.values().flat_map(|seq| &seq.blocks) {
            holders[block as usize] += 1;
        }
        if holders != self.pool.holders() {
            return Some("holders do not match the open sequences".into());
        }
        if holders.iter().filter(|&&n| n > 0).count() != self.pool.n_held() {
            return Some("the count of held blocks is wrong".into());
        }
        let mut is_free = vec![false; holders.len()];
        for &block in self.pool.free() {
            if std::mem::replace(&mut is_free[block as usize], true) {
                return Some(format!("block {block} is free twice"));
            }
        }
        for (block, &is_free) in is_free.iter().enumerate() {
            let cached = self.index.contains(block as BlockId);
            let held = holders[block] > 0;
            if is_free == (held || cached) {
                return Some(format!(
                    "block {block}: free {is_free}, held {held}, cached {cached}"
                ));
            }
        }
        self.index.faults(&holders)
    }

    fn release(&mut self, block: BlockId) {
        if !self.pool.release(block) {
            return;
        }
        if self.index.contains(block) {
            self.index.rest(block, self.now);
        } else {
            self.pool.put_back(block);
        }
    }

    /// Blocks that nobody holds: free ones, and cached ones, which can be dropped.
    fn n_available(&self) -> usize {
        self.pool.holders().len() - self.pool.n_held()
    }

    /// Whether there is an order in which all sequences can take the most they may need and
    /// finish, once `asked` has got its blocks.
    fn all_can_finish(&self, asked: Option<(SeqKey, usize)>) -> bool {
        let asked_of = |key: SeqKey| asked.filter(|(k, _)| *k == key).map_or(0, |(_, n)| n);
        let mut room = self.n_available() - asked.map_or(0, |(_, n)| n);
        let mut waiting: Vec<(usize, usize, &Seq)> = Vec::new();
        for (&key, seq) in &self.seqs {
            let n_asked = asked_of(key);
            waiting.push((seq.may_need().saturating_sub(n_asked), n_asked, seq));
        }
        if waiting.iter().map(|(need, ..)| need).sum::<usize>() <= room {
            return true;
        }
        // Room only grows, so whoever needs least goes first.
        waiting.sort_by_key(|(need, ..)| *need);
        let mut holders = self.pool.holders().to_vec();
        for (need, n_asked, seq) in waiting {
            if need > room {
                return false;
            }
            room += n_asked;
            for &block in &seq.blocks {
                holders[block as usize] -= 1;
                room += usize::from(holders[block as usize] == 0);
            }
        }
        true
    }
}
