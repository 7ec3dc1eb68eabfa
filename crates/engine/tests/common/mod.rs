//! A model that is nothing but its cache, and helpers to run requests against it.
//!
//! Not a stub: its logits are a hash of every token the row can see through its block table. So
//! one row in a wrong block, at a wrong position or of another sequence changes the answer. If it has
//! recurrent states, these hash the same tokens, and the logits hash them.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backend::{BLOCK, Batch, BlockId, DeviceError, SlotId, Span, TokenId};
use hearth_engine::{
    Answer, Constraint, Engine, Event, Executor, ExecutorShape, Failure, Limits, Request, Sampling,
    StopReason, TokenLogprob, Usage, answer,
};
use models::tiny;
use weights::Checkpoint;

pub const VOCAB: usize = 24;

/// Bytes of a cell that was copied out.
const CELL: usize = 4 + size_of::<usize>();

/// Tokens and positions, where a real model keeps keys and values.
pub struct Toy {
    pub shape: ExecutorShape,
    pub max_positions: usize,
    /// Bytes that a block has beside its cells.
    padding: usize,
    cells: Vec<(TokenId, usize)>,
    /// By slot: a hash of all tokens so far, and how many there were.
    states: Vec<(u64, usize)>,
    /// What goes wrong, and in which pass.
    accident: Option<(usize, Accident)>,
    n_passes: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Accident {
    DeviceError,
    NotANumber,
    OutOfBounds,
}

impl Toy {
    pub fn new(n_blocks: usize) -> Toy {
        let never = (TokenId::MAX, usize::MAX);
        Toy {
            shape: ExecutorShape { n_blocks, n_slots: 0, max_rows: 512, max_want: 64 },
            max_positions: 1 << 20,
            padding: 0,
            cells: vec![never; n_blocks * BLOCK],
            states: Vec::new(),
            accident: None,
            n_passes: 0,
        }
    }

    /// It has recurrent states.
    pub fn hybrid(n_blocks: usize, n_slots: usize) -> Toy {
        let toy = Toy::new(n_blocks);
        let shape = ExecutorShape { n_slots, ..toy.shape };
        Toy { shape, states: vec![(0, usize::MAX); n_slots], ..toy }
    }

    /// Its blocks take as many bytes as those of a large model.
    pub fn with_padding(n_blocks: usize, padding: usize) -> Toy {
        Toy { padding, ..Toy::new(n_blocks) }
    }

