//! What goes with blocks on its way to disk: recurrent states, and panes. It is cut into parts of the
//! size of a record, and each is a record of its own, named after the block that it goes with. So the
//! files know of nothing but blocks, and a state or a pane is there when all of its parts are.
//!
//! Not here: which of them are worth it, and when there is time.

use std::collections::{BTreeMap, VecDeque};

use backend::{BlockId, DeviceError, KvGroup};

use super::disk::{Label, Store};
use crate::Executor;

/// What goes with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The recurrent state at its end, in a slot.
    State,
    /// What layers that see only a window keep of it, in a block of theirs.
    Pane,
}

impl Kind {
    /// Bytes of one. 0: the model has none.
    fn bytes(self, executor: &dyn Executor) -> usize {
        match self {
            Kind::State => executor.state_bytes(),
            Kind::Pane => executor.block_bytes(KvGroup::Windowed),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::State => "state",
            Kind::Pane => "pane",
        }
    }

    fn read(
        self,
        place: u32,
        out: &mut [u8],
        executor: &mut dyn Executor,
    ) -> Result<(), DeviceError> {
        match self {
            Kind::State => executor.read_state(place, out),
            Kind::Pane => executor.read_block((KvGroup::Windowed, place), out),
        }
    }
}

/// The states of one model, or its panes.
pub(super) struct Parts {
    kind: Kind,
    /// Bytes of one. 0: the model has none.
    bytes: usize,
    /// By block: those that are in memory and may have to be copied.
    kept: BTreeMap<BlockId, Kept>,
    /// Blocks for which that may still have to be done, oldest first.
    queue: VecDeque<BlockId>,
    /// What is being written.
    transit: Option<Transit>,
}

struct Kept {
    label: Label,
    /// Its slot, or its block.
    place: u32,
    saved: bool,
}

/// A copy of which some parts have been handed over.
pub(super) struct Transit {
    label: Label,
    bytes: Vec<u8>,
    next: usize,
}

impl Parts {
    pub(super) fn new(kind: Kind, executor: &dyn Executor) -> Parts {
        Parts::of_size(kind, kind.bytes(executor))
    }

    fn of_size(kind: Kind, bytes: usize) -> Parts {
        let (kept, queue) = (BTreeMap::new(), VecDeque::new());
        Parts { kind, bytes, kept, queue, transit: None }
    }

    /// The model has any.
    pub(super) fn any(&self) -> bool {
        self.bytes > 0
    }

    /// Labels of the parts of what goes with the block `label`, in records of `record_bytes` bytes.
    pub(super) fn labels(&self, label: &Label, record_bytes: usize) -> impl Iterator<Item = Label> {
        let n_parts = self.bytes.div_ceil(record_bytes);
        (0..n_parts).map(move |part| self.label_of(label, part))
    }

    /// The label of one part of what goes with the block `label`.
    fn label_of(&self, label: &Label, part: usize) -> Label {
        let key = label.key.part(self.kind.name(), part, self.bytes);
        Label { key, parent: label.key, tokens: label.tokens }
    }

    /// All parts of what goes with the block `label` are likely to be on disk.
    pub(super) fn is_saved(&self, label: &Label, store: &Store) -> bool {
        self.any() && self.labels(label, store.block_bytes()).all(|part| store.contains(&part.key))
    }

    /// What is in `place` goes with `block`, whose label this is, and is kept.
    pub(super) fn kept(&mut self, block: BlockId, place: u32, label: Label, store: &Store) {
        let saved = self.is_saved(&label, store);
        self.kept.insert(block, Kept { label, place, saved });
        if !saved {
            self.queue.push_back(block);
        }
    }

    /// What goes with `block` is dropped, and its place about to be overwritten. Gives a copy, if there
    /// is none on disk or on its way there.
    pub(super) fn dropped(
        &mut self,
        block: BlockId,
        executor: &mut dyn Executor,
    ) -> Result<Option<Transit>, DeviceError> {
        match self.kept.remove(&block) {
            Some(Kept { label, place, saved: false }) => {
                self.copy(label, place, executor).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Takes on what was dropped, to be written next, unless something else is being written. Says
    /// whether it did.
    pub(super) fn take_on(&mut self, dropped: Transit) -> bool {
        let is_idle = self.transit.is_none();
        if is_idle {
            self.transit = Some(dropped);
        }
        is_idle
    }

    fn copy(
        &self,
        label: Label,
        place: u32,
        executor: &mut dyn Executor,
    ) -> Result<Transit, DeviceError> {
        let mut bytes = vec![0; self.bytes];
        self.kind.read(place, &mut bytes, executor)?;
        Ok(Transit { label, bytes, next: 0 })
    }

    /// The next part to be written, if there is one, `record_bytes` long.
    pub(super) fn next(
        &mut self,
        record_bytes: usize,
        executor: &mut dyn Executor,
    ) -> Result<Option<(Label, Vec<u8>)>, DeviceError> {
        while self.transit.is_none() {
            let Some(block) = self.queue.pop_front() else { return Ok(None) };
            // It may have been saved or dropped meanwhile.
            if let Some(&Kept { label, place, saved: false }) = self.kept.get(&block) {
                self.transit = Some(self.copy(label, place, executor)?);
                self.kept.entry(block).and_modify(|kept| kept.saved = true);
            }
        }
        Ok(self.transit.as_ref().map(|transit| self.part(transit, record_bytes)))
    }

    /// The part of a copy that is next, filled up to the size of a record.
    fn part(&self, transit: &Transit, record_bytes: usize) -> (Label, Vec<u8>) {
        let start = transit.next * record_bytes;
        let end = (start + record_bytes).min(transit.bytes.len());
        let mut bytes = transit.bytes[start..end].to_vec();
        bytes.resize(record_bytes, 0);
        (self.label_of(&transit.label, transit.next), bytes)
    }

    /// What [`Parts::next`] gave has been handed over.
    pub(super) fn advance(&mut self, record_bytes: usize) {
        if let Some(transit) = &mut self.transit {
            transit.next += 1;
            if transit.next * record_bytes >= transit.bytes.len() {
                self.transit = None;
            }
        }
    }

    /// Hands all parts of a copy to the writer, as long as it takes them. Says whether it took all.
    pub(super) fn offer(&self, mut copy: Transit, store: &Store) -> bool {
        let record_bytes = store.block_bytes();
        while copy.next * record_bytes < copy.bytes.len() {
            let (label, bytes) = self.part(&copy, record_bytes);
            if store.offer(label, bytes).is_err() {
                return false;
            }
            copy.next += 1;
        }
        true
    }

    /// Forgets what is in memory.
    pub(super) fn forget(&mut self) {
        *self = Parts::of_size(self.kind, self.bytes);
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
