//! Which block holds which tokens after which tokens: the index of prefixes.
//!
//! Knows no sequences; the book tells it which blocks are in use.

use std::collections::{BTreeSet, HashMap};

use backend::{BLOCK, BlockId, TokenId};

/// Full blocks, each under its tokens and the block before it.
///
/// The map hashes, and compares what it hashed: the tokens of a block and the id of the one
/// before. A block with successors in the index is never dropped, so that id stands for the whole
/// prefix, and a hit is a match of every token from the first on. There are no collisions.
pub(super) struct PrefixIndex {
    by_key: HashMap<Key, BlockId>,
    /// By block id.
    nodes: Vec<Option<Node>>,
    /// What may be dropped: blocks that nobody uses and that have no successors, least recently
    /// used first.
    leaves: BTreeSet<(u64, BlockId)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    parent: Option<BlockId>,
    tokens: [TokenId; BLOCK],
}

struct Node {
    key: Key,
    n_children: usize,
    idle: Idle,
}

#[derive(Clone, Copy)]
enum Idle {
    InUse,
    /// Nobody has used it since this time of the book.
    Since(u64),
}

impl PrefixIndex {
    pub(super) fn new(n_blocks: usize) -> PrefixIndex {
        PrefixIndex {
            by_key: HashMap::new(),
            nodes: (0..n_blocks).map(|_| None).collect(),
            leaves: BTreeSet::new(),
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

    /// Enters `block`, which is in use, under `tokens` after `parent`. Neither may be there yet;
    /// `parent` must be.
    pub(super) fn publish(
        &mut self,
        parent: Option<BlockId>,
        tokens: &[TokenId; BLOCK],
        block: BlockId,
    ) {
        let key = Key { parent, tokens: *tokens };
        self.by_key.insert(key, block);
        if let Some(node) = parent.and_then(|parent| self.nodes[parent as usize].as_mut()) {
            node.n_children += 1;
        }
        self.nodes[block as usize] = Some(Node { key, n_children: 0, idle: Idle::InUse });
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.nodes[block as usize].is_some()
    }

    /// Somebody uses `block` again.
    pub(super) fn wake(&mut self, block: BlockId) {
        let Some(node) = &mut self.nodes[block as usize] else { return };
        if let Idle::Since(since) = std::mem::replace(&mut node.idle, Idle::InUse) {
            self.leaves.remove(&(since, block));
        }
    }

    /// Nobody uses `block` any more.
    pub(super) fn rest(&mut self, block: BlockId, now: u64) {
        let Some(node) = &mut self.nodes[block as usize] else { return };
        node.idle = Idle::Since(now);
        if node.n_children == 0 {
            self.leaves.insert((now, block));
        }
    }

    /// Forgets the block that has not been used for longest, among those without successors.
    pub(super) fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.leaves.pop_first()?;
        let node = self.nodes[block as usize].take()?;
        self.by_key.remove(&node.key);
        if let Some(parent) = node.key.parent
            && let Some(node) = &mut self.nodes[parent as usize]
        {
            node.n_children -= 1;
            if let (0, Idle::Since(since)) = (node.n_children, node.idle) {
                self.leaves.insert((since, parent));
            }
        }
        Some(block)
    }

    /// What is wrong with the index, given how many sequences hold each block.
    pub(super) fn faults(&self, holders: &[u32]) -> Option<String> {
        let mut n_children = vec![0; self.nodes.len()];
        for node in self.nodes.iter().flatten() {
            if let Some(parent) = node.key.parent {
                n_children[parent as usize] += 1;
            }
        }
        let n_nodes = self.nodes.iter().flatten().count();
        if n_nodes != self.by_key.len() {
            return Some(format!("{n_nodes} nodes under {} keys", self.by_key.len()));
        }
        for (block, n_children) in n_children.into_iter().enumerate() {
            let Some(node) = &self.nodes[block] else {
                if n_children > 0 {
                    return Some(format!("block {block} was dropped before its successors"));
                }
                continue;
            };
            let leaf = match node.idle {
                Idle::InUse => false,
                Idle::Since(since) => self.leaves.contains(&(since, block as BlockId)),
            };
            let idle = matches!(node.idle, Idle::Since(_));
            let should_be_leaf = idle && n_children == 0;
            if node.n_children != n_children || leaf != should_be_leaf {
                return Some(format!("block {block} has wrong successors"));
            }
            if idle == (holders[block] > 0) {
                return Some(format!("block {block} has {} holders", holders[block]));
            }
        }
        None
    }
}
