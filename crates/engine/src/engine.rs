//! The loop: admit, plan, execute, keep.
//!
//! Not a thread: whoever owns an [`Engine`] calls [`Engine::step`]. There is no prefill phase and
//! no decode phase. A sequence is behind its own tokens, by a prompt or by the token it just chose,
//! and every pass lets it catch up as far as its rows go.

use std::collections::VecDeque;
use std::time::Duration;

use backend::{Batch, Span};

use crate::cache::{CacheBook, Charge};
use crate::plan::share_rows;
use crate::sampler::Sampler;
use crate::seq::Seq;
use crate::{Bounds, Event, Executor, Request, Stats, StopReason, Totals};

/// What the engine asks for the time, once or twice per step. Any origin will do.
pub type Clock = Box<dyn Fn() -> Duration + Send>;

/// How much the engine takes on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows per pass. Bounds how long a pass takes, and so how long a decoding answer can stall.
    pub rows: usize,
    /// Sequences that run at once.
    pub seqs: usize,
    /// Requests that may wait beyond those.
    pub queue: usize,
    /// Tokens of prompt and answer together.
    pub context: usize,
}

/// Serves many requests with one executor.
pub struct Engine {
    executor: Box<dyn Executor>,
    limits: Limits,
    bounds: Bounds,
    clock: Clock,
    book: CacheBook,
    sampler: Sampler,
    waiting: VecDeque<Waiting>,
    /// In order of admission.
    running: Vec<Seq>,
    /// A running sequence found no room in the last pass, so nobody new comes in.
    short_of_blocks: bool,
    batch: Batch,
    logits: Vec<f32>,
    totals: Totals,
}

struct Waiting {
    request: Request,
    submitted: Duration,
}

/// One sequence's share of a pass.
struct Turn {
    /// Index into `running`.
    seq: usize,
    rows: usize,
    /// Which row of the logits is the one after its last known token, if the pass gets there.
    logits: Option<usize>,
}

/// How a sequence left a pass.
enum End {
    Done(StopReason),
    Failed(String),
}

