//! Panes: what layers that see only a window keep of a block. Which of them are free, which are kept
//! after nobody needs them any more, and which goes when one is needed.
//!
//! Knows blocks by their ids; no sequences, and nothing of what is in a pane.
//!
//! Such layers have blocks of their own, far fewer than there are of the others. Of a block that is
//! behind the window of every sequence the pane can be given away while the rest of it stays. A
//! sequence goes on from the end of a block if the panes of the last window before it are there.

use std::collections::BTreeMap;

use backend::{BLOCK, BlockId};

use super::{pool::Pool, prefix::PrefixIndex, spill::Change, states::Stay};
use crate::Panes as Counts;

/// A pane is always exactly one of:
/// - free;
/// - held by sequences that read it, one of which may still be writing it;
/// - kept: it belongs to a block of the index, nobody holds it, and it is dropped when one is needed.
pub(super) struct Panes {
    /// Positions that the layers see.
    window: usize,
    pool: Pool,
    /// By block: the pane it has.
    of_block: Vec<Option<Pane>>,
    /// Those that nobody holds, by block.
    idle: BTreeMap<BlockId, Idle>,
    /// Counts uses.
    now: u64,
}

#[derive(Clone, Copy)]
struct Pane {
    id: BlockId,
    stay: Stay,
}

/// When it was used last, which decides what goes first among equals.
type Idle = u64;

impl Panes {
    /// `n_panes` panes for the blocks `0..n_blocks`, of layers that see `window` positions.
    pub(super) fn new(n_panes: usize, window: usize, n_blocks: usize) -> Panes {
        Panes {
            window,
            pool: Pool::new(n_panes),
            of_block: vec![None; n_blocks],
            idle: BTreeMap::new(),
            now: 0,
        }
    }

    /// The first block whose pane a sequence of `len` tokens needs. It holds them from the end of its
    /// last whole block on, so that others can go on from there.
    pub(super) fn first(&self, len: usize) -> usize {
        first_pane(len, self.window)
    }

    /// Panes that a sequence of `blocks` blocks holds, at most, beside those of the rows of a pass.
    pub(super) fn needed(&self, blocks: usize) -> usize {
        blocks.min(least_panes(self.window))
    }

    /// Panes that no sequence holds: free ones, and those that can be dropped.
    pub(super) fn n_available(&self) -> usize {
        self.pool.holders().len() - self.pool.n_held()
    }

    /// Where the panes are.
    pub(super) fn counts(&self) -> Counts {
        let (free, held) = (self.pool.free().len(), self.pool.n_held());
        Counts { free, kept: self.pool.holders().len() - free - held, held }
    }

    /// The pane of `block`, if it has one.
    pub(super) fn of(&self, block: BlockId) -> Option<BlockId> {
        self.of_block[block as usize].map(|pane| pane.id)
    }

    /// How many sequences hold the pane of `block`.
    pub(super) fn holders(&self, block: BlockId) -> u32 {
        self.of(block).map_or(0, |id| self.pool.holders()[id as usize])
    }

    /// One more sequence holds the pane of `block`, if it has one.
    pub(super) fn hold(&mut self, block: BlockId) -> Option<BlockId> {
        let id = self.of(block)?;
        if self.pool.share(id) {
            self.idle.remove(&block);
        }
        Some(id)
    }

    /// One sequence less holds the pane of `block`.
    pub(super) fn release(&mut self, block: BlockId) {
        let Some(id) = self.of(block) else { return };
        if self.pool.release(id) {
            self.now += 1;
            self.idle.insert(block, self.now);
        }
    }

    /// A pane for `block`, which has none, to write to; if need be, that of another block. It is held.
    pub(super) fn take(&mut self, block: BlockId, index: &mut PrefixIndex) -> Option<BlockId> {
        if self.pool.free().is_empty() {
            let first = self.first_to_go(index)?;
            self.forget(first, index);
        }
        let id = self.pool.take()?;
        self.of_block[block as usize] = Some(Pane { id, stay: Stay::Passing });
        Some(id)
    }

