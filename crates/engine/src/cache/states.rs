//! Recurrent states: which slots are free, which states are kept after which block, and which goes
//! when a slot is needed.
//!
//! Knows blocks by their ids and how they follow each other; no sequences, and nothing of what is in
//! a state.

use std::collections::BTreeMap;

use backend::{BLOCK, BlockId, SlotId};

use super::{pool::Pool, prefix::PrefixIndex, spill::Change};
use crate::States as Counts;

/// How long a state is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stay {
    /// Until its sequence has left one further on.
    Trailing,
    /// Until its slot is needed.
    Passing,
    /// Until its slot is needed, and after that on disk.
    Lasting,
}

/// A slot is always exactly one of:
/// - free;
/// - held by sequences, which read it or are about to write to it;
/// - kept: in it is the state after a block of the index, nobody holds it, and it is dropped when a
///   slot is needed.
///
/// What is kept may be held besides, and is never written to as long as it is either.
pub(super) struct States {
    pool: Pool,
    /// By the block at whose end they are.
    kept: BTreeMap<BlockId, Kept>,
    /// By slot: after which block it is kept.
    block_of: Vec<Option<BlockId>>,
    /// What the last one that had to go was worth.
    floor: usize,
    /// Counts uses.
    now: u64,
}

struct Kept {
    slot: SlotId,
    stay: Stay,
    /// The floor when it was used last.
    floor: usize,
    /// When that was.
    used: u64,
}

/// What goes first when a slot is needed: the least.
///
/// All states are of one size, so what a state saves per byte is told by the tokens that would have
/// to be computed again without it: those since the state before it. They are counted from a floor
/// that rises to the worth of what had to go, as in the GreedyDual rule (Young 1991, "On-line caching
/// as cache size varies"). So what saves much stays longer, and what nobody uses goes in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    is_pinned: bool,
    tokens: usize,
    used: u64,
}

impl States {
    pub(super) fn new(n_slots: usize) -> States {
        States {
            pool: Pool::new(n_slots),
            kept: BTreeMap::new(),
            block_of: vec![None; n_slots],
            floor: 0,
            now: 0,
        }
    }

    /// All slots.
    pub(super) fn n_slots(&self) -> usize {
        self.block_of.len()
    }

    /// Slots that no sequence holds: free ones, and those whose states can be dropped.
    pub(super) fn n_available(&self) -> usize {
        self.n_slots() - self.pool.n_held()
    }

    /// Where the slots are.
    pub(super) fn counts(&self) -> Counts {
        let (free, held) = (self.pool.free().len(), self.pool.n_held());
        Counts { free, kept: self.n_slots() - free - held, held }
    }

