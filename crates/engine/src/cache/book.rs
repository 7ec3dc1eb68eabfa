//! The books: which sequence holds which blocks, and whether there is room for more.
//!
//! Not an executor: it never sees what is in a block.

use std::collections::BTreeMap;

use backend::{BLOCK, BlockId, TokenId};

use super::panes::Panes;
use super::{Charge, pool::Pool, prefix::PrefixIndex, spill::Change, states::States, tail::Tail};
use crate::{Blocks, Miss, Panes as PaneCounts, States as StateCounts};

/// No room now. Whoever asked waits until others have finished.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// What would have to be given up by others. Nothing: it is neither blocks nor panes that are
    /// missing.
    pub missing: Need,
}

/// Blocks, and panes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    pub blocks: usize,
    pub panes: usize,
}

impl Need {
    /// Both of both.
    pub(crate) fn plus(self, other: Need) -> Need {
        Need { blocks: self.blocks + other.blocks, panes: self.panes + other.panes }
    }

    /// What is left of it, given that there is `other`.
    pub(crate) fn minus(self, other: Need) -> Need {
        Need {
            blocks: self.blocks.saturating_sub(other.blocks),
            panes: self.panes.saturating_sub(other.panes),
        }
    }
}

/// One block in so many may be pinned.
const PINNED_SHARE: usize = 4;

/// Names an open sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeqKey(u64);

/// What the books are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Blocks, which sequences share as far as they are equal.
    pub blocks: usize,
    /// Recurrent states, of a model that has them. Blocks are then shared up to the last one at whose
    /// end a state is kept. At least two for each sequence that is open at once, one that it goes on
    /// from and one that its pass leaves. Those that are over are kept, for others to go on from.
    pub slots: Option<usize>,
    /// Panes, of a model with layers that see only a window. Blocks are then shared up to the last one
    /// before which there are those of a whole window.
    pub panes: Option<PaneRoom>,
}

/// Panes: what layers that see only a window keep of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaneRoom {
    /// How many: at least [`least_panes`](super::least_panes), or as many as blocks.
    pub panes: usize,
    /// Positions that the layers see.
    pub window: usize,
}

impl Room {
    /// Blocks and nothing else.
    #[cfg(test)]
    pub(crate) fn of_blocks(blocks: usize) -> Room {
        Room { blocks, slots: None, panes: None }
    }
}

/// A beginning of a block that was taken over: the first tokens of `from` go on in `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    pub from: BlockId,
    pub to: BlockId,
    /// The same of their panes, where there are any.
    pub panes: Option<(BlockId, BlockId)>,
}

/// A block is always exactly one of:
/// - free;
/// - held by the sequences that read it, one of which may still be writing it;
/// - cached: in the index, held by nobody, dropped when room is needed.
///
/// Every full block of an open sequence is in the index. So the blocks that nobody holds are
/// never before ones that somebody holds, and all of them can be dropped.
pub(crate) struct CacheBook {
    pool: Pool,
    pub(super) index: PrefixIndex,
    /// Of a model that has them.
    pub(super) states: Option<States>,
    /// Of a model with layers that see only a window.
    pub(super) panes: Option<Panes>,
    pub(super) seqs: BTreeMap<SeqKey, Seq>,
    next_key: u64,
    now: u64,
}

/// What one sequence holds.
pub(super) struct Seq {
    /// Positions that are committed. The blocks cover them, and those that are reserved.
    pub(super) len: usize,
    pub(super) blocks: Vec<BlockId>,
    /// For each of its blocks the pane of it, if it holds that. Of a model without panes, none.
    pub(super) panes: Vec<Option<BlockId>>,
    /// Positions that it can go on from. Less than what is committed only while blocks come back from
    /// disk.
    pub(super) sound: usize,
    /// Where others are likely to go on from, of the rows of the pass at hand.
    pub(super) stops: Vec<usize>,
    /// So many of its first blocks are pinned once they are full.
    n_pin: usize,
    pub(super) charge: Charge,
    /// Of a model that has states.
    pub(super) tail: Option<Tail>,
}

