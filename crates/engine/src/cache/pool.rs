//! Blocks and how many sequences hold each.
//!
//! Knows nothing of what is in a block.

use backend::BlockId;

/// Reference-counted ids. A block is *free* (in the list), *held* (by one sequence or more), or
/// neither: then the index keeps it, which is the owner's business.
pub(super) struct Pool {
    holders: Vec<u32>,
    n_held: usize,
    free: Vec<BlockId>,
}

impl Pool {
    pub(super) fn new(n_blocks: usize) -> Pool {
        let free = (0..n_blocks as BlockId).rev().collect();
        Pool { holders: vec![0; n_blocks], n_held: 0, free }
    }

    /// How many sequences hold each block, by id.
    pub(super) fn holders(&self) -> &[u32] {
        &self.holders
    }

    /// How many blocks somebody holds.
    pub(super) fn n_held(&self) -> usize {
        self.n_held
    }

    pub(super) fn free(&self) -> &[BlockId] {
        &self.free
    }

    /// A free block, now held once.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.share(block);
        Some(block)
    }

    /// One more holder. Says whether it is the first.
    pub(super) fn share(&mut self, block: BlockId) -> bool {
        let holders = &mut self.holders[block as usize];
        *holders += 1;
        if *holders > 1 {
            return false;
        }
        self.n_held += 1;
        true
    }

    /// One holder less. Says whether it was the last; the block is not free by that.
    ///
    /// Branches on purpose: of `self.n_held -= usize::from(*holders == 0)`, inlined where the
    /// result is branched on, rustc 1.95 (LLVM 22.1) drops the subtraction at opt-level 2.
    pub(super) fn release(&mut self, block: BlockId) -> bool {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        if *holders > 0 {
            return false;
        }
        self.n_held -= 1;
        true
    }

    /// Takes back a block that nobody holds.
    pub(super) fn put_back(&mut self, block: BlockId) {
        self.free.push(block);
    }
}
