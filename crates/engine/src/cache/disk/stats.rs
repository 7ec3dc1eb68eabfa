//! Numbers about the disk tier, counted by two threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A picture of the disk tier. Counts are of this process and since its start, but for what lies
/// on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Blocks on disk that this model could use, and parts of recurrent states of their size.
    pub blocks: u64,
    /// Bytes of the segments they are in.
    pub bytes: u64,
    /// Bytes that the whole directory may take, other models included.
    pub max_bytes: u64,
    /// Blocks that were written.
    pub written: u64,
    /// Blocks that were brought back.
    pub read: u64,
    /// Blocks that were not kept: the writer could not follow, or the disk refused.
    pub dropped: u64,
    /// Times that writing failed.
    pub write_errors: u64,
    /// Records and segments that were not what they should be, and were ignored.
    pub damaged: u64,
    /// Segments of another version in this model's folder, which were left alone.
    pub foreign: u64,
    /// Segments that were removed to make room.
    pub evicted: u64,
}

/// What was removed when a cache was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCleared {
    /// Blocks that can no longer be found.
    pub blocks: u64,
    /// Bytes of removed segments.
    pub bytes: u64,
    /// Segments that were removed.
    pub segments: u64,
    /// Segments that stay, because another process is writing them.
    pub segments_in_use: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) written: Counter,
    pub(super) read: Counter,
    pub(super) dropped: Counter,
    pub(super) write_errors: Counter,
    pub(super) damaged: Counter,
    pub(super) foreign: Counter,
    pub(super) evicted: Counter,
}

impl Counter {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
