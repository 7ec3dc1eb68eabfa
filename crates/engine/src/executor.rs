//! The line below which code is generic over the device, and above which it is not.
//!
//! Knows nothing of requests, sampling or the cache books.

use backend::{Batch, BlockId, DeviceError, KvGroup, SlotId};

/// Runs batches. The engine holds a `Box<dyn Executor>` and never learns what is inside.
pub trait Executor: Send {
    /// Tokens of the vocabulary: the length of a row of logits.
    fn vocab(&self) -> usize;
    /// Positions the model was made for, at most.
    fn max_positions(&self) -> usize;
    /// How much fits.
    fn shape(&self) -> ExecutorShape;
    /// Runs one pass and replaces `logits` by those of `batch.want`, row after row. An error means
    /// that nothing of the pass counts.
    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError>;

    /// Positions that layers which see only a window read, the most that any of them does. `None` says
    /// that there are no such layers, and then nobody looks at [`Span::windowed`](backend::Span).
    fn window(&self) -> Option<usize> {
        None
    }

    /// Bytes of one recurrent state, as [`Executor::read_state`] gives them. 0 says that the model has
    /// none.
    fn state_bytes(&self) -> usize {
        0
    }

    /// Copies the state in `slot` into `out`, which is [`Executor::state_bytes`] long.
    fn read_state(&mut self, _slot: SlotId, _out: &mut [u8]) -> Result<(), DeviceError> {
        Err(DeviceError("this executor does not copy states".into()))
    }

    /// Makes `slot` hold what [`Executor::read_state`] gave, bit for bit.
    fn write_state(&mut self, _slot: SlotId, _bytes: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError("this executor does not copy states".into()))
    }

    /// Bytes of one cache block of a group of layers, as [`Executor::read_block`] gives them. If that is
    /// 0 for all of them, blocks cannot be copied out, so that nothing is kept on disk, and only whole
    /// blocks are shared.
    fn block_bytes(&self, _group: KvGroup) -> usize {
        0
    }

    /// Copies what a block of a group holds into `out`, which is [`Executor::block_bytes`] long.
    fn read_block(
        &mut self,
        _block: (KvGroup, BlockId),
        _out: &mut [u8],
    ) -> Result<(), DeviceError> {
        Err(DeviceError("this executor does not copy blocks".into()))
    }

    /// Makes a block of a group hold what [`Executor::read_block`] gave, bit for bit.
    fn write_block(
        &mut self,
        _block: (KvGroup, BlockId),
        _bytes: &[u8],
    ) -> Result<(), DeviceError> {
        Err(DeviceError("this executor does not copy blocks".into()))
    }
}

/// Blocks of an executor can be copied.
pub(crate) fn copies_blocks(executor: &dyn Executor) -> bool {
    [KvGroup::Full, KvGroup::Windowed].iter().any(|group| executor.block_bytes(*group) > 0)
}

/// How much an executor has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorShape {
    /// Cache blocks of [`backend::BLOCK`] positions.
    pub n_blocks: usize,
    /// Cache blocks of layers that see only a window, if the model has any.
    pub n_windowed: usize,
    /// Recurrent states, if the model has any: two for every sequence that is to run, and as many
    /// more as are to be kept for others to go on from.
    pub n_slots: usize,
    /// Rows of one pass, at most.
    pub max_rows: usize,
    /// Rows of one pass whose logits are wanted, at most.
    pub max_want: usize,
}
