//! The loop: admit, plan, execute, keep.
//!
//! Not a thread: whoever owns an [`Engine`] calls [`Engine::step`]. There is no prefill phase and
//! no decode phase. A sequence is behind its own tokens, by a prompt or by the token it just chose,
//! and every pass lets it catch up as far as its rows go.

use std::time::Duration;

use backend::{Batch, DeviceError};

use crate::cache::{CacheBook, DiskCleared, PaneRoom, Room, SeqKey, Spill, Watch, least_panes};
use crate::line::Line;
use crate::sampler::Sampler;
use crate::seq::Seq;
use crate::tempo::{Tempo, Work};
use crate::{
    Bounds, Event, Executor, ExecutorShape, Failure, Pace, Passes, Request, Stats, Totals,
};

/// What the engine asks for the time, a few times per step. Any origin will do.
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
    /// How long an answer that is flowing may wait for its next token. Chunks of prompts are cut to
    /// it, by what passes were measured to cost, though never so short that a prompt would stand
    /// still.
    /// `None`: as long as `rows` take.
    pub stall_target: Option<Duration>,
}

/// Serves many requests with one executor.
pub struct Engine {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) limits: Limits,
    pub(crate) bounds: Bounds,
    pub(crate) clock: Clock,
    pub(crate) book: CacheBook,
    /// The way to disk, if cached blocks are kept there.
    pub(crate) spill: Option<Spill>,
    pub(crate) sampler: Sampler,
    pub(crate) line: Line,
    /// By place, like the line.
    pub(crate) running: Vec<Running>,
    /// A running sequence found no room in the last pass, so nobody new comes in.
    pub(crate) short_of_blocks: bool,
    pub(crate) batch: Batch,
    /// What `batch` is, to the model of what it takes.
    pub(crate) work: Work,
    pub(crate) tempo: Tempo,
    /// When the rows of the pass were shared out.
    pub(crate) planned: Duration,
    /// When the logits of the latest pass were there, just before its tokens went out.
    pub(crate) kept: Duration,
    pub(crate) logits: Vec<f32>,
    /// A block on its way from one place to another.
    pub(crate) copied: Vec<u8>,
    pub(crate) n_arrived: u64,
    pub(crate) pace: Pace,
    pub(crate) passes: Passes,
    pub(crate) totals: Totals,
}

/// What clearing the cache dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Blocks in memory.
    pub blocks: usize,
    /// On disk. `None`: nothing is kept there.
    pub disk: Option<DiskCleared>,
}

/// A sequence with its blocks.
pub(crate) struct Running {
    pub key: SeqKey,
    pub seq: Seq,
}