impl CacheBook {
    pub(crate) fn new(room: Room) -> CacheBook {
        let n_blocks = room.blocks;
        CacheBook {
            states: room.slots.map(States::new),
            panes: room.panes.map(|room| Panes::new(room.panes, room.window, n_blocks)),
            pool: Pool::new(n_blocks),
            index: PrefixIndex::new(n_blocks, n_blocks / PINNED_SHARE),
            seqs: BTreeMap::new(),
            next_key: 0,
            now: 0,
        }
    }

    /// Starts a sequence from the longest cached prefix of `tokens`, leaving at least one token to
    /// compute, if there is room for what it is charged. Whole blocks only; for more see
    /// [`CacheBook::fork`]. Whole blocks among the first `pin` tokens are pinned.
    pub(crate) fn open(
        &mut self,
        tokens: &[TokenId],
        charge: Charge,
        pin: usize,
    ) -> Result<SeqKey, Full> {
        let key = SeqKey(self.next_key);
        self.next_key += 1;
        let n_pin = pin.min(tokens.len()) / BLOCK;
        let most = self.states.as_ref().map_or(usize::MAX, |states| states.n_slots() / 2);
        if self.seqs.len() >= most {
            return Err(Full { missing: Need::default() });
        }
        let tail = self.states.is_some().then(Tail::default);
        let (blocks, panes) = (Vec::new(), Vec::new());
        let seq = Seq { len: 0, blocks, panes, sound: 0, stops: Vec::new(), n_pin, charge, tail };
        self.seqs.insert(key, seq);
        self.adopt(key, tokens);
        let needs = self.seqs.values().map(|seq| seq.expected_to_need(self.panes.as_ref()));
        let missing = needs.fold(Need::default(), Need::plus).minus(self.n_available());
        if missing == Need::default() {
            if let Some(seq) = self.seqs.remove(&key) {
                // It has proven itself, whatever it was meant for.
                self.keep_window(&seq, seq.len);
                self.seqs.insert(key, seq);
            }
            return Ok(key);
        }
        self.close(key);
        Err(Full { missing })
    }

    /// What others could count on if a sequence were closed: what it alone holds, and what it is still
    /// expected to need.
    pub(crate) fn relief(&self, key: SeqKey) -> Need {
        let Some(seq) = self.seqs.get(&key) else { return Need::default() };
        let alone = |block: &&BlockId| self.pool.holders()[**block as usize] == 1;
        let blocks = seq.blocks.iter().filter(alone).count();
        let panes = self.panes.as_ref().map_or(0, |panes| {
            let held = seq.blocks.iter().zip(&seq.panes).filter(|(_, pane)| pane.is_some());
            held.filter(|(block, _)| panes.holders(**block) == 1).count()
        });
        Need { blocks, panes }.plus(seq.expected_to_need(self.panes.as_ref()))
    }

    /// Takes over what the index has of `tokens` beyond what the sequence has, as far as it can go
    /// on from there, leaving at least one token to compute. A block that it has begun itself is
    /// given up for a full one. Returns how many tokens it gained.
    pub(crate) fn adopt(&mut self, key: SeqKey, tokens: &[TokenId]) -> usize {
        let Some(mut seq) = self.seqs.remove(&key) else { return 0 };
        let before = seq.len;
        let mut found = self.chain(&seq, tokens);
        found.truncate(self.n_resumable(&seq, &found));
        if !found.is_empty() {
            self.go_on(&mut seq, &found);
            self.hold_window(&mut seq);
            self.resume(&mut seq);
            self.settle(&mut seq);
        }
        let gained = seq.len - before;
        self.seqs.insert(key, seq);
        gained
    }

