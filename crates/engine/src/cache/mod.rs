//! Who holds which cache block. Ids only: no tensors, no model, no clock.
//!
//! One rule carries everything: **what is committed is never written again**. A pass writes to
//! positions it reserved; what it wrote is published under its tokens, and from then on it is only
//! read. Full blocks are shared, so sharing a prefix is a count up, and giving up a sequence is a
//! count down. Of a block that goes on otherwise, or is not full, the beginning is copied.
//!
//! Blocks are of no use without the recurrent state that goes with them, so a model that has states
//! shares nothing yet: its sequences compute what they need.

mod book;
mod charge;
mod disk;
mod ghosts;
mod pool;
mod prefix;
mod slots;
mod spill;
#[cfg(test)]
mod tests;

pub(crate) use book::{CacheBook, Fork, Room, SeqKey};
pub(crate) use charge::Charge;
pub(crate) use disk::Label;
pub use disk::{DiskCleared, DiskError, DiskOptions, DiskStats};
pub(crate) use spill::{Origin, Spill};
