//! What a pass starts from: how many rows prompts may have, and what sequences can take over from
//! each other.
//!
//! Who gets them then is `plan.rs`'s business.

use backend::{BLOCK, BlockId, DeviceError, KvGroup};

use crate::Totals;
use crate::cache::Fork;
use crate::engine::{Engine, Running};
use crate::executor::copies_blocks;
use crate::plan::{Budget, Shares, share_rows};
use crate::seq::Seq;
use crate::tempo::Work;

/// A prompt waits for another one to compute so many tokens that both have, or more. For less it
/// is not worth to lose a pass.
const MIN_SHARED: usize = 2 * BLOCK;

impl Engine {
    /// Gives every prompt what others have computed of it since it came in.
    pub(crate) fn take_over(&mut self) {
        for Running { key, seq } in &mut self.running {
            if !seq.on_disk.is_empty() || seq.tokens.len() - self.book.len(*key) <= 1 {
                continue;
            }
            let gained = self.book.adopt(*key, &seq.tokens);
            count_gain(seq, gained, &mut self.totals);
        }
    }

    /// Lets a sequence begin its next block with a copy of one that begins alike, if there is one.
    pub(crate) fn fork(&mut self, idx: usize) -> Result<(), DeviceError> {
        if !copies_blocks(&*self.executor) {
            return Ok(());
        }
        let Running { key, seq } = &mut self.running[idx];
        let before = self.book.len(*key);
        let Some(fork) = self.book.fork(*key, &seq.tokens) else { return Ok(()) };
        let Fork { from, to, panes } = fork;
        count_gain(seq, self.book.len(*key) - before, &mut self.totals);
        // What made room is kept first.
        self.follow_changes()?;
        self.copy_block(KvGroup::Full, from, to)?;
        match panes {
            Some((from, to)) => self.copy_block(KvGroup::Windowed, from, to),
            None => Ok(()),
        }
    }

    fn copy_block(
        &mut self,
        group: KvGroup,
        from: BlockId,
        to: BlockId,
    ) -> Result<(), DeviceError> {
        self.copied.resize(self.executor.block_bytes(group), 0);
        self.executor.read_block((group, from), &mut self.copied)?;
        self.executor.write_block((group, to), &self.copied)
    }

    /// How many rows each running sequence should get. The pass begins here, as far as its time is
    /// foreseen.
    pub(crate) fn shares(&mut self) -> Shares {
        self.planned = (self.clock)();
        let behind = |run: &Running| match run.seq.on_disk.is_empty() {
            true => run.seq.tokens.len() - self.book.len(run.key),
            // Waits for blocks from disk, and gets no rows.
            false => 0,
        };
        let behind: Vec<usize> = self.running.iter().map(behind).collect();
        let budget = Budget { rows: self.limits.rows, prompts: self.prompt_rows(&behind) };
        share_rows(&behind, budget, |a, b| self.leaves(&self.running[a], &self.running[b]))
    }

    /// Rows that prompts may have, so that answers that are flowing get their next token in time.
    fn prompt_rows(&self, behind: &[usize]) -> usize {
        let Some(target) = self.limits.stall_target else { return usize::MAX };
        let (mut base, mut depth, mut n_flowing) = (Work::default(), 0, 0);
        for (run, n) in self.running.iter().zip(behind) {
            let len = self.book.len(run.key);
            match n {
                0 => {}
                1 => base.add(len, 1),
                _ => depth = depth.max(len),
            }
            n_flowing += usize::from(*n == 1 && run.seq.n_generated() > 0);
        }
        if n_flowing == 0 {
            return usize::MAX;
        }
        // They wait since their latest tokens, whatever was done meanwhile.
        let left = target.saturating_sub(self.planned.saturating_sub(self.kept));
        self.tempo.rows_within(left, base, depth, self.limits.rows)
    }

    /// How many of the next rows of `b` are rows that `a` would take over. Once `a` has begun to
    /// wait, it waits to the end of what they share.
    fn leaves(&self, a: &Running, b: &Running) -> usize {
        // Without a state to take over there is nothing to wait for.
        if !self.book.can_keep() {
            return 0;
        }
        let common = match !copies_blocks(&*self.executor) || self.book.has_states() {
            true => common_start(a, b) / BLOCK * BLOCK,
            false => common_start(a, b),
        };
        if common < a.seq.own + MIN_SHARED || common <= self.book.len(a.key) {
            return 0;
        }
        common.saturating_sub(self.book.len(b.key))
    }

    /// Another sequence is computing the next block of the one at `idx` already.
    pub(crate) fn is_in_progress(&self, idx: usize) -> bool {
        let own = &self.running[idx];
        let done = self.book.len(own.key);
        let is_ahead = |other: &Running| {
            let at = self.book.len(other.key);
            other.key != own.key
                && other.seq.times.started.is_some()
                && (done..other.seq.n_prompt).contains(&at)
                && common_start(own, other) >= done + BLOCK
        };
        self.running.iter().any(is_ahead)
    }
}

/// Tokens at the start of `a`, leaving one to compute, that `b` has too.
pub(crate) fn common_start(a: &Running, b: &Running) -> usize {
    let (a, b) = (&a.seq.tokens, &b.seq.tokens);
    a[..a.len() - 1].iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Notes that a sequence has `gained` tokens more without computing them.
fn count_gain(seq: &mut Seq, gained: usize, totals: &mut Totals) {
    totals.prefix_hits += gained as u64;
    if seq.times.started.is_some() && seq.n_generated() == 0 {
        seq.cached_tokens += gained;
        totals.cached_tokens += gained as u64;
    }
}