    /// Goes wrong in one pass, the first being number 1.
    pub fn with_accident(n_blocks: usize, pass: usize, accident: Accident) -> Toy {
        Toy { accident: Some((pass, accident)), ..Toy::new(n_blocks) }
    }
}

impl Toy {
    /// The states after all rows of a pass, if there are any. Keeps what the pass asks for.
    fn run_states(&mut self, batch: &Batch) -> Vec<u64> {
        let mut after = Vec::new();
        if self.states.is_empty() {
            return after;
        }
        let read: Vec<SlotId> = batch.spans.iter().filter_map(|span| span.state_in).collect();
        let mut written = Vec::new();
        for span in &batch.spans {
            assert_eq!(span.state_in.is_none(), span.start == 0);
            let (mut hash, n) = span.state_in.map_or((7, 0), |slot| self.states[slot as usize]);
            assert_eq!(n, span.start, "the state is that of where the span starts");
            for &token in &batch.tokens[span.rows.clone()] {
                hash = mix(hash ^ u64::from(token));
                after.push(hash);
            }
            assert!(span.states_out.is_sorted_by_key(|(row, _)| row));
            assert_eq!(span.states_out.last().map(|(row, _)| row + 1), Some(span.rows.len()));
            for &(row, slot) in &span.states_out {
                assert!(!read.contains(&slot), "what is read is not written");
                written.push((slot, (after[span.rows.start + row], span.start + row + 1)));
            }
        }
        for (i, &(slot, state)) in written.iter().enumerate() {
            assert!(written[..i].iter().all(|(other, _)| *other != slot), "written once");
            self.states[slot as usize] = state;
        }
        after
    }
}

impl Executor for Toy {
    fn vocab(&self) -> usize {
        VOCAB
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn shape(&self) -> ExecutorShape {
        self.shape
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        self.n_passes += 1;
        assert!(batch.n_rows() <= self.shape.max_rows && batch.want.len() <= self.shape.max_want);
        let cell = |blocks: &[u32], at: usize| blocks[at / BLOCK] as usize * BLOCK + at % BLOCK;
        let mut next_row = 0;
        for span in &batch.spans {
            assert_eq!(span.rows.start, next_row, "spans cover every row once, in order");
            next_row = span.rows.end;
            for (at, row) in (span.start..).zip(span.rows.clone()) {
                self.cells[cell(&span.blocks, at)] = (batch.tokens[row], at);
            }
        }
        let states = self.run_states(batch);
        assert_eq!(next_row, batch.n_rows());
        assert!(batch.want.is_sorted());
        logits.clear();
        for &row in &batch.want {
            let row = row as usize;
            let span = batch.spans.iter().find(|span| span.rows.contains(&row)).unwrap();
            let n_visible = span.start + (row - span.rows.start) + 1;
            let visible = (0..n_visible).map(|at| (at, self.cells[cell(&span.blocks, at)]));
            let first = states.get(row).copied().unwrap_or(1);
            let hash = visible.fold(first, |hash, (at, (token, stored_at))| {
                let wrong = u64::from(stored_at != at) << 40;
                mix(hash ^ u64::from(token) ^ wrong)
            });
            logits.extend((0..VOCAB as u64).map(|id| (mix(hash ^ id) >> 50) as f32 / 2048.0 - 4.0));
        }
        match self.accident.filter(|(pass, _)| *pass == self.n_passes) {
            None => Ok(()),
            Some((_, Accident::DeviceError)) => Err(DeviceError("unplugged".into())),
            Some((_, Accident::NotANumber)) => {
                logits[..VOCAB].fill(f32::NAN);
                Ok(())
            }
            Some((_, Accident::OutOfBounds)) => {
                logits.truncate(1);
                Ok(())
            }
        }
    }

    /// More than a block, so that it takes parts of two.
    fn state_bytes(&self) -> usize {
        if self.states.is_empty() { 0 } else { self.block_bytes() + 8 + size_of::<usize>() }
    }

    fn read_state(&mut self, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        let (hash, n) = self.states[slot as usize];
        let (rest, last) = out.split_last_chunk_mut::<{ size_of::<usize>() }>().unwrap();
        rest[..8].copy_from_slice(&hash.to_le_bytes());
        *last = n.to_le_bytes();
        Ok(())
    }

    fn write_state(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), DeviceError> {
        assert_eq!(bytes.len(), self.state_bytes());
        let hash = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        self.states[slot as usize] = (hash, usize::from_le_bytes(*bytes.last_chunk().unwrap()));
        Ok(())
    }

    fn block_bytes(&self) -> usize {
        CELL * BLOCK + self.padding
    }

    fn read_block(&mut self, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
        let cells = &self.cells[block as usize * BLOCK..][..BLOCK];
        for (out, (token, at)) in out.chunks_exact_mut(CELL).zip(cells) {
            out[..4].copy_from_slice(&token.to_le_bytes());
            out[4..].copy_from_slice(&at.to_le_bytes());
        }
        Ok(())
    }

    fn write_block(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), DeviceError> {
        assert_eq!(bytes.len(), self.block_bytes());
        let cells = &mut self.cells[block as usize * BLOCK..][..BLOCK];
        for ((token, at), bytes) in cells.iter_mut().zip(bytes.chunks_exact(CELL)) {
            *token = TokenId::from_le_bytes(bytes[..4].try_into().unwrap());
            *at = usize::from_le_bytes(bytes[4..].try_into().unwrap());
        }
        Ok(())
    }
}

/// A toy whose passes take time on a clock of their own: a millisecond and so many microseconds
/// per row, and per thousand positions that rows see; times a factor for each pass.
pub struct Timed {
    pub toy: Toy,
    /// Microseconds.
    pub now: Arc<AtomicU64>,
    pub per_row: u64,
    pub per_1000_seen: u64,
    /// By the number of the pass, from 0.
    pub factor: Box<dyn FnMut(usize) -> f64 + Send>,
    /// Microseconds for a block that is copied in or out.
    pub per_copy: u64,
    pub n_passes: usize,
}

impl Timed {
    /// An engine of 16 ms per 256 rows at the start of a prompt, and its clock.
    pub fn engine(n_blocks: usize, limits: Limits) -> (Engine, Arc<AtomicU64>) {
        Timed::of(Toy::new(n_blocks), limits)
    }