    /// A state is kept at the end of `block`.
    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.kept.contains_key(&block)
    }

    /// One more sequence goes on from the state at the end of `block`.
    pub(super) fn resume(&mut self, block: BlockId, index: &mut PrefixIndex) -> Option<SlotId> {
        let slot = self.kept.get(&block)?.slot;
        self.pool.share(slot);
        // It has proven itself, whatever it was meant for.
        self.keep(block, slot, Stay::Lasting, index);
        Some(slot)
    }

    /// Keeps the state in `slot`, which somebody holds, at the end of `block`, which is in the index.
    /// If there is one already, that one stays and is as good as used.
    pub(super) fn keep(
        &mut self,
        block: BlockId,
        slot: SlotId,
        stay: Stay,
        index: &mut PrefixIndex,
    ) {
        self.now += 1;
        let (floor, used) = (self.floor, self.now);
        let (slot, before, stay) = match self.kept.get(&block) {
            None => (slot, Stay::Trailing, stay),
            // Two sequences trail through it: a third may.
            Some(kept) if kept.slot != slot => (kept.slot, kept.stay, Stay::Lasting),
            Some(kept) => (slot, kept.stay, stay.max(kept.stay)),
        };
        self.block_of[slot as usize] = Some(block);
        self.kept.insert(block, Kept { slot, stay, floor, used });
        if before < Stay::Lasting && stay == Stay::Lasting {
            index.note(Change::StateKept { block, slot });
        }
    }

    /// The sequence that trailed a state to the end of `block` has left one further on.
    pub(super) fn pass_on(&mut self, block: BlockId, index: &mut PrefixIndex) {
        if self.is_trailing(block) {
            self.forget(block, index);
        }
    }

    /// The sequence that trailed a state to the end of `block` goes no further.
    pub(super) fn end_trail(&mut self, block: BlockId, index: &mut PrefixIndex) {
        let trailing = self.kept.get(&block).filter(|kept| kept.stay == Stay::Trailing);
        if let Some(slot) = trailing.map(|kept| kept.slot) {
            self.keep(block, slot, Stay::Lasting, index);
        }
    }

    /// The state at the end of `block` is there for the time being only.
    pub(super) fn is_trailing(&self, block: BlockId) -> bool {
        self.kept.get(&block).is_some_and(|kept| kept.stay == Stay::Trailing)
    }

    /// Keeps no state at the end of `block` any more, if it did.
    pub(super) fn forget(&mut self, block: BlockId, index: &mut PrefixIndex) {
        let Some(Kept { slot, stay, .. }) = self.kept.remove(&block) else { return };
        self.block_of[slot as usize] = None;
        if stay == Stay::Lasting {
            index.note(Change::StateDropped(block));
        }
        if self.pool.holders()[slot as usize] == 0 {
            self.pool.put_back(slot);
        }
    }

    /// A slot for a sequence to write to, if need be that of the state worth least.
    pub(super) fn take(&mut self, index: &mut PrefixIndex) -> Option<SlotId> {
        if self.pool.free().is_empty() {
            let (worth, block) = self.least(index)?;
            self.floor = self.floor.max(worth.tokens);
            self.forget(block, index);
        }
        self.pool.take()
    }

    /// A slot for a state that will save `tokens` tokens: a free one, or that of a state worth less.
    pub(super) fn take_for(&mut self, tokens: usize, index: &mut PrefixIndex) -> Option<SlotId> {
        let tokens = self.floor.saturating_add(tokens);
        let new = Worth { is_pinned: false, tokens, used: self.now + 1 };
        let is_more = |(worth, _): (Worth, BlockId)| new > worth;
        let fits = !self.pool.free().is_empty() || self.least(index).is_some_and(is_more);
        if fits { self.take(index) } else { None }
    }

    /// The state that is worth least, of those that nobody holds.
    fn least(&self, index: &PrefixIndex) -> Option<(Worth, BlockId)> {
        let idle = self.kept.iter().filter(|(_, k)| self.pool.holders()[k.slot as usize] == 0);
        let worth = |(&block, kept): (&BlockId, &Kept)| {
            let tokens = kept.floor.saturating_add(self.saves(block, index));
            let worth = Worth { is_pinned: index.is_pinned(block), tokens, used: kept.used };
            (worth, block)
        };
        idle.map(worth).min()
    }

    /// Tokens from the state before the one at the end of `block` to that one.
    fn saves(&self, block: BlockId, index: &PrefixIndex) -> usize {
        let before = std::iter::successors(index.parent(block), |block| index.parent(*block));
        (1 + before.take_while(|block| !self.contains(*block)).count()) * BLOCK
    }

    /// A sequence lets go of a slot.
    pub(super) fn release(&mut self, slot: SlotId) {
        if self.pool.release(slot) && self.block_of[slot as usize].is_none() {
            self.pool.put_back(slot);
        }
    }

    /// What is wrong, given the slots that sequences hold, each as often as it is held.
    pub(super) fn faults(
        &self,
        held: impl Iterator<Item = SlotId>,
        index: &PrefixIndex,
    ) -> Option<String> {
        let mut holders = vec![0; self.n_slots()];
        held.for_each(|slot| holders[slot as usize] += 1);
        if holders != self.pool.holders() {
            return Some("holders of states do not match the open sequences".into());
        }
        if holders.iter().filter(|&&n| n > 0).count() != self.pool.n_held() {
            return Some("the count of held states is wrong".into());
        }
        let mut kept = vec![None; self.n_slots()];
        for (&block, state) in &self.kept {
            if !index.is_full(block) {
                return Some(format!("a state is kept after block {block}, which is not there"));
            }
            kept[state.slot as usize] = Some(block);
        }
        if kept != self.block_of {
            return Some("slots do not know what is kept in them".into());
        }
        let mut is_free = vec![false; self.n_slots()];
        for &slot in self.pool.free() {
            if std::mem::replace(&mut is_free[slot as usize], true) {
                return Some(format!("slot {slot} is free twice"));
            }
        }
        let odd = |slot: &usize| is_free[*slot] == (holders[*slot] > 0 || kept[*slot].is_some());
        (0..self.n_slots()).find(odd).map(|slot| format!("slot {slot}: free is {}", is_free[slot]))
    }
}
