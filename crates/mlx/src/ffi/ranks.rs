//! MLX's own way between machines: who belongs together, and arrays that go from one to another. MLX
//! reads what its launcher has left in the environment.
//!
//! Sockets are served by threads of MLX. A neighbour that is gone is none of their business: whoever
//! waits for it waits for ever. That has to be noticed elsewhere.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::{null, null_mut};

use super::{
    Array, Dtype, Fault, RawGroup, RawStream, Unit, checked, ints, made_on, stream_of, symbols,
};

thread_local! {
    /// This thread's stream on the processor, where arrays are sent and received.
    static STREAM: Cell<Option<RawStream>> = const { Cell::new(None) };
}

fn stream() -> Result<RawStream, Fault> {
    match STREAM.get() {
        Some(stream) => Ok(stream),
        None => stream_of(Unit::Cpu).inspect(|stream| STREAM.set(Some(*stream))),
    }
}

/// Processes that belong together.
#[derive(Debug)]
pub(crate) struct Group(RawGroup);

// SAFETY: the object behind the handle does not change after it was made, and its owners are counted
// with atomic numbers. What it does on behalf of arrays it does on one thread per socket of its own.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the handle is this group's own, and this is its end.
        unsafe { (symbols().mlx_distributed_group_free)(self.0) };
    }
}

impl Group {
    /// Waits until all are there.
    pub(crate) fn join() -> Result<Group, Fault> {
        let mut raw = RawGroup(null_mut());
        // SAFETY: `raw` is empty and becomes a handle; no name says that any kind of group will do.
        let status = unsafe { (symbols().mlx_distributed_init)(&mut raw, true, null()) };
        let group = (!raw.0.is_null()).then_some(Group(raw));
        checked(status)?;
        group.ok_or_else(|| Fault("there is no group".to_owned()))
    }

    /// Which of them this process is.
    pub(crate) fn rank(&self) -> usize {
        // SAFETY: the handle is alive, here and below.
        unsafe { (symbols().mlx_distributed_group_rank)(self.0) as usize }
    }

    /// How many there are.
    pub(crate) fn size(&self) -> usize {
        // SAFETY: as above.
        unsafe { (symbols().mlx_distributed_group_size)(self.0) as usize }
    }

    /// `x`, which is sent when it is computed.
    pub(crate) fn send(&self, x: &Array, to: usize) -> Result<Array, Fault> {
        let f = symbols().mlx_distributed_send;
        // SAFETY: as above.
        made_on(stream()?, |out, s| unsafe { f(out, x.0, to as c_int, self.0, s) })
    }

    /// What all have in the place of `x`, the rows of one rank after those of the one before. All of them
    /// have to ask for it, in the same order of asking.
    pub(crate) fn gather(&self, x: &Array) -> Result<Array, Fault> {
        let f = symbols().mlx_distributed_all_gather;
        // SAFETY: as above.
        made_on(stream()?, |out, s| unsafe { f(out, x.0, self.0, s) })
    }

    /// What is received when it is computed.
    pub(crate) fn receive(
        &self,
        shape: &[usize],
        dtype: Dtype,
        from: usize,
    ) -> Result<Array, Fault> {
        let (shape, f) = (ints(shape)?, symbols().mlx_distributed_recv);
        let (dtype, from) = (dtype as c_int, from as c_int);
        // SAFETY: as above; as many sizes are readable.
        made_on(stream()?, |out, s| unsafe {
            f(out, shape.as_ptr(), shape.len(), dtype, from, self.0, s)
        })
    }
}
