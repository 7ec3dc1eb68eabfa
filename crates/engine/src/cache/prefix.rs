//! Which block holds which tokens after which tokens: the index of prefixes.
//!
//! Knows no sequences; the book tells it which blocks are in use.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use backend::{BLOCK, BlockId, TokenId};

use super::ghosts::Ghosts;
use super::spill::Change;
use crate::Miss;

/// Blocks, each under its tokens and the block before it. A block that is not full yet is there
/// under the tokens it has, or had when somebody last looked.
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

#[derive(Clone, Copy)]
struct Key {
    parent: Option<BlockId>,
    /// The first `len` count.
    tokens: [TokenId; BLOCK],
    len: usize,
}

impl Key {
    /// Of up to [`BLOCK`] tokens.
    fn new(parent: Option<BlockId>, tokens: &[TokenId]) -> Key {
        let mut key = Key { parent, tokens: [0; BLOCK], len: tokens.len() };
        key.tokens[..tokens.len()].copy_from_slice(tokens);
        key
    }

    fn tokens(&self) -> &[TokenId] {
        &self.tokens[..self.len]
    }

    fn is_full(&self) -> bool {
        self.len == BLOCK
    }
}

/// By parent, then as words in a dictionary: next to where a word would stand is the one that has
/// the longest beginning in common with it.
impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.parent.cmp(&other.parent).then_with(|| self.tokens().cmp(other.tokens()))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

struct Node {
    key: Key,
    /// Of all tokens from the first on, once the block is full.
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

    /// The block that holds exactly `tokens` after `parent`.
    pub(super) fn find(&self, parent: Option<BlockId>, tokens: &[TokenId]) -> Option<BlockId> {
        self.by_key.get(&Key::new(parent, tokens)).copied()
    }

    /// Of the blocks after `parent` the one that has the longest beginning in common with
    /// `tokens`, at most a block of them, and how long that is. None if it is nothing.
    pub(super) fn nearest(
        &self,
        parent: Option<BlockId>,
        tokens: &[TokenId],
    ) -> Option<(BlockId, usize)> {
        let key = Key::new(parent, tokens);
        let before = self.by_key.range(..=key).next_back();
        let after = self.by_key.range(key..).next();
        let common = |(other, block): (&Key, &BlockId)| {
            let pairs = tokens.iter().zip(other.tokens());
            let n = pairs.take_while(|(a, b)| a == b).count();
            (other.parent == parent && n > 0).then_some((*block, n))
        };
        [before, after].into_iter().flatten().filter_map(common).max_by_key(|(_, n)| *n)
    }

    /// Why there is no block that begins with `rest`, which follows the `n_before` blocks that end
    /// with `parent`. `None`: there is one, or nobody ever went on from there.
    pub(super) fn miss(
        &self,
        parent: Option<BlockId>,
        rest: &[TokenId],
        n_before: usize,
    ) -> Option<Miss> {
        let rest = &rest[..rest.len().min(BLOCK)];
        if rest.len() == BLOCK && self.ghosts.contains(chain(self.chain_of(parent), rest)) {
            return Some(Miss::Evicted { block: n_before });
        }
        let node = |block: BlockId| self.nodes[block as usize].as_ref();
        match (self.nearest(parent, rest), parent) {
            (Some((block, n)), _) => {
                let ends = n == rest.len() || node(block).is_some_and(|node| node.key.len == n);
                (!ends).then_some(Miss::Diverged { block: n_before })
            }
            (None, None) => Some(Miss::Cold),
            (None, Some(parent)) => node(parent)
                .is_some_and(|node| node.n_children > 0)
                .then_some(Miss::Diverged { block: n_before }),
        }
    }