    /// The same of any toy.
    pub fn of(toy: Toy, limits: Limits) -> (Engine, Arc<AtomicU64>) {
        let timed = Timed { toy, ..Timed::new(0) };
        let now = Arc::clone(&timed.now);
        (timed.serve(limits), now)
    }

    /// 16 ms per 256 rows at the start of a prompt.
    pub fn new(n_blocks: usize) -> Timed {
        Timed {
            toy: Toy::new(n_blocks),
            now: Arc::new(AtomicU64::new(0)),
            per_row: 60,
            per_1000_seen: 10,
            factor: Box::new(|_| 1.0),
            per_copy: 0,
            n_passes: 0,
        }
    }

    /// An engine on its clock.
    pub fn serve(self, limits: Limits) -> Engine {
        let read = Arc::clone(&self.now);
        let clock = Box::new(move || Duration::from_micros(read.load(Ordering::Relaxed)));
        Engine::new(Box::new(self), limits, clock)
    }
}

impl Executor for Timed {
    fn vocab(&self) -> usize {
        self.toy.vocab()
    }

    fn max_positions(&self) -> usize {
        self.toy.max_positions()
    }

    fn shape(&self) -> ExecutorShape {
        self.toy.shape()
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        let n_seen = |span: &Span| (span.start + span.rows.len() / 2) * span.rows.len();
        let seen = batch.spans.iter().map(n_seen).sum::<usize>() as u64;
        let rows = batch.n_rows() as u64;
        let took = 1000 + rows * self.per_row + seen * self.per_1000_seen / 1000;
        let took = took as f64 * (self.factor)(self.n_passes);
        self.n_passes += 1;
        self.now.fetch_add(took as u64, Ordering::Relaxed);
        self.toy.step(batch, logits)
    }

    fn state_bytes(&self) -> usize {
        self.toy.state_bytes()
    }

    fn read_state(&mut self, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        self.toy.read_state(slot, out)
    }

    fn write_state(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), DeviceError> {
        self.toy.write_state(slot, bytes)
    }

    fn block_bytes(&self) -> usize {
        self.toy.block_bytes()
    }

    fn read_block(&mut self, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
        self.now.fetch_add(self.per_copy, Ordering::Relaxed);
        self.toy.read_block(block, out)
    }