    /// The blocks of the index that go on where the full blocks of a sequence end, leaving at least
    /// one of `tokens` to compute.
    pub(super) fn chain(&self, seq: &Seq, tokens: &[TokenId]) -> Vec<BlockId> {
        let n_full = seq.len / BLOCK;
        let mut parent = n_full.checked_sub(1).map(|last| seq.blocks[last]);
        let all_but_one = &tokens[..tokens.len().saturating_sub(1)];
        let rest = all_but_one.as_chunks::<BLOCK>().0.iter().skip(n_full);
        let next = |tokens: &[TokenId; BLOCK]| {
            parent = Some(self.index.find(parent, tokens)?);
            parent
        };
        rest.map_while(next).collect()
    }

    /// A sequence takes over `blocks` after its full ones.
    pub(super) fn go_on(&mut self, seq: &mut Seq, blocks: &[BlockId]) {
        let n_full = seq.len / BLOCK;
        for (idx, &block) in (n_full..).zip(blocks) {
            self.hold(block);
            if idx < seq.n_pin {
                self.index.pin(block);
            }
            // Only the first can be one that was begun.
            self.give_up_from(seq, idx);
            seq.blocks.push(block);
            seq.panes.extend(self.panes.as_ref().map(|_| None));
            seq.len = (idx + 1) * BLOCK;
        }
    }

    /// Takes over the beginning of a block that goes on otherwise, leaving at least one token to
    /// compute: reserves a block of the sequence's own, and counts as committed what it will hold.
    /// **Whoever calls has to copy the whole block before anything else happens.** A block that it
    /// has begun itself is given up. `None` if there is nothing to gain, or no room.
    pub(crate) fn fork(&mut self, key: SeqKey, tokens: &[TokenId]) -> Option<Fork> {
        if self.has_states() {
            // There is no state to go on from in the middle of a block.
            return None;
        }
        let seq = self.seqs.get(&key)?;
        let n_full = seq.len / BLOCK;
        // Never a whole block: those are shared.
        let end = tokens.len().saturating_sub(1).min((n_full + 1) * BLOCK - 1);
        let rest = tokens.get(n_full * BLOCK..end)?;
        let parent = n_full.checked_sub(1).map(|idx| seq.blocks[idx]);
        let (from, n) = self.index.nearest(parent, rest)?;
        if n <= seq.len % BLOCK || (self.has_window() && self.pane(from).is_none()) {
            return None;
        }
        // Held meanwhile, so that it is not the one that makes room.
        self.hold(from);
        let pane = self.panes.as_mut().and_then(|panes| panes.hold(from));
        let fork = self.fork_to(key, n).map(|(to, own)| Fork { from, to, panes: pane.zip(own) });
        if let Some(panes) = self.panes.as_mut().filter(|_| pane.is_some()) {
            panes.release(from);
        }
        self.release(from);
        fork
    }

    /// A block of a sequence's own, of which `n` tokens will be there, and its pane.
    fn fork_to(&mut self, key: SeqKey, n: usize) -> Option<(BlockId, Option<BlockId>)> {
        let to = self.take()?;
        let pane = match &mut self.panes {
            None => None,
            Some(panes) => match panes.take(to, &mut self.index) {
                None => {
                    self.release(to);
                    return None;
                }
                pane => pane,
            },
        };
        let mut seq = self.seqs.remove(&key)?;
        let n_full = seq.len / BLOCK;
        self.give_up_from(&mut seq, n_full);
        seq.blocks.push(to);
        seq.panes.extend(self.panes.as_ref().map(|_| pane));
        seq.len = n_full * BLOCK + n;
        self.settle(&mut seq);
        self.seqs.insert(key, seq);
        Some((to, pane))
    }

    /// Why the index has no more of `tokens` than the sequence has. `None`: it has all there is to
    /// know, or the sequence goes on from everything that was known.
    pub(crate) fn miss(&self, key: SeqKey, tokens: &[TokenId]) -> Option<Miss> {
        let seq = self.seqs.get(&key)?;
        let all_but_one = &tokens[..tokens.len().saturating_sub(1)];
        if seq.len >= all_but_one.len() {
            return None;
        }
        if seq.len == 0 && all_but_one.len() < BLOCK {
            return Some(Miss::TooShort);
        }
        let n_known = seq.len / BLOCK;
        if (self.has_states() || self.has_window()) && !self.chain(seq, tokens).is_empty() {
            return Some(match self.has_states() {
                true => Miss::NoState { block: n_known },
                false => Miss::NoWindow { block: n_known },
            });
        }
        let parent = n_known.checked_sub(1).map(|last| seq.blocks[last]);
        self.index.miss(parent, &all_but_one[n_known * BLOCK..], n_known)
    }

