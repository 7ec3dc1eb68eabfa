//! One pass: who gets rows, and what becomes of them.
//!
//! How many rows anybody gets is `plan.rs`'s business.

use std::time::Duration;

use backend::{BLOCK, BlockId, DeviceError, Span};

use crate::cache::Origin;
use crate::engine::{Engine, Running};
use crate::seq::Seq;
use crate::tempo::Work;
use crate::{Event, Failure, Miss, StopReason};

/// One sequence's share of a pass.
pub(crate) struct Turn {
    /// Index into `running`.
    seq: usize,
    rows: usize,
    /// Which row of the logits is the one after its last known token, if the pass gets there.
    logits: Option<usize>,
}

/// How a sequence left a pass.
enum End {
    Done(StopReason),
    Failed(Failure),
}

impl Engine {
    /// Fills `batch` with every running sequence's share of rows, as far as there are blocks.
    pub(crate) fn plan(&mut self, now: Duration) -> Result<Vec<Turn>, DeviceError> {
        self.batch.tokens.clear();
        self.batch.spans.clear();
        self.batch.want.clear();
        self.work = Work::default();
        self.short_of_blocks = false;
        self.take_over();
        let shares = self.shares();
        self.totals.prefix_waits += shares.n_waiting as u64;
        let mut turns = Vec::new();
        for (idx, rows) in shares.rows.into_iter().enumerate() {
            // Whoever comes late in the order may have been parked for one before.
            if rows == 0 || idx >= self.running.len() {
                continue;
            }
            self.fork(idx)?;
            let Running { key, seq } = &self.running[idx];
            let behind = seq.tokens.len() - self.book.len(*key);
            let rows = self.make_room(idx, rows.min(behind));
            if rows > 0 {
                self.start(idx, now);
                turns.push(self.add_span(idx, rows));
            }
        }
        Ok(turns)
    }

    /// Notes and tells that a sequence gets its first rows.
    fn start(&mut self, idx: usize, now: Duration) {
        if self.running[idx].seq.times.started.is_some() {
            return;
        }
        let in_progress = self.is_in_progress(idx);
        let Running { key, seq } = &mut self.running[idx];
        let done = self.book.len(*key);
        seq.times.started = Some(now);
        seq.cached_tokens = done;
        seq.miss = match in_progress {
            true => Some(Miss::InProgress { block: done / BLOCK }),
            false => self.book.miss(*key, &seq.tokens),
        };
        self.totals.prompt_tokens += seq.n_prompt as u64;
        self.totals.cached_tokens += seq.cached_tokens as u64;
        if let Some(miss) = seq.miss {
            self.totals.misses.count(miss);
        }
        let (cached_tokens, disk_tokens) = (seq.cached_tokens, seq.disk_tokens);
        seq.send(Event::Started { cached_tokens, disk_tokens, miss: seq.miss });
    }

    /// Puts the next `rows` rows of a sequence into the batch. There are blocks for them.
    fn add_span(&mut self, idx: usize, rows: usize) -> Turn {
        let stops = self.stops(idx, rows);
        self.book.mark(self.running[idx].key, &stops);
        let Running { key, seq } = &self.running[idx];
        let batch = &mut self.batch;
        let start = self.book.len(*key);
        let first_row = batch.n_rows();
        batch.tokens.extend(&seq.tokens[start..start + rows]);
        let blocks = self.book.blocks(*key).to_vec();
        // What nobody sees is nowhere.
        let windowed = self.book.panes(*key).map(|pane| pane.unwrap_or(BlockId::MAX)).collect();
        let rows_of_batch = first_row..batch.n_rows();
        let (state_in, states_out) = (None, Vec::new());
        let mut span = Span { rows: rows_of_batch, start, blocks, windowed, state_in, states_out };
        if let Some(lease) = self.book.lease_states(*key, rows, &stops) {
            (span.state_in, span.states_out) = (lease.state_in, lease.states_out);
        }
        batch.spans.push(span);
        self.work.add(start, rows);
        let of_prompt = seq.n_prompt.saturating_sub(start).min(rows);
        self.totals.prompt_rows += of_prompt as u64;
        self.totals.answer_rows += (rows - of_prompt) as u64;
        let caught_up = start + rows == seq.tokens.len() && seq.request.max_tokens > 0;
        let logits = caught_up.then_some(batch.want.len());
        if caught_up {
            batch.want.push(batch.n_rows() as u32 - 1);
        }
        Turn { seq: idx, rows, logits }
    }

    /// Commits the rows of a pass, chooses a token where a sequence has caught up, and lets go of
    /// the sequences that ended.
    pub(crate) fn keep(&mut self, turns: &[Turn]) -> Result<(), DeviceError> {
        let now = self.kept;
        let mut ends: Vec<(usize, End)> = Vec::new();
        for turn in turns {
            let Running { key, seq } = &mut self.running[turn.seq];
            let origin = match self.book.len(*key) < seq.n_prompt {
                true => Origin::Prompt,
                false => Origin::Answer,
            };
            self.book.commit(*key, turn.rows, &seq.tokens);
            if let Some(spill) = &mut self.spill {
                spill.follow(&self.book.take_changes(), origin, &mut *self.executor)?;
            }
            let done = self.book.len(*key);
            seq.own = done;
            seq.progress(done);
            if done < seq.tokens.len() {
                continue;
            }
            let (vocab, longest) = (self.bounds.vocab, self.bounds.longest());
            let n_known = seq.tokens.len();
            let end = match turn.logits {
                Some(row) => {
                    let logits = &self.logits[row * vocab..][..vocab];
                    seq.advance(logits, longest, &mut self.sampler)
                }
                None => Ok(seq.limit(longest)),
            };
            self.totals.generated_tokens += (seq.tokens.len() - n_known) as u64;
            seq.times.answering.get_or_insert(now);
            match end {
                Ok(None) => {}
                Ok(Some(reason)) => ends.push((turn.seq, End::Done(reason))),
                Err(error) => {
                    ends.push((turn.seq, End::Failed(Failure::Output(error.to_string()))))
                }
            }
        }
        // From the back, so that the indices before stay right.
        for (idx, end) in ends.into_iter().rev() {
            let Running { key, seq } = self.running.remove(idx);
            self.book.close(key);
            self.finish(seq, end);
        }
        Ok(())
    }

    fn finish(&mut self, mut seq: Seq, end: End) {
        match end {
            End::Done(reason) => {
                let now = (self.clock)();
                self.totals.done += 1;
                self.pace.add_answer(now.saturating_sub(seq.times.started.unwrap_or(now)));
                let usage = seq.usage(now);
                seq.send(Event::Done { reason, usage });
            }
            End::Failed(failure) => {
                self.totals.failed += 1;
                seq.send(Event::Failed(failure));
            }
        }
    }
}
