//! The executor that runs a real model on a device.
//!
//! The only generic code of this crate, and nothing of it decides anything.

use backend::ops::PeerOps;
use backend::{Backend, Batch, BlockId, DeviceError, KvGroup, SlotId};
use models::{Decoder, ModelSpec, PartDecoder, Room, Scratch, ShareDecoder, Store};

use crate::device::Device;
use crate::{Executor, ExecutorShape};

/// A model, the device it runs on, maybe with others, and all the memory its passes use.
pub struct ModelExecutor<B: Backend> {
    device: Device<B>,
    model: Box<dyn Passes<B>>,
    shape: ExecutorShape,
    store: Store<B>,
    scratch: Scratch<B>,
    staged: B::Staged,
}

/// A model, or the part of it that one of several machines has.
trait Passes<B: Backend>: Send {
    fn spec(&self) -> &ModelSpec;

    /// Plans a pass, and says what is to be read of it, how many numbers.
    fn pass<'s>(
        &self,
        b: &B,
        batch: (&Batch, &B::Staged),
        store: &mut Store<B>,
        s: &'s mut Scratch<B>,
    ) -> (&'s B::Buf, usize);
}

impl<B: Backend> Passes<B> for Decoder<B> {
    fn spec(&self) -> &ModelSpec {
        self.spec()
    }

    fn pass<'s>(
        &self,
        b: &B,
        (batch, staged): (&Batch, &B::Staged),
        store: &mut Store<B>,
        s: &'s mut Scratch<B>,
    ) -> (&'s B::Buf, usize) {
        self.forward(b, staged, store, s);
        (s.logits(), batch.want.len() * self.spec().vocab)
    }
}

impl<B: Backend + PeerOps> Passes<B> for PartDecoder<B> {
    fn spec(&self) -> &ModelSpec {
        self.spec()
    }

    fn pass<'s>(
        &self,
        b: &B,
        batch: (&Batch, &B::Staged),
        store: &mut Store<B>,
        s: &'s mut Scratch<B>,
    ) -> (&'s B::Buf, usize) {
        self.forward(b, batch, store, s)
    }
}

impl<B: Backend> Passes<B> for ShareDecoder<B> {
    fn spec(&self) -> &ModelSpec {
        self.spec()
    }

    fn pass<'s>(
        &self,
        b: &B,
        batch: (&Batch, &B::Staged),
        store: &mut Store<B>,
        s: &'s mut Scratch<B>,
    ) -> (&'s B::Buf, usize) {
        self.forward(b, batch, store, s)
    }
}

impl<B: Backend> ModelExecutor<B> {
    /// Allocates the cache and the buffers of `shape` for `decoder`, which was loaded on `device`.
    pub fn new(
        device: impl Into<Device<B>>,
        decoder: Decoder<B>,
        shape: ExecutorShape,
    ) -> ModelExecutor<B> {
        ModelExecutor::of(device.into(), Box::new(decoder), shape)
    }

    /// The same of the part that one of several machines has. Only the first one's logits are any; what
    /// is copied of blocks and states is that of its own layers.
    pub fn of_part(
        device: impl Into<Device<B>>,
        decoder: PartDecoder<B>,
        shape: ExecutorShape,
    ) -> ModelExecutor<B>
    where
        B: PeerOps,
    {
        ModelExecutor::of(device.into(), Box::new(decoder), shape)
    }

    /// The same of the share that one of several machines has of every matrix.
    pub fn of_share(
        device: impl Into<Device<B>>,
        decoder: ShareDecoder<B>,
        shape: ExecutorShape,
    ) -> ModelExecutor<B> {
        ModelExecutor::of(device.into(), Box::new(decoder), shape)
    }

    fn of(device: Device<B>, model: Box<dyn Passes<B>>, shape: ExecutorShape) -> ModelExecutor<B> {
        let spec = model.spec();
        let backend = device.backend();
        let ExecutorShape { n_blocks, n_windowed, n_slots, .. } = shape;
        let room = Room { n_blocks, n_windowed, n_slots };
        ModelExecutor {
            store: Store::new(spec, room, backend),
            scratch: Scratch::new(spec, shape.max_rows, shape.max_want, backend),
            staged: backend.staged(shape.max_rows),
            device,
            model,
            shape,
        }
    }

    /// The model's recipe.
    pub fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }
}

impl<B: Backend> Executor for ModelExecutor<B> {
    fn vocab(&self) -> usize {
        self.spec().vocab
    }

    fn max_positions(&self) -> usize {
        self.spec().max_positions
    }

    fn shape(&self) -> ExecutorShape {
        self.shape
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        let ModelExecutor { device, model, store, scratch, staged, .. } = self;
        let backend = device.backend();
        let _turn = device.turn();
        backend.stage(batch, staged);
        let (buf, n) = model.pass(backend, (batch, staged), store, scratch);
        backend.read(buf, n, logits)
    }

    fn window(&self) -> Option<usize> {
        self.spec().window()
    }

    fn state_bytes(&self) -> usize {
        self.store.state_bytes(self.device.backend())
    }

    fn read_state(&mut self, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        self.store.read_state(self.device.backend(), slot, out)
    }

    fn write_state(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), DeviceError> {
        self.store.write_state(self.device.backend(), slot, bytes);
        Ok(())
    }

    fn block_bytes(&self, group: KvGroup) -> usize {
        self.store.block_bytes(self.device.backend(), group)
    }

    fn read_block(&mut self, block: (KvGroup, BlockId), out: &mut [u8]) -> Result<(), DeviceError> {
        self.store.read_block(self.device.backend(), block, out)
    }

    fn write_block(&mut self, block: (KvGroup, BlockId), bytes: &[u8]) -> Result<(), DeviceError> {
        self.store.write_block(self.device.backend(), block, bytes);
        Ok(())
    }
}
