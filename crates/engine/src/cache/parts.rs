//! Recurrent states on their way to disk. A state is cut into parts of the size of a block, and each
//! is a record of its own, named after the block at whose end the state is. So the files know of
//! nothing but blocks, and a state is there when all of its parts are.
//!
//! Not here: which states are worth it, and when there is time.

use std::collections::{BTreeMap, VecDeque};

use backend::{BlockId, DeviceError, SlotId};

use super::disk::{Label, Store};
use crate::Executor;

/// The states of one model.
pub(super) struct Parts {
    /// Bytes of a state. 0: the model has none.
    state_bytes: usize,
    /// By block: the states that are in memory and may have to be copied.
    kept: BTreeMap<BlockId, Kept>,
    /// Blocks whose states may still have to be copied, oldest first.
    queue: VecDeque<BlockId>,
    /// The state that is being written.
    transit: Option<Transit>,
}

struct Kept {
    label: Label,
    slot: SlotId,
    saved: bool,
}

/// A copy of a state, of which some parts have been handed over.
struct Transit {
    label: Label,
    bytes: Vec<u8>,
    next: usize,
}

impl Parts {
    pub(super) fn new(state_bytes: usize) -> Parts {
        Parts { state_bytes, kept: BTreeMap::new(), queue: VecDeque::new(), transit: None }
    }

    /// The model has states.
    pub(super) fn any(&self) -> bool {
        self.state_bytes > 0
    }

    /// Labels of the parts of the state at the end of the block `label`.
    pub(super) fn labels(&self, label: &Label, block_bytes: usize) -> impl Iterator<Item = Label> {
        let (label, state_bytes) = (*label, self.state_bytes);
        (0..state_bytes.div_ceil(block_bytes)).map(move |part| part_of(&label, part, state_bytes))
    }

    /// All parts of the state at the end of the block `label` are likely to be on disk.
    pub(super) fn is_saved(&self, label: &Label, store: &Store) -> bool {
        self.any() && self.labels(label, store.block_bytes()).all(|part| store.contains(&part.key))
    }

    /// The state in `slot` is kept at the end of `block`, whose label this is.
    pub(super) fn kept(&mut self, block: BlockId, slot: SlotId, label: Label, store: &Store) {
        let saved = self.is_saved(&label, store);
        self.kept.insert(block, Kept { label, slot, saved });
        if !saved {
            self.queue.push_back(block);
        }
    }

    /// The state at the end of `block` is dropped, and its slot about to be overwritten. Says
    /// whether it is lost.
    pub(super) fn dropped(
        &mut self,
        block: BlockId,
        executor: &mut dyn Executor,
    ) -> Result<bool, DeviceError> {
        match self.kept.remove(&block) {
            Some(Kept { label, slot, saved: false }) if self.transit.is_none() => {
                self.transit = Some(self.copy(label, slot, executor)?);
                Ok(false)
            }
            Some(kept) => Ok(!kept.saved),
            None => Ok(false),
        }
    }

    fn copy(
        &self,
        label: Label,
        slot: SlotId,
        executor: &mut dyn Executor,
    ) -> Result<Transit, DeviceError> {
        let mut bytes = vec![0; self.state_bytes];
        executor.read_state(slot, &mut bytes)?;
        Ok(Transit { label, bytes, next: 0 })
    }

    /// The next part to be written, if there is one, `block_bytes` long.
    pub(super) fn next(
        &mut self,
        block_bytes: usize,
        executor: &mut dyn Executor,
    ) -> Result<Option<(Label, Vec<u8>)>, DeviceError> {
        while self.transit.is_none() {
            let Some(block) = self.queue.pop_front() else { return Ok(None) };
            // It may have been saved or dropped meanwhile.
            if let Some(&Kept { label, slot, saved: false }) = self.kept.get(&block) {
                self.transit = Some(self.copy(label, slot, executor)?);
                self.kept.entry(block).and_modify(|kept| kept.saved = true);
            }
        }
        let part = self.transit.as_ref().map(|transit| {
            let start = transit.next * block_bytes;
            let end = (start + block_bytes).min(transit.bytes.len());
            let mut bytes = transit.bytes[start..end].to_vec();
            bytes.resize(block_bytes, 0);
            (part_of(&transit.label, transit.next, self.state_bytes), bytes)
        });
        Ok(part)
    }

    /// What [`Parts::next`] gave has been handed over.
    pub(super) fn advance(&mut self, block_bytes: usize) {
        if let Some(transit) = &mut self.transit {
            transit.next += 1;
            if transit.next * block_bytes >= transit.bytes.len() {
                self.transit = None;
            }
        }
    }

    /// Forgets what is in memory.
    pub(super) fn forget(&mut self) {
        *self = Parts::new(self.state_bytes);
    }

    /// What lay on disk was removed. What is kept has to be written again, but for that of `dropped`.
    pub(super) fn cleared(&mut self, dropped: impl Iterator<Item = BlockId>) {
        for block in dropped {
            self.kept.remove(&block);
        }
        self.transit = None;
        self.kept.values_mut().for_each(|kept| kept.saved = false);
        self.queue = self.kept.keys().copied().collect();
    }
}

/// The label of one part of the state at the end of the block `label`.
fn part_of(label: &Label, part: usize, state_bytes: usize) -> Label {
    Label { key: label.key.part(part, state_bytes), parent: label.key, tokens: label.tokens }
}
