//! Which block holds which tokens after which tokens: the index of prefixes.
//!
//! Knows no sequences; the book tells it which blocks are in use.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use backend::{BLOCK, BlockId, TokenId};

use super::ghosts::Ghosts;
use super::spill::Change;
use crate::Miss;

/// Full blocks, each under its tokens and the block before it.
///
/// The map compares what it finds: the tokens of a block and the id of the one before. A block
/// with successors in the index is never dropped, so that id stands for the whole prefix, and a
/// hit is a match of every token from the first on. There are no collisions.
pub(super) struct PrefixIndex {
    by_key: BTreeMap<Key, BlockId>,
    /// By block id.
    nodes: Vec<Option<Node>>,
    /// What may be dropped: blocks that nobody uses and that have no successors, least recently
    /// used first, the pinned ones after all others.
    leaves: BTreeSet<(Rank, u64, BlockId)>,
    n_pinned: usize,
    max_pinned: usize,
    ghosts: Ghosts,
    /// What happened since somebody asked, in order.
    changes: Vec<Change>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    parent: Option<BlockId>,
    tokens: [TokenId; BLOCK],
}

struct Node {
    key: Key,
    /// Of all tokens from the first on.
    chain: u64,
    n_children: usize,
    idle: Idle,
    rank: Rank,
}

#[derive(Clone, Copy)]
enum Idle {
    InUse,
    /// Nobody has used it since this time of the book.
    Since(u64),
}

/// What goes first when room is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Plain,
    Pinned,
}

impl PrefixIndex {
    /// An empty index of blocks `0..n_blocks`, of which `max_pinned` may be pinned.
    pub(super) fn new(n_blocks: usize, max_pinned: usize) -> PrefixIndex {
        PrefixIndex {
            by_key: BTreeMap::new(),
            nodes: (0..n_blocks).map(|_| None).collect(),
            leaves: BTreeSet::new(),
            n_pinned: 0,
            max_pinned,
            ghosts: Ghosts::new(4 * n_blocks),
            changes: Vec::new(),
        }
    }

    /// The block that holds `tokens` after `parent`.
    pub(super) fn find(
        &self,
        parent: Option<BlockId>,
        tokens: &[TokenId; BLOCK],
    ) -> Option<BlockId> {
        self.by_key.get(&Key { parent, tokens: *tokens }).copied()
    }

    /// Why there is no block for `tokens`, the ones that follow the `n_before` blocks that end
    /// with `parent`.
    pub(super) fn miss(
        &self,
        parent: Option<BlockId>,
        tokens: &[TokenId; BLOCK],
        n_before: usize,
    ) -> Option<Miss> {
        if self.ghosts.contains(chain(self.chain_of(parent), tokens)) {
            return Some(Miss::Evicted { block: n_before });
        }
        let Some(parent) = parent else { return Some(Miss::Cold) };
        let has_children = self.nodes[parent as usize].as_ref().is_some_and(|n| n.n_children > 0);
        has_children.then_some(Miss::Diverged { block: n_before })
    }

    /// Enters `block`, which is in use, under `tokens` after `parent`. Neither may be there yet;
    /// `parent` must be.
    pub(super) fn publish(
        &mut self,
        parent: Option<BlockId>,
        tokens: &[TokenId; BLOCK],
        block: BlockId,
    ) {
        let key = Key { parent, tokens: *tokens };
        let chain = chain(self.chain_of(parent), tokens);
        self.ghosts.forget(chain);
        self.by_key.insert(key, block);
        if let Some(node) = parent.and_then(|parent| self.nodes[parent as usize].as_mut()) {
            node.n_children += 1;
        }
        let node = Node { key, chain, n_children: 0, idle: Idle::InUse, rank: Rank::Plain };
        self.nodes[block as usize] = Some(node);
        self.changes.push(Change::Published { block, parent, tokens: *tokens });
    }

