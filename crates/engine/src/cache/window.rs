//! What a sequence has of panes: those of its last window, and those that its next pass writes.
//!
//! Not which panes are kept when they run out: that is `panes.rs`.

use std::collections::BTreeMap;

use backend::{BLOCK, BlockId, TokenId};

use super::book::{CacheBook, Need, Seq, SeqKey};
use super::panes::Panes;
use super::{Memory, Stay, Stop};

impl CacheBook {
    /// Some layers see only a window.
    pub(crate) fn has_window(&self) -> bool {
        self.panes.is_some()
    }

    /// The table of panes of a sequence: one for each of its blocks, as far as it holds them.
    pub(crate) fn panes(&self, key: SeqKey) -> impl Iterator<Item = Option<BlockId>> {
        self.seqs.get(&key).into_iter().flat_map(|seq| &seq.panes).copied()
    }

    /// The pane of a block. `None`: it has none.
    pub(crate) fn pane(&self, block: BlockId) -> Option<BlockId> {
        self.panes.as_ref()?.of(block)
    }

    /// Notes where others are likely to go on from, among the rows of the pass that is being planned.
    pub(crate) fn mark(&mut self, key: SeqKey, stops: &[Stop]) {
        if let Some(seq) = self.seqs.get_mut(&key).filter(|_| self.panes.is_some()) {
            let lasting = stops.iter().filter(|stop| stop.stay == Stay::Lasting);
            seq.stops.extend(lasting.map(|stop| stop.at));
        }
    }

    /// Whether a sequence that took over `blocks` after its full ones could go on from the end of each
    /// of them, as far as panes are concerned.
    pub(super) fn reaches(&self, seq: &Seq, blocks: &[BlockId]) -> Vec<bool> {
        let Some(panes) = &self.panes else { return vec![true; blocks.len()] };
        let n_full = seq.len / BLOCK;
        // From here on all panes are there.
        let mut from = seq.panes[..n_full].iter().rposition(Option::is_none).map_or(0, |at| at + 1);
        let mut reaches = |(idx, block): (usize, &BlockId)| {
            if panes.of(*block).is_none() {
                from = idx + 1;
            }
            from <= panes.first((idx + 1) * BLOCK)
        };
        (n_full..).zip(blocks).map(&mut reaches).collect()
    }

    /// What there is in memory of `tokens`, whether or not the sequence can go on from there, leaving at
    /// least one to compute.
    pub(crate) fn memory(&self, key: SeqKey, tokens: &[TokenId]) -> Memory {
        let Some(seq) = self.seqs.get(&key) else { return Memory::default() };
        let (n_full, found) = (seq.len / BLOCK, self.chain(seq, tokens));
        let known = if found.is_empty() { seq.len } else { (n_full + found.len()) * BLOCK };
        let Some(panes) = &self.panes else { return Memory { known, ..Memory::default() } };
        let own = seq.panes.iter().take(n_full).map(Option::is_some);
        let others = found.iter().map(|block| panes.of(*block).is_some());
        Memory { known, panes: own.chain(others).collect() }
    }

    /// A pane for the block at `idx` of a sequence, if it has none yet. Says whether it has one now.
    pub(super) fn take_pane(&mut self, seq: &mut Seq, idx: usize) -> bool {
        let Some(panes) = &mut self.panes else { return true };
        if seq.panes[idx].is_none() {
            let block = seq.blocks[idx];
            seq.panes[idx] = panes.hold(block).or_else(|| panes.take(block, &mut self.index));
        }
        seq.panes[idx].is_some()
    }

    /// A sequence holds the pane of its block at `idx` no more.
    pub(super) fn release_pane(&mut self, seq: &mut Seq, idx: usize) {
        if let Some(panes) = &mut self.panes
            && seq.panes[idx].take().is_some()
        {
            panes.release(seq.blocks[idx]);
        }
    }

    /// The block at `idx` of a sequence becomes `other`, which holds the same.
    pub(super) fn exchange_pane(&mut self, seq: &mut Seq, idx: usize, other: BlockId) {
        let own = seq.blocks[idx];
        let Some(panes) = self.panes.as_mut().filter(|_| seq.panes[idx].is_some()) else { return };
        match panes.hold(other) {
            Some(pane) => {
                panes.release(own);
                seq.panes[idx] = Some(pane);
            }
            None => panes.hand_on(own, other),
        }
    }

    /// What others are likely to go on from is kept: at the places that were marked.
    pub(super) fn keep_marked(&mut self, seq: &mut Seq) {
        for at in std::mem::take(&mut seq.stops) {
            if at <= seq.len {
                self.keep_window(seq, at);
            }
        }
    }

