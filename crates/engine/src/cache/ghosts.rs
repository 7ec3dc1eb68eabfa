//! What was dropped from the index not long ago, so that a miss can be told from a loss.
//!
//! For reports only: it remembers hashes, and nothing is ever reused by them.

use std::collections::{HashSet, VecDeque};

/// The latest so many dropped prefixes.
pub(super) struct Ghosts {
    hashes: HashSet<u64>,
    /// Oldest first. Some may be forgotten already.
    order: VecDeque<u64>,
    most: usize,
}

impl Ghosts {
    pub(super) fn new(most: usize) -> Ghosts {
        Ghosts { hashes: HashSet::new(), order: VecDeque::new(), most }
    }

    pub(super) fn remember(&mut self, hash: u64) {
        self.hashes.insert(hash);
        self.order.push_back(hash);
        while self.order.len() > self.most {
            let Some(oldest) = self.order.pop_front() else { return };
            self.hashes.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.hashes.contains(&hash)
    }

    /// It is back.
    pub(super) fn forget(&mut self, hash: u64) {
        self.hashes.remove(&hash);
    }

    pub(super) fn clear(&mut self) {
        self.hashes.clear();
        self.order.clear();
    }
}
