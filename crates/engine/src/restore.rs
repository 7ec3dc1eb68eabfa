//! Between memory and disk: what running requests get back, and what is kept.
//!
//! A block that comes back takes the place of rows that would have been computed: it is reserved,
//! written and committed like them, so nothing else knows of disks. A sequence that needs a recurrent
//! state to go on, or what layers with a window read, gets its blocks first; if the rest then does not
//! come, it goes back to where it was, and the blocks stay cached.

use backend::{BLOCK, DeviceError, KvGroup};

use crate::cache::{DiskError, DiskOptions, More, Origin, Piece, Spill, What};
use crate::engine::{Engine, Running};
use crate::seq::Seq;
use crate::{Failure, Totals};

/// Bytes that may come back in one step while answers are flowing: some milliseconds.
const BYTES_BESIDE_OTHERS: usize = 8 << 20;
/// Of the time until the next tokens of answers that are flowing, one part in so many may pass before
/// nothing more is brought back: the rest is for computing them.
const TIME_BESIDE_OTHERS: u32 = 4;
/// Bytes that may come back in one step otherwise, which is how long a newcomer may have to wait.
const BYTES_ALONE: usize = 64 << 20;

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// It is back.
    Back,
    /// It was in memory.
    Known,
    /// It is on disk no more, or damaged, and will not be found again.
    Gone,
    /// There is no room for it.
    NoRoom,
}

impl Engine {
    /// Keeps cached blocks on disk from now on, and finds those that are there, in the background;
    /// [`Engine::flush`] waits for that. To be called before anything else.
    pub fn keep_on_disk(&mut self, options: &DiskOptions) -> Result<(), DiskError> {
        self.spill = Some(Spill::open(options, &*self.executor)?);
        Ok(())
    }

    /// Looks for more of a sequence on disk than it has in memory, and notes how much is known.
    pub(crate) fn look_around(&self, run: &mut Running) {
        let Running { key, seq } = run;
        let memory = self.book.memory(*key, &seq.tokens);
        seq.known = memory.known;
        if let Some(spill) = &self.spill {
            let found = spill.find(&seq.tokens, self.book.len(*key), &memory);
            seq.known = found.known;
            // Without a slot for the state at their end, blocks would come back in vain.
            if self.book.can_keep() {
                seq.on_disk = found.pieces;
            }
        }
    }

    /// Looks around again, because something else is there by now.
    fn look_again(&mut self, idx: usize) {
        let mut run = self.running.remove(idx);
        run.seq.on_disk.clear();
        run.seq.restored = Vec::new();
        self.look_around(&mut run);
        self.running.insert(idx, run);
    }

    /// Somebody waits for blocks from disk.
    pub(crate) fn is_restoring(&self) -> bool {
        self.running.iter().any(|run| !run.seq.on_disk.is_empty())
    }

    /// Brings back blocks for those that wait for them, one sequence after the other. They get no
    /// rows before it is done.
    pub(crate) fn restore(&mut self) -> Result<(), DeviceError> {
        let Some(spill) = &self.spill else { return Ok(()) };
        let flows = |run: &Running| run.seq.on_disk.is_empty();
        let beside_others = self.running.iter().any(flows);
        let bytes = match beside_others {
            true => BYTES_BESIDE_OTHERS,
            false => BYTES_ALONE,
        };
        let mut n_blocks = (bytes / spill.record_bytes()).max(1);
        let target = self.limits.stall_target.filter(|_| beside_others);
        let end = target.map(|target| self.kept + target / TIME_BESIDE_OTHERS);
        for idx in 0..self.running.len() {
            self.adopt_restored(idx);
            while !self.running[idx].seq.on_disk.is_empty() {
                if n_blocks == 0 {
                    return Ok(());
                }
                n_blocks -= 1;
                self.restore_piece(idx)?;
                if end.is_some_and(|end| (self.clock)() >= end) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Another sequence that begins alike may have been first.
    fn adopt_restored(&mut self, idx: usize) {
        let Running { key, seq } = &mut self.running[idx];
        if !seq.on_disk.is_empty() && self.book.adopt(*key, &seq.tokens) > 0 {
            self.look_again(idx);
        }
    }

    /// Brings back the next piece of a sequence. If it is not there after all, the sequence goes back to
    /// where it can go on, and gets what there is else: from an older state or window, say. What finds no
    /// room is computed, and so is everything behind it.
    fn restore_piece(&mut self, idx: usize) -> Result<(), DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let key = *key;
        let Some(piece) = seq.on_disk.pop_front() else { return Ok(()) };
        let before = self.book.sound(key);
        let mut came = match piece.what {
            What::Block => self.restore_block(idx, piece)?,
            What::Pane(more) => self.restore_pane(idx, piece, more)?,
            What::State(more) => self.restore_state(idx, piece, more)?,
        };
        let Running { seq, .. } = &mut self.running[idx];
        if seq.on_disk.is_empty()
            && matches!(came, Came::Back | Came::Known)
            && !self.book.settle_restored(key)
        {
            came = Came::NoRoom;
        }
        match came {
            Came::Known => {}
            Came::Back => count_restored(seq, self.book.sound(key) - before, &mut self.totals),
            Came::Gone => {
                self.book.rewind(key);
                self.look_again(idx);
            }
            Came::NoRoom => {
                self.book.rewind(key);
                seq.on_disk.clear();
                seq.restored = Vec::new();
            }
        }
        Ok(())
    }

    /// The next part of a state.
    fn restore_state(&mut self, idx: usize, piece: Piece, more: More) -> Result<Came, DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let Some(spill) = &mut self.spill else { return Ok(Came::NoRoom) };
        let Some(bytes) = spill.read(&piece.label) else { return Ok(Came::Gone) };
        seq.restored.extend_from_slice(bytes);
        if more == More::Follows {
            return Ok(Came::Back);
        }
        let Some(slot) = self.book.lease_restored(*key) else { return Ok(Came::NoRoom) };
        spill.follow(&self.book.take_changes(), Origin::Answer, &mut *self.executor)?;
        let mut bytes = std::mem::take(&mut seq.restored);
        // The last part is filled up to the size of a record.
        bytes.truncate(self.executor.state_bytes());
        self.executor.write_state(slot, &bytes)?;
        self.book.commit(*key, 0, &seq.tokens);
        spill.follow(&self.book.take_changes(), Origin::Prompt, &mut *self.executor)?;
        Ok(Came::Back)
    }

    /// The next part of the pane of the last block.
    fn restore_pane(&mut self, idx: usize, piece: Piece, more: More) -> Result<Came, DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let Some(spill) = &mut self.spill else { return Ok(Came::NoRoom) };
        if self.book.hold_last_pane(*key) {
            // So is the rest of it.
            while seq.on_disk.pop_front_if(|next| matches!(next.what, What::Pane(_))).is_some() {}
            seq.restored = Vec::new();
            return Ok(Came::Back);
        }
        let Some(bytes) = spill.read(&piece.label) else { return Ok(Came::Gone) };
        seq.restored.extend_from_slice(bytes);
        if more == More::Follows {
            return Ok(Came::Back);
        }
        let Some(pane) = self.book.take_last_pane(*key) else { return Ok(Came::NoRoom) };
        spill.follow(&self.book.take_changes(), Origin::Answer, &mut *self.executor)?;
        let mut bytes = std::mem::take(&mut seq.restored);
        bytes.truncate(self.executor.block_bytes(KvGroup::Windowed));
        self.executor.write_block((KvGroup::Windowed, pane), &bytes)?;
        Ok(Came::Back)
    }