    /// Keeps the panes that whoever goes on after the first `at` tokens of a sequence needs.
    pub(super) fn keep_window(&mut self, seq: &Seq, at: usize) {
        let Some(panes) = &mut self.panes else { return };
        for idx in panes.first(at)..at.div_ceil(BLOCK) {
            panes.keep(seq.blocks[idx], &mut self.index);
        }
    }

    /// A sequence goes on from where it is now, if it can: it lets go of the panes that it needs no
    /// more. If it cannot, it keeps those that it needs to go on from where it was before.
    pub(super) fn settle(&mut self, seq: &mut Seq) {
        let has_state = seq.tail.as_ref().is_none_or(|tail| tail.at() == seq.len);
        let Some(panes) = &self.panes else {
            if has_state {
                seq.sound = seq.len;
            }
            return;
        };
        let first = panes.first(seq.len);
        let has_panes = || seq.panes[first..].iter().all(Option::is_some);
        if has_state && has_panes() {
            seq.sound = seq.len;
            (0..first).for_each(|idx| self.release_pane(seq, idx));
        }
    }

    /// Holds the panes of the last window of a sequence, as far as they are there.
    pub(super) fn hold_window(&mut self, seq: &mut Seq) {
        let Some(panes) = &mut self.panes else { return };
        for idx in panes.first(seq.len)..seq.blocks.len() {
            if seq.panes[idx].is_none() {
                seq.panes[idx] = panes.hold(seq.blocks[idx]);
            }
        }
    }

    /// A sequence holds the pane of its last block, if that has one. Says whether it does.
    pub(crate) fn hold_last_pane(&mut self, key: SeqKey) -> bool {
        let (Some(panes), Some(seq)) = (&mut self.panes, self.seqs.get_mut(&key)) else {
            return false;
        };
        match (seq.blocks.last(), seq.panes.last_mut()) {
            (Some(block), Some(pane @ None)) => *pane = panes.hold(*block),
            (_, held) => return held.is_some(),
        }
        seq.panes.last().is_some_and(Option::is_some)
    }

    /// A pane for the last block of a sequence, which is to be brought back.
    pub(crate) fn take_last_pane(&mut self, key: SeqKey) -> Option<BlockId> {
        let mut seq = self.seqs.remove(&key)?;
        let last = seq.blocks.len().checked_sub(1);
        let taken = last.is_some_and(|last| self.take_pane(&mut seq, last));
        let pane = seq.panes.last().copied().flatten().filter(|_| taken);
        self.seqs.insert(key, seq);
        pane
    }

    /// The panes of a sequence are back. Says whether it can go on from there.
    pub(crate) fn settle_restored(&mut self, key: SeqKey) -> bool {
        let Some(mut seq) = self.seqs.remove(&key) else { return false };
        self.settle(&mut seq);
        let is_sound = seq.sound == seq.len;
        if is_sound {
            self.keep_window(&seq, seq.len);
        }
        self.seqs.insert(key, seq);
        is_sound
    }

    /// Panes that open sequences hold, by block and with how many of them do.
    pub(super) fn held_panes(&self) -> BTreeMap<BlockId, u32> {
        let mut held = BTreeMap::new();
        for seq in self.seqs.values() {
            for (block, _) in seq.blocks.iter().zip(&seq.panes).filter(|(_, pane)| pane.is_some()) {
                *held.entry(*block).or_insert(0) += 1;
            }
        }
        held
    }

    /// What is wrong with the panes.
    pub(super) fn pane_faults(&self, exists: impl Fn(BlockId) -> bool) -> Option<String> {
        let Some(panes) = &self.panes else { return None };
        for seq in self.seqs.values() {
            if seq.panes.len() != seq.blocks.len() {
                return Some("a sequence has as many entries of panes as blocks".into());
            }
            let mut pairs = seq.blocks.iter().zip(&seq.panes);
            if pairs.any(|(block, pane)| pane.is_some() && panes.of(*block) != *pane) {
                return Some("a sequence has the pane of another block".into());
            }
            if seq
                .panes
                .iter()
                .skip(panes.first(seq.sound))
                .take(seq.sound.div_ceil(BLOCK).saturating_sub(panes.first(seq.sound)))
                .any(Option::is_none)
            {
                return Some("a sequence lacks a pane that it needs".into());
            }
        }
        panes.faults(&self.held_panes(), exists)
    }
}

impl Seq {
    /// Blocks, and panes, that it is expected to need beyond those it holds.
    pub(super) fn expected_to_need(&self, panes: Option<&Panes>) -> Need {
        let held = self.blocks.len();
        let blocks = self.charge.expected.max(self.charge.most.min(held + 1));
        let held_panes = self.panes.iter().flatten().count();
        let panes = panes.map_or(0, |panes| panes.needed(blocks).saturating_sub(held_panes));
        Need { blocks: blocks.saturating_sub(held), panes }
    }
}