    /// Everything that was published or dropped since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.nodes[block as usize].is_some()
    }

    /// How many blocks are pinned.
    pub(super) fn n_pinned(&self) -> usize {
        self.n_pinned
    }

    /// Pins `block`, which is in use. When too many are pinned, the pinned leaf that has not been
    /// used for longest is pinned no more; without such a leaf nothing happens.
    pub(super) fn pin(&mut self, block: BlockId) {
        let is_plain = |node: &Node| node.rank == Rank::Plain;
        if !self.nodes[block as usize].as_ref().is_some_and(is_plain)
            || (self.n_pinned >= self.max_pinned && !self.unpin_oldest())
        {
            return;
        }
        if let Some(node) = &mut self.nodes[block as usize] {
            node.rank = Rank::Pinned;
            self.n_pinned += 1;
        }
    }

    fn unpin_oldest(&mut self) -> bool {
        let pinned = self.leaves.range((Rank::Pinned, 0, 0)..).next().copied();
        let Some(leaf @ (_, since, block)) = pinned else { return false };
        self.leaves.remove(&leaf);
        self.leaves.insert((Rank::Plain, since, block));
        if let Some(node) = &mut self.nodes[block as usize] {
            node.rank = Rank::Plain;
        }
        self.n_pinned -= 1;
        true
    }

    /// Somebody uses `block` again.
    pub(super) fn wake(&mut self, block: BlockId) {
        let Some(node) = &mut self.nodes[block as usize] else { return };
        if let Idle::Since(since) = std::mem::replace(&mut node.idle, Idle::InUse) {
            self.leaves.remove(&(node.rank, since, block));
        }
    }

    /// Nobody uses `block` any more.
    pub(super) fn rest(&mut self, block: BlockId, now: u64) {
        let Some(node) = &mut self.nodes[block as usize] else { return };
        node.idle = Idle::Since(now);
        if node.n_children == 0 {
            self.leaves.insert((node.rank, now, block));
        }
    }

    /// Forgets the block that has not been used for longest, among those without successors.
    /// Remembers that it was there.
    pub(super) fn evict(&mut self) -> Option<BlockId> {
        let (.., block) = self.leaves.pop_first()?;
        let node = self.nodes[block as usize].take()?;
        self.by_key.remove(&node.key);
        self.ghosts.remember(node.chain);
        self.changes.push(Change::Dropped(block));
        self.n_pinned -= usize::from(node.rank == Rank::Pinned);
        if let Some(parent) = node.key.parent
            && let Some(node) = &mut self.nodes[parent as usize]
        {
            node.n_children -= 1;
            if let (0, Idle::Since(since)) = (node.n_children, node.idle) {
                self.leaves.insert((node.rank, since, parent));
            }
        }
        Some(block)
    }

    /// Forgets what was dropped.
    pub(super) fn forget_ghosts(&mut self) {
        self.ghosts.clear();
    }

    fn chain_of(&self, block: Option<BlockId>) -> u64 {
        block.and_then(|block| self.nodes[block as usize].as_ref()).map_or(0, |node| node.chain)
    }

    /// What is wrong with the index, given how many sequences hold each block.
    pub(super) fn faults(&self, holders: &[u32]) -> Option<String> {
        let mut n_children = vec![0; self.nodes.len()];
        for node in self.nodes.iter().flatten() {
            if let Some(parent) = node.key.parent {
                n_children[parent as usize] += 1;
            }
        }
        let nodes = || self.nodes.iter().flatten();
        if nodes().count() != self.by_key.len() {
            return Some(format!("{} nodes under {} keys", nodes().count(), self.by_key.len()));
        }
        let n_pinned = nodes().filter(|node| node.rank == Rank::Pinned).count();
        if n_pinned != self.n_pinned || n_pinned > self.max_pinned {
            return Some(format!("{n_pinned} pinned, {} counted", self.n_pinned));
        }
        let faults = |(block, n): (usize, usize)| self.node_faults(block, n, holders[block]);
        n_children.into_iter().enumerate().find_map(faults)
    }

    fn node_faults(&self, block: usize, n_children: usize, holders: u32) -> Option<String> {
        let Some(node) = &self.nodes[block] else {
            return (n_children > 0)
                .then(|| format!("block {block} was dropped before its successors"));
        };
        let (idle, leaf) = match node.idle {
            Idle::InUse => (false, false),
            Idle::Since(since) => {
                (true, self.leaves.contains(&(node.rank, since, block as BlockId)))
            }
        };
        if node.n_children != n_children || leaf != (idle && n_children == 0) {
            return Some(format!("block {block} has wrong successors"));
        }
        (idle == (holders > 0)).then(|| format!("block {block} has {holders} holders"))
    }
}

/// Stands for a block and everything before it, where a collision does no harm.
fn chain(before: u64, tokens: &[TokenId; BLOCK]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, tokens).hash(&mut hasher);
    hasher.finish()
}
