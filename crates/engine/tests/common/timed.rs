//! A toy on a clock of its own, so that what depends on time is tested without any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backend::{Batch, BlockId, DeviceError, KvGroup, SlotId, Span};
use hearth_engine::{Engine, Executor, ExecutorShape, Limits};

use super::Toy;

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

    fn window(&self) -> Option<usize> {
        self.toy.window()
    }

    fn block_bytes(&self, group: KvGroup) -> usize {
        self.toy.block_bytes(group)
    }

    fn read_block(&mut self, block: (KvGroup, BlockId), out: &mut [u8]) -> Result<(), DeviceError> {
        self.now.fetch_add(self.per_copy, Ordering::Relaxed);
        self.toy.read_block(block, out)
    }

    fn write_block(&mut self, block: (KvGroup, BlockId), bytes: &[u8]) -> Result<(), DeviceError> {
        self.now.fetch_add(self.per_copy, Ordering::Relaxed);
        self.toy.write_block(block, bytes)
    }
}