impl Engine {
    /// An idle engine. `limits` are cut to what `executor` can do, and `limits.seqs` to
    /// `limits.rows`, so that every running sequence gets a row in every pass.
    pub fn new(executor: Box<dyn Executor>, limits: Limits, clock: Clock) -> Engine {
        let shape = executor.shape();
        let rows = limits.rows.min(shape.max_rows).max(1);
        let seqs = limits.seqs.min(rows).min(shape.max_want).max(1);
        let context = limits.context.min(executor.max_positions());
        let limits = Limits { rows, seqs, context, ..limits };
        Engine {
            bounds: Bounds { vocab: executor.vocab(), context, blocks: shape.n_blocks },
            book: CacheBook::new(shape.n_blocks),
            executor,
            limits,
            clock,
            sampler: Sampler::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            short_of_blocks: false,
            batch: Batch::default(),
            logits: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What a request must fit into.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Queues a request that fits [`Engine::bounds`]. How many may wait is the caller's business.
    pub fn submit(&mut self, request: Request, submitted: Duration) {
        debug_assert_eq!(self.bounds.check(&request), Ok(()));
        self.waiting.push_back(Waiting { request, submitted });
    }

    /// Nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Requests that wait or run.
    pub fn in_flight(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// A picture of now.
    pub fn stats(&self) -> Stats {
        Stats {
            running: self.running.len(),
            waiting: self.waiting.len(),
            blocks: self.book.counts(),
            totals: self.totals,
        }
    }

    /// What is wrong with the cache books, counted anew. `None` is as it should be.
    pub fn faults(&self) -> Option<String> {
        self.book.faults()
    }

    /// One pass. Does nothing when idle.
    pub fn step(&mut self) {
        self.drop_cancelled();
        self.admit();
        if self.running.is_empty() {
            return;
        }
        let turns = self.plan();
        // The book promises it. If it were broken, waiting would be for ever.
        assert!(!turns.is_empty(), "no running sequence can get a cache block");
        self.totals.steps += 1;
        self.totals.rows += self.batch.n_rows() as u64;
        match self.executor.step(&self.batch, &mut self.logits) {
            Ok(()) => self.keep(&turns),
            Err(error) => self.abandon(&error.to_string()),
        }
    }

    /// Fails every running request with `message` and starts over with an empty cache: after a
    /// pass that broke off nobody knows what its blocks hold. Waiting requests stay.
    pub fn abandon(&mut self, message: &str) {
        self.book = CacheBook::new(self.bounds.blocks);
        self.short_of_blocks = false;
        // Taken out before it is told: should a sink panic, the next call goes on with the others.
        while let Some(mut seq) = self.running.pop() {
            self.totals.failed += 1;
            seq.send(Event::Failed(message.to_owned()));
        }
    }

    /// To be called when idle: proves the books. Should they not balance, which would be a bug of
    /// ours, it says so in the totals and starts over with an empty cache.
    pub fn settle(&mut self) {
        let faults = self.book.faults();
        debug_assert_eq!(faults, None, "the cache books do not balance");
        if faults.is_some() {
            self.totals.book_faults += 1;
            self.book = CacheBook::new(self.bounds.blocks);
        }
    }

    fn drop_cancelled(&mut self) {
        let before = self.in_flight();
        self.waiting.retain(|waiting| !waiting.request.sink.is_closed());
        for seq in self.running.extract_if(.., |seq| seq.request.sink.is_closed()) {
            self.book.close(seq.key);
        }
        self.totals.cancelled += (before - self.in_flight()) as u64;
    }

    /// Lets requests in, in order of arrival: a large one at the head is not passed by small ones,
    /// so it comes in as soon as enough others have finished.
    fn admit(&mut self) {
        while self.running.len() < self.limits.seqs
            && !self.short_of_blocks
            && let Some(next) = self.waiting.front()
        {
            let prompt = &next.request.prompt;
            let longest = self.bounds.longest();
            let charge = Charge::new(prompt.len(), next.request.max_tokens, longest);
            let Ok(key) = self.book.open(prompt, charge) else { break };
            let Some(Waiting { request, submitted }) = self.waiting.pop_front() else { break };
            let mut seq = Seq::new(key, request, submitted);
            seq.cached_tokens = self.book.len(key);
            self.running.push(seq);
        }
    }

    /// Fills `batch` with every running sequence's share of rows, as far as there are blocks.
    fn plan(&mut self) -> Vec<Turn> {
        let batch = &mut self.batch;
        batch.tokens.clear();
        batch.spans.clear();
        batch.want.clear();
        self.short_of_blocks = false;
        let behind = |seq: &Seq| seq.tokens.len() - self.book.len(seq.key);
        let behind: Vec<usize> = self.running.iter().map(behind).collect();
        let shares = share_rows(&behind, self.limits.rows);
        let mut turns = Vec::new();
        for (idx, (seq, rows)) in self.running.iter_mut().zip(shares).enumerate() {
            if self.book.reserve(seq.key, rows).is_err() {
                self.short_of_blocks = true;
                continue;
            }
            if seq.times.started.is_none() {
                seq.times.started = Some((self.clock)());
                seq.send(Event::Started { cached_tokens: seq.cached_tokens });
                self.totals.prompt_tokens += seq.n_prompt as u64;
                self.totals.cached_tokens += seq.cached_tokens as u64;
            }
            let start = self.book.len(seq.key);
            let first_row = batch.n_rows();
            batch.tokens.extend(&seq.tokens[start..start + rows]);
            batch.spans.push(Span {
                rows: first_row..batch.n_rows(),
                start,
                blocks: self.book.blocks(seq.key).to_vec(),
            });
            let caught_up = rows == behind[idx] && seq.request.max_tokens > 0;
            let logits = caught_up.then_some(batch.want.len());
            if caught_up {
                batch.want.push(batch.n_rows() as u32 - 1);
            }
            turns.push(Turn { seq: idx, rows, logits });
        }
        turns
    }

    /// Commits the rows of a pass, chooses a token where a sequence has caught up, and lets go of
    /// the sequences that ended.
    fn keep(&mut self, turns: &[Turn]) {
        let now = (self.clock)();
        let mut ends: Vec<(usize, End)> = Vec::new();
        for turn in turns {
            let seq = &mut self.running[turn.seq];
            self.book.commit(seq.key, turn.rows, &seq.tokens);
            let done = self.book.len(seq.key);
            if seq.n_generated() == 0 {
                seq.send(Event::Progress { done, total: seq.n_prompt });
            }
            if done < seq.tokens.len() {
                continue;
            }
            let vocab = self.bounds.vocab;
            let end = match turn.logits {
                Some(row) => {
                    let logits = &self.logits[row * vocab..][..vocab];
                    seq.advance(logits, self.bounds.longest(), &mut self.sampler)
                }
                None => Ok(seq.limit(self.bounds.longest())),
            };
            self.totals.generated_tokens += u64::from(turn.logits.is_some() && end.is_ok());
            seq.times.answering.get_or_insert(now);
            match end {
                Ok(None) => {}
                Ok(Some(reason)) => ends.push((turn.seq, End::Done(reason))),
                Err(error) => ends.push((turn.seq, End::Failed(error.to_string()))),
            }
        }
        // From the back, so that the indices before stay right.
        for (idx, end) in ends.into_iter().rev() {
            let seq = self.running.remove(idx);
            self.finish(seq, end);
        }
    }

    fn finish(&mut self, mut seq: Seq, end: End) {
        self.book.close(seq.key);
        match end {
            End::Done(reason) => {
                self.totals.done += 1;
                let usage = seq.usage((self.clock)());
                seq.send(Event::Done { reason, usage });
            }
            End::Failed(message) => {
                self.totals.failed += 1;
                seq.send(Event::Failed(message));
            }
        }
    }
}
