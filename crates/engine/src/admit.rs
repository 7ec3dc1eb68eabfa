//! The way in and the early ways out: admission, departures, time limits.
//!
//! Not the end of an answer: that is the pass's business.

use std::time::Duration;

use crate::cache::{Charge, Full, SeqKey};
use crate::engine::{Engine, Running};
use crate::seq::Seq;
use crate::{Event, Failure};

impl Engine {
    /// Lets go of everybody whose receiver has left.
    pub(crate) fn drop_cancelled(&mut self) {
        let mut n = self.line.drop_cancelled();
        for gone in self.running.extract_if(.., |run| run.seq.request.sink.is_closed()) {
            self.book.close(gone.key);
            n += 1;
        }
        self.totals.cancelled += n as u64;
    }

    /// Ends everybody whose time is over.
    pub(crate) fn drop_late(&mut self, now: Duration) {
        while let Some(seq) = self.line.take_late(now) {
            self.time_out(seq);
        }
        while let Some(at) = self.running.iter().position(|run| run.seq.is_late(now)) {
            let Running { key, seq } = self.running.remove(at);
            self.book.close(key);
            self.time_out(seq);
        }
    }

    fn time_out(&mut self, mut seq: Seq) {
        self.totals.failed += 1;
        match seq.times.started {
            None => self.totals.queue_timeouts += 1,
            Some(_) => self.totals.run_timeouts += 1,
        }
        let limit = seq.request.timeout.unwrap_or_default();
        seq.send(Event::Failed(Failure::TimedOut { limit }));
    }

    /// Lets requests in, in the order of the line: a large one at the head is not passed by small
    /// ones, so it comes in as soon as enough others have finished, or those of lower priority have
    /// made way. Where the last pass was short of room nobody new comes in beside those who run; if it
    /// was their last one, there is nobody any more.
    pub(crate) fn admit(&mut self) {
        while (!self.short_of_blocks || self.running.is_empty())
            && let Some(key) = self.open_head()
        {
            let Some(mut seq) = self.line.pop() else { break };
            if self.running.len() >= self.limits.seqs {
                self.park_youngest_for(seq.place);
            }
            seq.own = self.book.len(key);
            self.totals.resumed += u64::from(seq.times.started.is_some());
            self.totals.prefix_queries += seq.tokens.len() as u64;
            self.totals.prefix_hits += self.book.len(key) as u64;
            let at = self.running.partition_point(|run| run.seq.place < seq.place);
            let mut run = Running { key, seq };
            self.look_around(&mut run);
            self.running.insert(at, run);
        }
    }

    /// Opens the head of the line, if there is room or those who are less urgent can make some. If
    /// all places are taken, one of them has to go then.
    fn open_head(&mut self) -> Option<SeqKey> {
        let place = self.line.head()?.place;
        if self.running.len() >= self.limits.seqs && self.n_less_urgent(place) == 0 {
            return None;
        }
        match self.try_head()? {
            Ok(key) => Some(key),
            Err(Full { missing }) => {
                let made = self.make_way_for(place, missing);
                if made { self.try_head()?.ok() } else { None }
            }
        }
    }

    fn try_head(&mut self) -> Option<Result<SeqKey, Full>> {
        let next = self.line.head()?;
        let left = next.request.max_tokens.saturating_sub(next.n_generated());
        let charge = Charge::new(next.tokens.len(), left, self.bounds.longest());
        Some(self.book.open(&next.tokens, charge, next.request.pin))
    }
}