impl Engine {
    /// An idle engine. `limits` are cut to what `executor` can do, and `limits.seqs` to
    /// `limits.rows`, so that every answer that is flowing gets its row in every pass.
    pub fn new(executor: Box<dyn Executor>, limits: Limits, clock: Clock) -> Engine {
        let shape = executor.shape();
        let rows = limits.rows.min(shape.max_rows).max(1);
        let room = room(&*executor);
        let pairs = room.slots.map_or(usize::MAX, |slots| slots / 2);
        assert!(pairs > 0, "a sequence needs two recurrent states");
        let seqs = limits.seqs.min(rows).min(shape.max_want).min(pairs).max(1);
        let context = limits.context.min(executor.max_positions());
        let limits = Limits { rows, seqs, context, ..limits };
        Engine {
            bounds: Bounds { vocab: executor.vocab(), context, blocks: shape.n_blocks },
            book: CacheBook::new(room),
            spill: None,
            executor,
            limits,
            clock,
            sampler: Sampler::default(),
            line: Line::default(),
            running: Vec::new(),
            short_of_blocks: false,
            batch: Batch::default(),
            work: Work::default(),
            tempo: Tempo::default(),
            planned: Duration::ZERO,
            kept: Duration::ZERO,
            logits: Vec::new(),
            copied: Vec::new(),
            n_arrived: 0,
            pace: Pace::default(),
            passes: Passes::default(),
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
    /// `submitted` is when it came, by the engine's clock.
    pub fn submit(&mut self, request: Request, submitted: Duration) {
        debug_assert_eq!(self.bounds.check(&request), Ok(()));
        self.line.push(Seq::new(request, self.n_arrived, submitted));
        self.n_arrived += 1;
    }

    /// Nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.line.is_empty() && self.running.is_empty()
    }

    /// Requests that wait or run.
    pub fn in_flight(&self) -> usize {
        self.line.len() + self.running.len()
    }

    /// A picture of now.
    pub fn stats(&self) -> Stats {
        Stats {
            running: self.running.len(),
            waiting: self.line.len(),
            parked: self.line.iter().filter(|seq| seq.times.started.is_some()).count(),
            blocks: self.book.counts(),
            states: self.book.state_counts(),
            panes: self.book.pane_counts(),
            disk: self.spill.as_ref().map(Spill::stats),
            pace: self.pace,
            passes: self.passes,
            totals: self.totals,
        }
    }

    /// What is wrong with the cache books, counted anew. `None` is as it should be.
    pub fn faults(&self) -> Option<String> {
        self.book.faults()
    }

    /// Sees what is done on disk, from any thread.
    pub(crate) fn watch_disk(&self) -> Option<Watch> {
        self.spill.as_ref().map(Spill::watch)
    }

    /// One pass. Does nothing when idle.
    pub fn step(&mut self) {
        let begun = (self.clock)();
        self.drop_cancelled();
        self.drop_late(begun);
        self.admit();
        if self.running.is_empty() {
            return;
        }
        let n_passes = self.totals.steps;
        if let Err(error) = self.pass(begun) {
            self.abandon(&Failure::Device(error.to_string()));
        }
        let took = (self.clock)().saturating_sub(begun);
        self.pace.add_step(took);
        if self.totals.steps > n_passes {
            self.passes.micros.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            self.passes.rows.add(self.batch.n_rows() as u64);
        }
    }

    fn pass(&mut self, begun: Duration) -> Result<(), DeviceError> {
        self.restore()?;
        let turns = self.plan(begun)?;
        // Before the pass overwrites what was dropped for it.
        self.follow_changes()?;
        if turns.is_empty() && self.is_restoring() {
            return Ok(());
        }
        // The oldest gets a row, see `park.rs`. If that were broken, waiting would be for ever.
        assert!(!turns.is_empty(), "no running sequence can get a cache block");
        self.totals.steps += 1;
        self.totals.rows += self.batch.n_rows() as u64;
        self.executor.step(&self.batch, &mut self.logits)?;
        self.kept = (self.clock)();
        self.tempo.learn(self.work, self.kept.saturating_sub(self.planned));
        self.keep(&turns)?;
        self.save_some(self.batch.n_rows())
    }

    /// Fails every running request and starts over with an empty cache: after a pass that broke
    /// off nobody knows what its blocks hold. Waiting requests stay.
    pub fn abandon(&mut self, failure: &Failure) {
        self.forget_cache();
        self.short_of_blocks = false;
        // Taken out before it is told: should a sink panic, the next call goes on with the others.
        while let Some(mut run) = self.running.pop() {
            self.totals.failed += 1;
            run.seq.send(Event::Failed(failure.clone()));
        }
    }

    /// Fails every request, running or waiting, with [`Failure::ShuttingDown`].
    pub fn abort(&mut self) {
        while let Some(run) = self.running.pop() {
            self.book.close(run.key);
            self.line.push(run.seq);
        }
        while let Some(mut seq) = self.line.pop() {
            self.totals.failed += 1;
            seq.send(Event::Failed(Failure::ShuttingDown));
        }
    }

    /// Drops every cached block that no running request holds, and removes what this model has on
    /// disk.
    pub fn clear_cache(&mut self) -> Cleared {
        let blocks = self.book.clear();
        let dropped = self.book.take_changes();
        Cleared { blocks, disk: self.spill.as_mut().map(|spill| spill.clear(&dropped)) }
    }

    /// To be called when idle: proves the books. Should they not balance, which would be a bug of
    /// ours, it says so in the totals and starts over with an empty cache.
    pub fn settle(&mut self) {
        let faults = self.book.faults();
        debug_assert_eq!(faults, None, "the cache books do not balance");
        if faults.is_some() {
            self.totals.book_faults += 1;
            self.forget_cache();
        }
    }

    /// Starts over with an empty cache in memory. What is on disk stays.
    fn forget_cache(&mut self) {
        self.book = CacheBook::new(room(&*self.executor));
        if let Some(spill) = &mut self.spill {
            spill.forget();
        }
    }
}

/// What the cache books of an executor are about.
fn room(executor: &dyn Executor) -> Room {
    let ExecutorShape { n_blocks: blocks, n_slots, n_windowed: panes, .. } = executor.shape();
    let slots = (executor.state_bytes() > 0).then_some(n_slots);
    let panes = executor.window().map(|window| PaneRoom { panes, window });
    let enough = |room: PaneRoom| room.panes >= blocks.min(least_panes(room.window));
    assert!(panes.is_none_or(enough), "a sequence needs blocks for a whole window");
    Room { blocks, slots, panes }
}