    /// One block more.
    fn restore_block(&mut self, idx: usize, piece: Piece) -> Result<Came, DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let Some(spill) = &mut self.spill else { return Ok(Came::NoRoom) };
        let len = self.book.len(*key);
        let at = len / BLOCK;
        self.book.follow(*key, &seq.tokens, (at + 1) * BLOCK);
        if self.book.len(*key) > len {
            return Ok(Came::Known);
        }
        if !len.is_multiple_of(BLOCK) || !self.book.reserve_restored(*key) {
            return Ok(Came::NoRoom);
        }
        // What had to make room is copied before it is overwritten.
        spill.follow(&self.book.take_changes(), Origin::Answer, &mut *self.executor)?;
        if spill.reads_blocks() {
            let Some(bytes) = spill.read(&piece.label) else {
                self.book.commit(*key, 0, &seq.tokens);
                return Ok(Came::Gone);
            };
            self.executor.write_block((KvGroup::Full, self.book.blocks(*key)[at]), bytes)?;
        }
        self.book.commit(*key, BLOCK, &seq.tokens);
        spill.follow(&self.book.take_changes(), Origin::Prompt, &mut *self.executor)?;
        Ok(Came::Back)
    }

    /// Lets the disk know what was dropped. Must come before anything is written to it.
    pub(crate) fn follow_changes(&mut self) -> Result<(), DeviceError> {
        let changes = self.book.take_changes();
        match &mut self.spill {
            Some(spill) => spill.follow(&changes, Origin::Answer, &mut *self.executor),
            None => Ok(()),
        }
    }

    /// Copies some blocks out after a pass of `rows` rows: as many as it can have filled and one
    /// more, so that this costs a small part of what the pass did and never falls behind for long.
    pub(crate) fn save_some(&mut self, rows: usize) -> Result<(), DeviceError> {
        match &mut self.spill {
            Some(spill) => spill.save(rows / BLOCK + 1, &mut *self.executor),
            None => Ok(()),
        }
    }

    /// To be called when idle: copies one more block out. Says whether there may be another.
    pub fn save_one(&mut self) -> bool {
        let saved = self.follow_changes().and_then(|()| match &mut self.spill {
            Some(spill) => spill.save_one(&mut *self.executor),
            None => Ok(false),
        });
        match saved {
            Ok(more) => more,
            Err(error) => {
                self.abandon(&Failure::Device(error.to_string()));
                false
            }
        }
    }

    /// Waits until everything that is cached is on disk, and everything that is there was found.
    pub fn flush(&mut self) {
        while self.save_one() {}
        if let Some(spill) = &self.spill {
            spill.flush();
        }
    }
}

/// Notes that a sequence has got `n` tokens more from disk.
fn count_restored(seq: &mut Seq, n: usize, totals: &mut Totals) {
    totals.disk_tokens += n as u64;
    totals.prefix_hits += n as u64;
    if seq.times.started.is_none() {
        seq.disk_tokens += n;
    }
}
