//! Who holds which cache block. Ids only: no tensors, no model, no clock.
//!
//! One rule carries everything: **what is committed is never written again**. A pass writes to
//! blocks it reserved; once a block is full it is published under the tokens it holds, and from
//! then on it is only read. So sharing a prefix is a count up, and giving up a sequence is a count
//! down.

mod book;
mod charge;
mod disk;
mod ghosts;
mod pool;
mod prefix;
mod spill;
#[cfg(test)]
mod tests;

pub(crate) use book::{CacheBook, SeqKey};
pub(crate) use charge::Charge;
pub(crate) use disk::Label;
pub use disk::{DiskCleared, DiskError, DiskOptions, DiskStats};
pub(crate) use spill::{Origin, Spill};
