//! Rows that go from one machine to another, where a model is split over several.

use super::Memory;

/// What a device has besides that is one of several, on as many machines or processes. They are numbered
/// from 0, each is a neighbour of the next, and the last of the first; only neighbours need to reach each
/// other. What one sends the other receives, in that order and in the same shape.
///
/// As with all ops, what goes wrong comes out of the next [`Memory::read`].
pub trait PeerOps: Memory {
    /// Sends all of `x`, which has `rows` rows, to `rank`. Does not wait for it.
    fn send(&self, x: &Self::Buf, rows: usize, rank: usize);
    /// Makes `out` the `rows x cols` numbers that `rank` sends next.
    fn receive(&self, shape: (usize, usize), rank: usize, out: &mut Self::Buf);
}