    /// Everything that was published or dropped since the last call, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.index.take_changes()
    }

    /// Drops all cached blocks. Says how many.
    pub(crate) fn clear(&mut self) -> usize {
        let mut n = 0;
        while let Some(block) = self.evict() {
            self.pool.put_back(block);
            n += 1;
        }
        self.index.forget_ghosts();
        n
    }

    /// Makes room for up to `rows` more rows, dropping cached blocks, and says for how many: fewer
    /// if there are no more blocks.
    pub(crate) fn reserve(&mut self, key: SeqKey, rows: usize) -> usize {
        let Some(mut seq) = self.seqs.remove(&key) else { return 0 };
        let needed = (seq.len + rows).div_ceil(BLOCK).saturating_sub(seq.blocks.len());
        for _ in 0..needed {
            let last = seq.blocks.len();
            if !self.take_block(&mut seq) {
                break;
            }
            if !self.take_pane(&mut seq, last) {
                self.give_up_from(&mut seq, last);
                break;
            }
        }
        let rows = rows.min(seq.blocks.len() * BLOCK - seq.len);
        self.seqs.insert(key, seq);
        rows
    }

    /// Makes room for a block that is brought back, without its pane. Says whether there is room.
    pub(crate) fn reserve_restored(&mut self, key: SeqKey) -> bool {
        let Some(mut seq) = self.seqs.remove(&key) else { return false };
        let reserved = seq.blocks.len() > seq.len / BLOCK || self.take_block(&mut seq);
        self.seqs.insert(key, seq);
        reserved
    }

    /// One more block for a sequence, still without a pane. Says whether there is one.
    fn take_block(&mut self, seq: &mut Seq) -> bool {
        let Some(block) = self.take() else { return false };
        seq.blocks.push(block);
        seq.panes.extend(self.panes.as_ref().map(|_| None));
        true
    }

    /// The first `rows` reserved rows now hold what follows from `tokens`, which is the whole
    /// sequence at least up to there. Publishes every block that filled, gives back every block
    /// that no row went to.
    pub(crate) fn commit(&mut self, key: SeqKey, rows: usize, tokens: &[TokenId]) {
        let Some(mut seq) = self.seqs.remove(&key) else { return };
        let first = seq.len / BLOCK;
        seq.len += rows;
        self.publish_full(&mut seq, first, tokens);
        self.settle_states(&mut seq);
        let n_used = seq.len.div_ceil(BLOCK);
        self.drop_from(&mut seq, n_used);
        self.keep_marked(&mut seq);
        self.settle(&mut seq);
        if !self.has_states() {
            self.publish_last(&seq, tokens);
        }
        self.seqs.insert(key, seq);
    }

    /// Enters every block from `first` on that is full.
    fn publish_full(&mut self, seq: &mut Seq, first: usize, tokens: &[TokenId]) {
        let full = tokens[..seq.len].as_chunks::<BLOCK>().0;
        for (idx, tokens) in full.iter().enumerate().skip(first) {
            let parent = idx.checked_sub(1).map(|idx| seq.blocks[idx]);
            match self.index.find(parent, tokens) {
                // Another sequence got there first. The two blocks hold the same, so one will do.
                Some(block) => {
                    self.hold(block);
                    self.exchange_pane(seq, idx, block);
                    let own = std::mem::replace(&mut seq.blocks[idx], block);
                    self.give_up(own);
                }
                None => self.index.publish(parent, tokens, seq.blocks[idx]),
            }
            if idx < seq.n_pin {
                self.index.pin(seq.blocks[idx]);
            }
        }
    }

    /// Enters the last block, if it is not full, under the tokens it has so far. If another block
    /// begins with them, that one will do.
    fn publish_last(&mut self, seq: &Seq, tokens: &[TokenId]) {
        let n_full = seq.len / BLOCK;
        let last = &tokens[n_full * BLOCK..seq.len];
        let parent = n_full.checked_sub(1).map(|idx| seq.blocks[idx]);
        let Some(&own) = seq.blocks.get(n_full) else { return };
        match self.index.nearest(parent, last) {
            Some((other, n)) if n == last.len() && other != own => self.index.withdraw(own),
            _ => self.index.publish(parent, last, own),
        }
    }

    /// Ends a sequence. Its blocks stay cached.
    pub(crate) fn close(&mut self, key: SeqKey) {
        self.now += 1;
        let Some(mut seq) = self.seqs.remove(&key) else { return };
        self.close_states(&seq);
        if seq.sound == seq.len {
            self.keep_window(&seq, seq.len);
        }
        self.drop_from(&mut seq, 0);
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

    /// Where the recurrent states are; all nought for a model that has none.
    pub(crate) fn state_counts(&self) -> StateCounts {
        self.states.as_ref().map(States::counts).unwrap_or_default()
    }

    /// Where the panes are; all nought for a model that has none.
    pub(crate) fn pane_counts(&self) -> PaneCounts {
        self.panes.as_ref().map(Panes::counts).unwrap_or_default()
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
        let tails = self.seqs.values().filter_map(|seq| seq.tail.as_ref());
        let slots = tails.flat_map(Tail::slots);
        let faults = self.states.as_ref().and_then(|states| states.faults(slots, &self.index));
        let faults = faults.or_else(|| self.pane_faults(|block| !is_free[block as usize]));
        faults.or_else(|| self.index.faults(&holders))
    }

    /// One more sequence reads `block`, which is in the index.
    fn hold(&mut self, block: BlockId) {
        if self.pool.share(block) {
            self.index.wake(block);
        }
    }

    /// A sequence lets go of its blocks from `idx` on.
    pub(super) fn drop_from(&mut self, seq: &mut Seq, idx: usize) {
        (idx..seq.panes.len()).for_each(|idx| self.release_pane(seq, idx));
        seq.panes.truncate(idx);
        for block in seq.blocks.split_off(idx.min(seq.blocks.len())) {
            self.release(block);
        }
    }

    /// A sequence has found others for its own blocks from `idx` on.
    fn give_up_from(&mut self, seq: &mut Seq, idx: usize) {
        for block in &seq.blocks[idx.min(seq.blocks.len())..] {
            self.index.withdraw(*block);
        }
        self.drop_from(seq, idx);
    }

    /// A sequence has found another block that holds what its own `block` was to hold.
    fn give_up(&mut self, block: BlockId) {
        self.index.withdraw(block);
        self.release(block);
    }

    pub(super) fn release(&mut self, block: BlockId) {
        if !self.pool.release(block) {
            return;
        }
        if self.index.contains(block) {
            self.index.rest(block, self.now);
        } else {
            if let Some(panes) = &mut self.panes {
                panes.forget(block, &mut self.index);
            }
            self.pool.put_back(block);
        }
    }

    /// What nobody holds: what is free, and what is cached, which can be dropped.
    fn n_available(&self) -> Need {
        Need {
            blocks: self.pool.holders().len() - self.pool.n_held(),
            panes: self.panes.as_ref().map_or(0, Panes::n_available),
        }
    }

    /// A block for somebody, if need be the one that has been cached for longest.
    fn take(&mut self) -> Option<BlockId> {
        if self.pool.free().is_empty()
            && let Some(block) = self.evict()
        {
            self.pool.put_back(block);
        }
        self.pool.take()
    }

    /// Drops the block that has been cached for longest, its pane and the state at its end.
    fn evict(&mut self) -> Option<BlockId> {
        let block = self.index.evict()?;
        if let Some(panes) = &mut self.panes {
            panes.forget(block, &mut self.index);
        }
        if let Some(states) = &mut self.states {
            states.forget(block, &mut self.index);
        }
        Some(block)
    }
}
