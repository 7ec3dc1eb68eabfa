//! What a sequence has of recurrent states: the one it goes on from, and those that its next pass
//! leaves.
//!
//! Not which states are kept when slots run out: that is `states.rs`.

use backend::{BLOCK, BlockId, SlotId, TokenId};

use super::book::{CacheBook, Seq, SeqKey};
use super::states::{States, Stay};

/// A place where a state is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// Tokens before it: whole blocks.
    pub at: usize,
    /// How long.
    pub stay: Stay,
}

/// What a pass reads and writes of a sequence's states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The state it starts from. `None`: that of a sequence that has not begun.
    pub state_in: Option<SlotId>,
    /// States that it leaves: after which of its rows, and where.
    pub states_out: Vec<(usize, SlotId)>,
}

/// The states of one sequence.
#[derive(Default)]
pub(super) struct Tail {
    /// The state after its first `at` tokens. `None` as long as that is nought.
    now: Option<SlotId>,
    /// Less than what is committed only while blocks come back from disk.
    at: usize,
    /// Where states are being written to, in order.
    leased: Vec<Leased>,
    /// The block at whose end it left the state that goes along with it.
    trail: Option<BlockId>,
}

struct Leased {
    /// Tokens before it.
    at: usize,
    slot: SlotId,
    /// `None`: only to go on from.
    stay: Option<Stay>,
}

impl Tail {
    /// Every slot it holds.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.now.into_iter().chain(self.leased.iter().map(|leased| leased.slot))
    }

    /// Tokens before the state that it goes on from.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// It goes on from `slot`, which it holds, after `at` tokens.
    fn move_to(&mut self, slot: SlotId, at: usize, states: &mut States) {
        if let Some(before) = self.now.replace(slot) {
            states.release(before);
        }
        self.at = at;
    }
}

impl CacheBook {
    /// The model has recurrent states.
    pub(crate) fn has_states(&self) -> bool {
        self.states.is_some()
    }

    /// There is a slot beyond those that the open sequences need to go on.
    pub(crate) fn can_keep(&self) -> bool {
        self.states.as_ref().is_none_or(|states| self.spare(states) > 0)
    }

    /// Slots beyond those that the open sequences hold, and one for each that is not in the pass
    /// that is being planned yet.
    fn spare(&self, states: &States) -> usize {
        let tails = self.seqs.values().filter_map(|seq| seq.tail.as_ref());
        states.n_available().saturating_sub(tails.filter(|tail| tail.leased.is_empty()).count())
    }

    /// Slots for the states that a pass of `rows` rows leaves of a sequence: after its last row, and
    /// at `stops`, which are in order and within the rows, as far as there are slots for them.
    /// `None` for a model without states.
    pub(crate) fn lease_states(
        &mut self,
        key: SeqKey,
        rows: usize,
        stops: &[Stop],
    ) -> Option<Lease> {
        let mut states = self.states.take()?;
        let lease = self.lease_from(&mut states, key, rows, stops);
        self.states = Some(states);
        lease
    }

    fn lease_from(
        &mut self,
        states: &mut States,
        key: SeqKey,
        rows: usize,
        stops: &[Stop],
    ) -> Option<Lease> {
        let seq = self.seqs.get_mut(&key)?;
        let (len, mut before) = (seq.len, seq.last_stop(states));
        let end = len + rows;
        let slot = states.take(&mut self.index).expect("two slots for each open sequence");
        let stay = stops.iter().find(|stop| stop.at == end).map(|stop| stop.stay);
        let last = Leased { at: end, slot, stay };
        let tail = seq.tail.as_mut()?;
        tail.leased.push(last);
        let state_in = tail.now;
        for stop in stops.iter().filter(|stop| stop.at < end) {
            if self.spare(states) == 0 {
                break;
            }
            let saves = stop.at.saturating_sub(before);
            let Some(slot) = states.take_for(saves, &mut self.index) else { continue };
            before = stop.at;
            let leased = &mut self.seqs.get_mut(&key)?.tail.as_mut()?.leased;
            let place = leased.len() - 1;
            leased.insert(place, Leased { at: stop.at, slot, stay: Some(stop.stay) });
        }
        let leased = &self.seqs.get(&key)?.tail.as_ref()?.leased;
        let states_out = leased.iter().map(|leased| (leased.at - len - 1, leased.slot)).collect();
        Some(Lease { state_in, states_out })
    }

