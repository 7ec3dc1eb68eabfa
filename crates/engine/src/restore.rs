//! Between memory and disk: what running requests get back, and what is kept.
//!
//! A block that comes back takes the place of rows that would have been computed: it is reserved,
//! written and committed like them, so nothing else knows of disks.

use backend::{BLOCK, DeviceError};

use crate::Failure;
use crate::cache::{DiskError, DiskOptions, Origin, Spill};
use crate::engine::{Engine, Running};

/// Bytes that may come back in one step while answers are flowing: some milliseconds.
const BYTES_BESIDE_OTHERS: usize = 8 << 20;
/// Bytes that may come back in one step otherwise, which is how long a newcomer may have to wait.
const BYTES_ALONE: usize = 64 << 20;

impl Engine {
    /// Keeps cached blocks on disk from now on, and finds those that are there. To be called before
    /// anything else. A model with recurrent states shares nothing, so nothing of it is kept.
    pub fn keep_on_disk(&mut self, options: &DiskOptions) -> Result<(), DiskError> {
        if !self.book.shares() {
            return Ok(());
        }
        let block_bytes = self.executor.block_bytes();
        self.spill = Some(Spill::open(options, self.bounds.blocks, block_bytes)?);
        Ok(())
    }

    /// Looks for more of a sequence on disk than it has.
    pub(crate) fn look_on_disk(&self, run: &mut Running) {
        if let Some(spill) = &self.spill {
            run.seq.on_disk = spill.find(&run.seq.tokens, self.book.len(run.key));
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
        let bytes = match self.running.iter().any(flows) {
            true => BYTES_BESIDE_OTHERS,
            false => BYTES_ALONE,
        };
        let mut n_blocks = (bytes / spill.block_bytes()).max(1);
        for idx in 0..self.running.len() {
            self.adopt_restored(idx);
            while !self.running[idx].seq.on_disk.is_empty() {
                if n_blocks == 0 {
                    return Ok(());
                }
                n_blocks -= 1;
                self.restore_block(idx)?;
            }
        }
        Ok(())
    }

    /// Another sequence that begins alike may have been first.
    fn adopt_restored(&mut self, idx: usize) {
        let Running { key, seq } = &mut self.running[idx];
        if !seq.on_disk.is_empty() {
            let gained = self.book.adopt(*key, &seq.tokens) / BLOCK;
            seq.on_disk.drain(..gained.min(seq.on_disk.len()));
        }
    }

    /// Brings back the next block of a sequence. What is not there after all, or finds no room, is
    /// computed, and so is everything behind it.
    fn restore_block(&mut self, idx: usize) -> Result<(), DeviceError> {
        let Running { key, seq } = &mut self.running[idx];
        let (Some(spill), Some(label)) = (&mut self.spill, seq.on_disk.pop_front()) else {
            return Ok(());
        };
        let at = self.book.len(*key) / BLOCK;
        if self.book.reserve(*key, BLOCK) < BLOCK {
            seq.on_disk.clear();
            return Ok(());
        }
        // What had to make room is copied before it is overwritten.
        spill.follow(&self.book.take_changes(), Origin::Answer, &mut *self.executor)?;
        let Some(bytes) = spill.read(&label) else {
            seq.on_disk.clear();
            self.book.commit(*key, 0, &seq.tokens);
            return Ok(());
        };
        self.executor.write_block(self.book.blocks(*key)[at], bytes)?;
        self.book.commit(*key, BLOCK, &seq.tokens);
        self.totals.disk_tokens += BLOCK as u64;
        self.totals.prefix_hits += BLOCK as u64;
        if seq.times.started.is_none() {
            seq.disk_tokens += BLOCK;
        }
        spill.follow(&self.book.take_changes(), Origin::Prompt, &mut *self.executor)
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
        let Some(spill) = &mut self.spill else { return false };
        match spill.save_one(&mut *self.executor) {
            Ok(more) => more,
            Err(error) => {
                self.abandon(&Failure::Device(error.to_string()));
                false
            }
        }
    }

    /// Waits until everything that is cached is on disk.
    pub fn flush(&mut self) {
        while self.save_one() {}
        if let Some(spill) = &self.spill {
            spill.flush();
        }
    }
}
