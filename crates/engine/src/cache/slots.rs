//! Recurrent states and which sequence has which.
//!
//! A pass reads one state of a sequence and writes another, so each sequence that runs has two. States
//! are not shared and not kept beyond their sequence: that needs copies at chosen positions, which are
//! not made yet. Knows nothing of what is in a state.

use backend::SlotId;

/// All slots of a model that has states.
pub(super) struct Slots {
    n: usize,
    free: Vec<SlotId>,
}

/// The states of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// After what is committed. Holds nothing as long as that is nothing.
    pub now: SlotId,
    /// Where the next pass leaves its state.
    pub next: SlotId,
}

impl Slots {
    pub(super) fn new(n: usize) -> Slots {
        Slots { n, free: (0..n as SlotId).rev().collect() }
    }

    /// Two slots for a sequence, if there are two.
    pub(super) fn take(&mut self) -> Option<Pair> {
        match self.free.as_slice() {
            [.., next, now] => {
                let pair = Pair { now: *now, next: *next };
                self.free.truncate(self.free.len() - 2);
                Some(pair)
            }
            _ => None,
        }
    }

    pub(super) fn put_back(&mut self, pair: Pair) {
        self.free.extend([pair.next, pair.now]);
    }

    /// What is wrong, given the pairs of all open sequences.
    pub(super) fn faults(&self, held: impl Iterator<Item = Pair>) -> Option<String> {
        let mut all: Vec<SlotId> = held.flat_map(|pair| [pair.now, pair.next]).collect();
        all.extend(&self.free);
        all.sort_unstable();
        let sound = all.iter().copied().eq(0..self.n as SlotId);
        (!sound).then(|| format!("{} slots, but held and free are {all:?}", self.n))
    }
}

impl Pair {
    /// The next state is the one after what is committed now.
    pub(super) fn advance(&mut self) {
        std::mem::swap(&mut self.now, &mut self.next);
    }
}
