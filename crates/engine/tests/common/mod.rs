//! A model that is nothing but its cache, and helpers to run requests against it.
//!
//! Not a stub: its logits are a hash of every token the row can see through its block table. So
//! one row in a wrong block, at a wrong position or of another sequence changes the answer. If it has
//! recurrent states, these hash the same tokens, and the logits hash them.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test file uses its own part")]

mod timed;

use std::path::Path;
use std::time::Duration;

use backend::{BLOCK, Batch, BlockId, DeviceError, KvGroup, SlotId, Span, TokenId};
use hearth_engine::{
    Answer, Constraint, Engine, Event, Executor, ExecutorShape, Failure, Limits, Request, Sampling,
    StopReason, TokenLogprob, Usage, answer,
};
use models::tiny;
use weights::Checkpoint;

pub use timed::Timed;

pub const VOCAB: usize = 24;

/// Bytes of a cell that was copied out.
const CELL: usize = 4 + size_of::<usize>();

/// Tokens and positions, where a real model keeps keys and values.
pub struct Toy {
    pub shape: ExecutorShape,
    pub max_positions: usize,
    /// Bytes that a block has beside its cells.
    padding: usize,
    /// Of layers that see everything; of no use where all see only a window.
    cells: Vec<(TokenId, usize)>,
    layers: Layers,
    /// Of layers that see only a window.
    panes: Vec<(TokenId, usize)>,
    /// By slot: a hash of all tokens so far, and how many there were.
    states: Vec<(u64, usize)>,
    /// What goes wrong, and in which pass.
    accident: Option<(usize, Accident)>,
    n_passes: usize,
}

/// What the layers of a toy see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Everything.
    Full,
    /// Some see everything, some so many positions.
    Mixed(usize),
    /// So many positions.
    Windowed(usize),
}

impl Layers {
    pub fn window(self) -> Option<usize> {
        match self {
            Layers::Full => None,
            Layers::Mixed(window) | Layers::Windowed(window) => Some(window),
        }
    }
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
            shape: ExecutorShape {
                n_blocks,
                n_windowed: 0,
                n_slots: 0,
                max_rows: 512,
                max_want: 64,
            },
            max_positions: 1 << 20,
            padding: 0,
            cells: vec![never; n_blocks * BLOCK],
            layers: Layers::Full,
            panes: Vec::new(),
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

    /// It has layers that see only a window, with so many blocks of their own.
    pub fn windowed(n_blocks: usize, layers: Layers, n_windowed: usize) -> Toy {
        Toy::new(n_blocks).with_window(layers, n_windowed)
    }

    pub fn with_window(self, layers: Layers, n_windowed: usize) -> Toy {
        let shape = ExecutorShape { n_windowed, ..self.shape };
        let panes = vec![(TokenId::MAX, usize::MAX); n_windowed * BLOCK];
        Toy { shape, layers, panes, ..self }
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

/// Where a position is, by a table of blocks.
fn cell(blocks: &[u32], at: usize) -> usize {
    blocks[at / BLOCK] as usize * BLOCK + at % BLOCK
}

fn hash_cell(hash: u64, at: usize, (token, stored_at): (TokenId, usize)) -> u64 {
    let wrong = u64::from(stored_at != at) << 40;
    mix(hash ^ u64::from(token) ^ wrong)
}

impl Toy {
    fn cells_of(&mut self, group: KvGroup) -> &mut [(TokenId, usize)] {
        match group {
            KvGroup::Full => &mut self.cells,
            KvGroup::Windowed => &mut self.panes,
        }
    }

    /// What the layers with a window add to the hash of the row at `at`.
    fn hash_window(&self, span: &Span, at: usize, hash: u64) -> u64 {
        let Some(window) = self.layers.window() else { return hash };
        ((at + 1).saturating_sub(window)..=at)
            .fold(hash, |hash, at| hash_cell(hash, at, self.panes[cell(&span.windowed, at)]))
    }

    /// Stores the tokens of a pass. Every row must find what its layers with a window see.
    fn store(&mut self, batch: &Batch) {
        for span in &batch.spans {
            for (at, row) in (span.start..).zip(span.rows.clone()) {
                let entry = (batch.tokens[row], at);
                if !matches!(self.layers, Layers::Windowed(_)) {
                    self.cells[cell(&span.blocks, at)] = entry;
                }
                let Some(window) = self.layers.window() else { continue };
                self.panes[cell(&span.windowed, at)] = entry;
                let seen = (at + 1).saturating_sub(window)..=at;
                assert!(seen.clone().all(|at| self.panes[cell(&span.windowed, at)].1 == at));
            }
        }
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
        let mut next_row = 0;
        for span in &batch.spans {
            assert_eq!(span.rows.start, next_row, "spans cover every row once, in order");
            next_row = span.rows.end;
        }
        self.store(batch);
        let states = self.run_states(batch);
        assert_eq!(next_row, batch.n_rows());
        assert!(batch.want.is_sorted());
        logits.clear();
        for &row in &batch.want {
            let row = row as usize;
            let span = batch.spans.iter().find(|span| span.rows.contains(&row)).unwrap();
            let n_visible = span.start + (row - span.rows.start) + 1;
            let first = states.get(row).copied().unwrap_or(1);
            let visible = match self.layers {
                Layers::Full | Layers::Mixed(_) => 0..n_visible,
                Layers::Windowed(_) => 0..0,
            };
            let hash = visible
                .fold(first, |hash, at| hash_cell(hash, at, self.cells[cell(&span.blocks, at)]));
            let hash = self.hash_window(span, n_visible - 1, hash);
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
        let block = CELL * BLOCK + self.padding;
        if self.states.is_empty() { 0 } else { block + 8 + size_of::<usize>() }
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

    fn window(&self) -> Option<usize> {
        self.layers.window()
    }

    /// What layers with a window keep takes parts of several records.
    fn block_bytes(&self, group: KvGroup) -> usize {
        match (group, self.layers) {
            (KvGroup::Full, Layers::Windowed(_)) | (KvGroup::Windowed, Layers::Full) => 0,
            (KvGroup::Full, _) => CELL * BLOCK + self.padding,
            (KvGroup::Windowed, _) => 2 * (CELL * BLOCK + self.padding) + 7,
        }
    }

    fn read_block(
        &mut self,
        (group, block): (KvGroup, BlockId),
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        assert_eq!(out.len(), self.block_bytes(group));
        let cells = &self.cells_of(group)[block as usize * BLOCK..][..BLOCK];
        // From the end, so that it is in the last part too.
        for (out, (token, at)) in out.rchunks_exact_mut(CELL).zip(cells) {
            out[..4].copy_from_slice(&token.to_le_bytes());
            out[4..].copy_from_slice(&at.to_le_bytes());
        }
        Ok(())
    }

    fn write_block(
        &mut self,
        (group, block): (KvGroup, BlockId),
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        assert_eq!(bytes.len(), self.block_bytes(group));
        let cells = &mut self.cells_of(group)[block as usize * BLOCK..][..BLOCK];
        for ((token, at), bytes) in cells.iter_mut().zip(bytes.rchunks_exact(CELL)) {
            *token = TokenId::from_le_bytes(bytes[..4].try_into().unwrap());
            *at = usize::from_le_bytes(bytes[4..].try_into().unwrap());
        }
        Ok(())
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
    assert_eq!((states.held, engine.stats().panes.held), (0, 0));
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
