//! Between memory and disk: what running requests get back, and what is kept.
//!
//! A block that comes back takes the place of rows that would have been computed: it is reserved,
//! written and committed like them, so nothing else knows of disks. A sequence that needs a recurrent
//! state to go on gets its blocks first; if the state then does not come, it goes back to where it
//! was, and the blocks stay cached.

use backend::{BLOCK, DeviceError};

use crate::cache::{DiskError, DiskOptions, Origin, Piece, Spill, What};
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
        seq.known = self.book.known(*key, &seq.tokens);
        if let Some(spill) = &self.spill {
            let found = spill.find(&seq.tokens, self.book.len(*key), seq.known);
            seq.known = found.known;
            // Without a slot for the state at their end, blocks would come back in vain.
            if self.book.can_keep() {
                seq.on_disk = found.pieces;
            }
        }
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
        let mut n_blocks = (bytes / spill.block_bytes()).max(1);
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
        if seq.on_disk.is_empty() {
            return;
        }
        let gained = self.book.adopt(*key, &seq.tokens) / BLOCK;
        let is_block = |piece: &&Piece| piece.what == What::Block;
        let n_blocks = seq.on_disk.iter().take_while(is_block).count();
        seq.on_disk.drain(..gained.min(n_blocks));
        if self.book.has_states() && gained > 0 && gained >= n_blocks {
            // It can go on from where it is now.
            seq.on_disk.clear();
            seq.restored = Vec::new();
        }
    }

    /// Brings back the next piece of a sequence. What is not there after all, or finds no room, is
    /// computed, and so is everything behind it.
    fn restore_piece(&mut self, idx: usize) -> Result<(), DeviceError> {
        let Running { seq, .. } = &mut self.running[idx];
        let Some(piece) = seq.on_disk.pop_front() else { return Ok(()) };
        let came = match piece.what {
            What::Block => self.restore_block(idx, piece)?,
            What::Part | What::LastPart => self.restore_part(idx, piece)?,
        };
        if !came {
            let Running { key, seq } = &mut self.running[idx];
            seq.on_disk.clear();
            seq.restored = Vec::new();
            self.book.rewind(*key);
        }
        Ok(())
    }

    /// Says whether there is one part more of a state.
    fn restore_part(&mut self, idx: usize, piece: Piece) -> Result<bool, DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let Some(spill) = &mut self.spill else { return Ok(false) };
        let Some(bytes) = spill.read(&piece.label) else { return Ok(false) };
        seq.restored.extend_from_slice(bytes);
        if piece.what == What::Part {
            return Ok(true);
        }
        let Some(slot) = self.book.lease_restored(*key) else { return Ok(false) };
        spill.follow(&self.book.take_changes(), Origin::Answer, &mut *self.executor)?;
        let mut bytes = std::mem::take(&mut seq.restored);
        // The last part is filled up to the size of a block.
        bytes.truncate(self.executor.state_bytes());
        self.executor.write_state(slot, &bytes)?;
        count_restored(seq, self.book.beyond_state(*key), &mut self.totals);
        self.book.commit(*key, 0, &seq.tokens);
        spill.follow(&self.book.take_changes(), Origin::Prompt, &mut *self.executor)?;
        Ok(true)
    }

    /// Says whether a sequence has one block more.
    fn restore_block(&mut self, idx: usize, piece: Piece) -> Result<bool, DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let Some(spill) = &mut self.spill else { return Ok(false) };
        let len = self.book.len(*key);
        let at = len / BLOCK;
        self.book.follow(*key, &seq.tokens, (at + 1) * BLOCK);
        if self.book.len(*key) > len {
            return Ok(true);
        }
        if self.book.reserve(*key, BLOCK) < BLOCK {
            return Ok(false);
        }
        // What had to make room is copied before it is overwritten.
        spill.follow(&self.book.take_changes(), Origin::Answer, &mut *self.executor)?;
        let Some(bytes) = spill.read(&piece.label) else {
            self.book.commit(*key, 0, &seq.tokens);
            return Ok(false);
        };
        self.executor.write_block(self.book.blocks(*key)[at], bytes)?;
        self.book.commit(*key, BLOCK, &seq.tokens);
        if !self.book.has_states() {
            count_restored(seq, BLOCK, &mut self.totals);
        }
        spill.follow(&self.book.take_changes(), Origin::Prompt, &mut *self.executor)?;
        Ok(true)
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