    /// Enters `block`, which is in use, under `tokens` after `parent`, or moves it there if it was
    /// entered with fewer tokens. There may be no other block under them; `parent` must be there.
    pub(super) fn publish(&mut self, parent: Option<BlockId>, tokens: &[TokenId], block: BlockId) {
        let key = Key::new(parent, tokens);
        if self.nodes[block as usize].as_ref().is_some_and(|node| node.key == key) {
            return;
        }
        let mut chained = 0;
        if key.is_full() {
            chained = chain(self.chain_of(parent), tokens);
            self.ghosts.forget(chained);
            self.changes.push(Change::Published { block, parent, tokens: key.tokens });
        }
        self.by_key.insert(key, block);
        if let Some(node) = &mut self.nodes[block as usize] {
            self.by_key.remove(&node.key);
            (node.key, node.chain) = (key, chained);
            return;
        }
        if let Some(node) = parent.and_then(|parent| self.nodes[parent as usize].as_mut()) {
            node.n_children += 1;
        }
        let idle = Idle::InUse;
        let node = Node { key, chain: chained, n_children: 0, idle, rank: Rank::Plain };
        self.nodes[block as usize] = Some(node);
    }

    /// Forgets a block that is in use and not full, if it is there.
    pub(super) fn withdraw(&mut self, block: BlockId) {
        self.remove(block);
    }

    fn remove(&mut self, block: BlockId) -> Option<Node> {
        let node = self.nodes[block as usize].take()?;
        self.by_key.remove(&node.key);
        self.n_pinned -= usize::from(node.rank == Rank::Pinned);
        if let Some(parent) = node.key.parent
            && let Some(node) = &mut self.nodes[parent as usize]
        {
            node.n_children -= 1;
            if let (0, Idle::Since(since)) = (node.n_children, node.idle) {
                self.leaves.insert((node.rank, since, parent));
            }
        }
        Some(node)
    }

    /// Notes what happened to the state at the end of a block.
    pub(super) fn note(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Everything that was published or dropped since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.nodes[block as usize].is_some()
    }

    /// `block` is there and full.
    pub(super) fn is_full(&self, block: BlockId) -> bool {
        self.nodes[block as usize].as_ref().is_some_and(|node| node.key.is_full())
    }

    /// The block before `block`.
    pub(super) fn parent(&self, block: BlockId) -> Option<BlockId> {
        self.nodes[block as usize].as_ref()?.key.parent
    }

    pub(super) fn is_pinned(&self, block: BlockId) -> bool {
        self.nodes[block as usize].as_ref().is_some_and(|node| node.rank == Rank::Pinned)
    }

    /// How many blocks are pinned.
    pub(super) fn n_pinned(&self) -> usize {
        self.n_pinned
    }

    /// Pins `block`, which is in use. When too many are pinned, the one that has not been used for
    /// longest, and that no pinned one follows, is pinned no more. If all are in use, nothing happens.
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
        let is_pinned = |node: &&Node| node.rank == Rank::Pinned;
        let pinned = self.nodes.iter().flatten().filter(is_pinned);
        let followed: BTreeSet<BlockId> = pinned.filter_map(|node| node.key.parent).collect();
        let idle_since = |(block, node): (BlockId, &Option<Node>)| match node {
            Some(Node { rank: Rank::Pinned, idle: Idle::Since(since), .. }) => {
                (!followed.contains(&block)).then_some((*since, block))
            }
            _ => None,
        };
        let Some((since, block)) = (0..).zip(&self.nodes).filter_map(idle_since).min() else {
            return false;
        };
        if self.leaves.remove(&(Rank::Pinned, since, block)) {
            self.leaves.insert((Rank::Plain, since, block));
        }
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
        let node = self.remove(block)?;
        if node.key.is_full() {
            self.ghosts.remember(node.chain);
            self.changes.push(Change::Dropped(block));
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
        if n_children > 0 && !node.key.is_full() {
            return Some(format!("block {block} has successors and is not full"));
        }
        if node.n_children != n_children || leaf != (idle && n_children == 0) {
            return Some(format!("block {block} has wrong successors"));
        }
        (idle == (holders > 0)).then(|| format!("block {block} has {holders} holders"))
    }
}

/// Stands for a block and everything before it, where a collision does no harm.
fn chain(before: u64, tokens: &[TokenId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, tokens).hash(&mut hasher);
    hasher.finish()
}