    /// What goes first is what a sequence left behind on its way, then what others are likely to go on
    /// from, of a pinned beginning last; the least recently used among equals.
    fn first_to_go(&self, index: &PrefixIndex) -> Option<BlockId> {
        let order = |(&block, &used): (&BlockId, &Idle)| {
            let stay = self.of_block[block as usize].map(|pane| pane.stay);
            let is_pinned = stay == Some(Stay::Lasting) && index.is_pinned(block);
            (is_pinned, stay, used, block)
        };
        self.idle.iter().map(order).min().map(|(.., block)| block)
    }

    /// Others are likely to need the pane of `block`, which is in the index, and full.
    pub(super) fn keep(&mut self, block: BlockId, index: &mut PrefixIndex) {
        let Some(pane) = &mut self.of_block[block as usize] else { return };
        if std::mem::replace(&mut pane.stay, Stay::Lasting) != Stay::Lasting {
            index.note(Change::PaneKept { block, pane: pane.id });
        }
        self.now += 1;
        let now = self.now;
        self.idle.entry(block).and_modify(|used| *used = now);
    }

    /// `to` gets the pane of `from`, which holds the same, and its holders.
    pub(super) fn hand_on(&mut self, from: BlockId, to: BlockId) {
        self.of_block[to as usize] = self.of_block[from as usize].take();
        if let Some(used) = self.idle.remove(&from) {
            self.idle.insert(to, used);
        }
    }

    /// `block` has no pane any more. Nobody holds it.
    pub(super) fn forget(&mut self, block: BlockId, index: &mut PrefixIndex) {
        let Some(Pane { id, stay }) = self.of_block[block as usize].take() else { return };
        self.idle.remove(&block);
        if stay == Stay::Lasting {
            index.note(Change::PaneDropped(block));
        }
        self.pool.put_back(id);
    }

    /// What is wrong, given how many sequences hold the pane of each block that has one or ought to.
    pub(super) fn faults(
        &self,
        held: &BTreeMap<BlockId, u32>,
        exists: impl Fn(BlockId) -> bool,
    ) -> Option<String> {
        let mut owner = vec![None; self.pool.holders().len()];
        for (block, pane) in (0..).zip(&self.of_block) {
            let holders = held.get(&block).copied().unwrap_or(0);
            let Some(Pane { id, .. }) = *pane else {
                if holders > 0 {
                    return Some(format!("block {block} has no pane, and {holders} hold it"));
                }
                continue;
            };
            if let Some(other) = owner[id as usize].replace(block) {
                return Some(format!("blocks {other} and {block} have one pane"));
            }
            if self.pool.holders()[id as usize] != holders {
                return Some(format!("holders of the pane of block {block} do not match"));
            }
            if self.idle.contains_key(&block) == (holders > 0) {
                return Some(format!("the pane of block {block} has {holders} holders"));
            }
            if !exists(block) {
                return Some(format!("block {block} is free and has a pane"));
            }
        }
        let mut is_free = vec![false; owner.len()];
        for &id in self.pool.free() {
            if std::mem::replace(&mut is_free[id as usize], true) {
                return Some(format!("pane {id} is free twice"));
            }
        }
        if held.len() != self.pool.n_held() {
            return Some("the count of held panes is wrong".into());
        }
        let odd = |id: &usize| is_free[*id] == owner[*id].is_some();
        (0..owner.len()).find(odd).map(|id| format!("pane {id}: free is {}", is_free[id]))
    }
}

/// The first block of which layers that see `window` positions see anything from where the last whole
/// block of `len` tokens ends.
pub(super) const fn first_pane(len: usize, window: usize) -> usize {
    (len / BLOCK * BLOCK + 1).saturating_sub(window) / BLOCK
}

/// Panes that a sequence needs, at most, to compute one row: those of the last `window` positions
/// before the end of a block, and that of the row itself.
pub(crate) const fn least_panes(window: usize) -> usize {
    window.div_ceil(BLOCK) + 1
}
