//! Who holds which cache block. Ids only: no tensors, no model, no clock.
//!
//! One rule carries everything: **what is committed is never written again**. A pass writes to
//! positions it reserved; what it wrote is published under its tokens, and from then on it is only
//! read. Full blocks are shared, so sharing a prefix is a count up, and giving up a sequence is a
//! count down. Of a block that goes on otherwise, or is not full, the beginning is copied.
//!
//! Recurrent states go by the same rule. Blocks of a model that has states are of no use without the
//! one that goes with them, so states are kept at the ends of chosen blocks, and a sequence goes on
//! from the last of these that it finds.
//!
//! Layers that see only a window have blocks of their own, *panes*, which a sequence gives up when its
//! window has left them.

mod book;
mod charge;
mod disk;
mod ghosts;
mod panes;
mod parts;
mod pool;
mod prefix;
mod spill;
mod states;
mod tail;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use book::{CacheBook, Fork, Full, Need, PaneRoom, Room, SeqKey};
pub(crate) use charge::Charge;
pub(crate) use disk::Watch;
pub use disk::{DiskCleared, DiskError, DiskOptions, DiskStats};
pub(crate) use panes::least_panes;
pub(crate) use spill::{Memory, More, Origin, Piece, Spill, What};
pub(crate) use states::Stay;
pub(crate) use tail::Stop;