    fn write_block(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), DeviceError> {
        self.now.fetch_add(self.per_copy, Ordering::Relaxed);
        self.toy.write_block(block, bytes)
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    let x = (x ^ (x >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    x ^ (x >> 33)
}

/// A request without its sink.
#[derive(Clone, Debug)]
pub struct Ask {
    pub prompt: Vec<TokenId>,
    pub max_tokens: usize,
    pub sampling: Sampling,
    pub stop_tokens: Vec<TokenId>,
    pub logprobs: Option<usize>,
    pub small_steps: Option<SmallSteps>,
    pub priority: i32,
    pub timeout: Option<Duration>,
    pub pin: usize,
    pub marks: Vec<usize>,
}

impl Ask {
    pub fn greedy(prompt: &[TokenId], max_tokens: usize) -> Ask {
        Ask {
            prompt: prompt.to_vec(),
            max_tokens,
            sampling: Sampling::default(),
            stop_tokens: vec![],
            logprobs: None,
            small_steps: None,
            priority: 0,
            timeout: None,
            pin: 0,
            marks: vec![],
        }
    }

    pub fn request(&self) -> (Request, Answer) {
        let (sink, answer) = answer();
        let constraint = self.small_steps.map(|steps| Box::new(steps) as Box<dyn Constraint>);
        let request = Request {
            prompt: self.prompt.clone(),
            max_tokens: self.max_tokens,
            sampling: self.sampling.clone(),
            stop_tokens: self.stop_tokens.clone(),
            logprobs: self.logprobs,
            constraint,
            priority: self.priority,
            timeout: self.timeout,
            pin: self.pin,
            marks: self.marks.clone(),
            sink: Box::new(sink),
        };
        (request, answer)
    }
}

/// A grammar: every token is at most 5 above the last one, counting round. After some tokens only one
/// may come, which it says if it may.
#[derive(Clone, Copy, Debug)]
pub struct SmallSteps {
    pub last: TokenId,
    pub says: Says,
}

/// Whether a grammar says which token is the only one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Says {
    Forced,
    Nothing,
}

impl SmallSteps {
    pub fn new(last: TokenId) -> SmallSteps {
        SmallSteps { last, says: Says::Forced }
    }

    /// After every third number come two that are fixed.
    fn only(&self) -> Option<TokenId> {
        (self.last % 6 < 2).then_some(self.last + 1)
    }
}

impl Constraint for SmallSteps {
    fn mask(&mut self, logits: &mut [f32]) {
        let n = logits.len() as TokenId;
        let only = self.only();
        for (id, logit) in (0..n).zip(logits) {
            if (id + n - self.last) % n > 5 || only.is_some_and(|only| only != id) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    fn push(&mut self, token: TokenId) {
        self.last = token;
    }

    fn forced(&mut self) -> Option<TokenId> {
        self.only().filter(|_| self.says == Says::Forced)
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Done(StopReason, Usage),
    Failed(Failure),
    Nothing,
}

/// All events of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<Option<TokenLogprob>>,
    pub cached: Option<usize>,
    pub progress: Vec<usize>,
    pub end: End,
}

impl Outcome {
    /// What must not depend on how the work was done.
    pub fn said(&self) -> (&[TokenId], &[Option<TokenLogprob>], Option<StopReason>) {
        let reason = match self.end {
            End::Done(reason, _) => Some(reason),
            _ => None,
        };
        (&self.tokens, &self.logprobs, reason)
    }
}

/// Reads an answer to its end, and checks that its events come in order.
pub fn outcome(answer: Answer) -> Outcome {
    let mut out = Outcome {
        tokens: vec![],
        logprobs: vec![],
        cached: None,
        progress: vec![],
        end: End::Nothing,
    };
    for event in answer {
        assert_eq!(out.end, End::Nothing, "nothing follows the end");
        match event {
            Event::Started { cached_tokens, .. } => {
                assert_eq!(out.cached.replace(cached_tokens), None, "starts once");
            }
            Event::Progress { done, total } => {
                assert!(out.cached.is_some() && out.tokens.is_empty() && done <= total);
                out.progress.push(done);
            }
            Event::Token { id, logprob } => {
                out.tokens.push(id);
                out.logprobs.push(logprob);
            }
            Event::Done { reason, usage } => out.end = End::Done(reason, usage),
            Event::Failed(failure) => out.end = End::Failed(failure),
        }
    }
    out
}

pub fn limits(rows: usize, seqs: usize, context: usize) -> Limits {
    Limits { rows, seqs, queue: 1000, context, stall_target: None }
}

pub fn engine(toy: Toy, limits: Limits) -> Engine {
    Engine::new(Box::new(toy), limits, Box::new(|| Duration::ZERO))
}

/// Submits at time zero.
pub fn submit(engine: &mut Engine, ask: &Ask) -> Answer {
    submit_at(engine, ask, Duration::ZERO)
}

pub fn submit_at(engine: &mut Engine, ask: &Ask, now: Duration) -> Answer {
    let (request, answer) = ask.request();
    engine.bounds().check(&request).unwrap();
    engine.submit(request, now);
    answer
}

/// Steps until idle, checking the books after every step. Returns the number of steps.
pub fn run(engine: &mut Engine) -> usize {
    for n_steps in 0..100_000 {
        if engine.is_idle() {
            assert_books_balance(engine);
            return n_steps;
        }
        engine.step();
        assert_eq!(engine.faults(), None);
    }
    panic!("the engine never gets done");
}

/// Nothing is held when nothing runs.
pub fn assert_books_balance(engine: &Engine) {
    let (blocks, states) = (engine.stats().blocks, engine.stats().states);
    assert_eq!(engine.faults(), None);
    assert_eq!(states.held, 0);
    assert_eq!(blocks.free + blocks.cached, engine.bounds().blocks);
    assert_eq!(blocks.held, 0);
}

/// The answer on an engine that nobody else uses and that has seen nothing.
pub fn alone(ask: &Ask, n_blocks: usize, context: usize) -> Outcome {
    alone_on(Toy::new(n_blocks), ask, context)
}

/// The same of any toy.
pub fn alone_on(toy: Toy, ask: &Ask, context: usize) -> Outcome {
    let mut engine = engine(toy, limits(512, 1, context));
    let answer = submit(&mut engine, ask);
    run(&mut engine);
    outcome(answer)
}

/// A packed model of the models crate's own goldens, or else a tiny one in bf16.
pub fn checkpoint(name: &str) -> Checkpoint {
    let mlx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/mlx");
    match tiny::config(name) {
        Some(config) => tiny::checkpoint(config, 5).unwrap(),
        None => Checkpoint::open(&mlx.join(name)).unwrap(),
    }
}