    /// A slot for a state that is brought back, which belongs to where the sequence is now. `None`
    /// if there is none to spare. With the next commit the sequence goes on from it.
    pub(crate) fn lease_restored(&mut self, key: SeqKey) -> Option<SlotId> {
        let states = self.states.as_ref()?;
        let seq = self.seqs.get(&key)?;
        if self.spare(states) == 0 || seq.len == 0 || !seq.len.is_multiple_of(BLOCK) {
            return None;
        }
        let slot = self.states.as_mut()?.take(&mut self.index)?;
        let seq = self.seqs.get_mut(&key)?;
        let leased = Leased { at: seq.len, slot, stay: Some(Stay::Lasting) };
        seq.tail.as_mut()?.leased.push(leased);
        Some(slot)
    }

    /// Takes over blocks of the index after those that a sequence has, up to `end` tokens and whether
    /// or not there is a state to go on from, because one is about to be brought back. Not if it has
    /// begun a block itself, which it would lack if it had to [`CacheBook::rewind`].
    pub(crate) fn follow(&mut self, key: SeqKey, tokens: &[TokenId], end: usize) {
        let Some(mut seq) = self.seqs.remove(&key) else { return };
        if seq.len.is_multiple_of(BLOCK) {
            let mut found = self.chain(&seq, tokens);
            found.truncate(end.saturating_sub(seq.len) / BLOCK);
            self.go_on(&mut seq, &found);
        }
        self.seqs.insert(key, seq);
    }

    /// Tokens that a sequence can go on from. It may have more while blocks come back from disk.
    pub(crate) fn sound(&self, key: SeqKey) -> usize {
        self.seqs.get(&key).map_or(0, |seq| seq.sound)
    }

    /// A sequence gives up what it cannot go on from: that was not brought back after all.
    pub(crate) fn rewind(&mut self, key: SeqKey) {
        let Some(mut seq) = self.seqs.remove(&key) else { return };
        if let (Some(tail), Some(states)) = (&mut seq.tail, &mut self.states) {
            tail.leased.drain(..).for_each(|leased| states.release(leased.slot));
        }
        seq.len = seq.sound;
        let n_used = seq.len.div_ceil(BLOCK);
        self.drop_from(&mut seq, n_used);
        self.seqs.insert(key, seq);
    }

    /// How many of `blocks`, which a sequence could take over, it could go on from: a state is kept at
    /// their end, and the panes of the last window before it, as far as the model has any.
    pub(super) fn n_resumable(&self, seq: &Seq, blocks: &[BlockId]) -> usize {
        let reaches = self.reaches(seq, blocks);
        let has_state = |at: usize| match &self.states {
            None => true,
            Some(states) => states.contains(blocks[at]),
        };
        let last = (0..blocks.len()).rev().find(|at| reaches[*at] && has_state(*at));
        last.map_or(0, |at| at + 1)
    }

    /// A sequence that took over blocks goes on from the state at their end.
    pub(super) fn resume(&mut self, seq: &mut Seq) {
        if let (Some(tail), Some(states)) = (&mut seq.tail, &mut self.states)
            && let Some(&last) = seq.blocks.last()
            && let Some(slot) = states.resume(last, &mut self.index)
        {
            tail.move_to(slot, seq.len, states);
        }
    }

    /// What was leased is written as far as the sequence got, and the rest is given back.
    pub(super) fn settle_states(&mut self, seq: &mut Seq) {
        let (Some(tail), Some(states)) = (&mut seq.tail, &mut self.states) else { return };
        let was_leased = !tail.leased.is_empty();
        for Leased { at, slot, stay } in std::mem::take(&mut tail.leased) {
            if let Some(stay) = stay.filter(|_| at <= seq.len) {
                let block = seq.blocks[at / BLOCK - 1];
                states.keep(block, slot, stay, &mut self.index);
                let trail = (stay == Stay::Trailing).then_some(block);
                let before = std::mem::replace(&mut tail.trail, trail);
                if let Some(before) = before.filter(|before| *before != block) {
                    states.pass_on(before, &mut self.index);
                }
            }
            match at == seq.len {
                true => tail.move_to(slot, at, states),
                false => states.release(slot),
            }
        }
        assert!(!was_leased || tail.at == seq.len, "a pass leaves the state after its last row");
    }

    /// A sequence ends: the last state that it left at the end of a block stays.
    pub(super) fn close_states(&mut self, seq: &Seq) {
        let (Some(tail), Some(states)) = (&seq.tail, &mut self.states) else { return };
        if let Some(block) = tail.trail {
            states.end_trail(block, &mut self.index);
        }
        tail.slots().for_each(|slot| states.release(slot));
    }
}

impl Seq {
    /// Tokens before the last state that is kept of this sequence to stay.
    fn last_stop(&self, states: &States) -> usize {
        let full = &self.blocks[..self.len / BLOCK];
        let stays = |block: &BlockId| states.contains(*block) && !states.is_trailing(*block);
        full.iter().rposition(stays).map_or(0, |at| (at + 1) * BLOCK)
    }
}
