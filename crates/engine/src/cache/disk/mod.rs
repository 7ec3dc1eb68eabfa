//! The disk tier: blocks that outlive the memory, and the process.
//!
//! Content-addressed and append-only: a block is written under a hash of everything it depends on,
//! into large segment files that only their writer touches. A block that is found is the right one,
//! bit for bit, or it is not found: a record is compared with what was asked for, tokens included,
//! and its checksums are verified, each time it is read. So a process may be killed, a disk may fill
//! up and a file may be cut off or damaged at any moment, and several processes may share a
//! directory.
//!
//! Not here: when blocks are written and brought back, which is for the engine to say.

mod catalog;
mod folder;
mod key;
mod record;
mod segment;
mod stats;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use catalog::{Catalog, Place, SegmentId};
use folder::{Folder, Limits};
pub(crate) use key::{BlockKey, Namespace};
use record::Format;
pub(crate) use record::Label;
use stats::Counters;
pub use stats::{DiskCleared, DiskStats};
use writer::{Command, Medium, Shared, Writer};

/// Bytes a segment grows to, unless the budget is small.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Segments that fit into the budget, at least, so that making room does not throw everything away.
const LEAST_SEGMENTS: u64 = 8;
/// Bytes of blocks that may wait to be written.
const QUEUE_BYTES: usize = 64 << 20;
/// Segments that are kept open for reading.
const OPEN_FILES: usize = 16;
/// How exact the time of a segment's last use is.
const TOUCH_AFTER: Duration = Duration::from_secs(10);

/// Where blocks are kept, and how many.
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// A directory. Several models and several processes may share it.
    pub dir: PathBuf,
    /// Bytes that all segments in it may take together.
    pub max_bytes: u64,
    /// Bytes that are to stay free on its disk, whatever `max_bytes` says.
    pub min_free_bytes: u64,
    /// Identity of everything that decides what keys and values of given tokens are: the model's
    /// weights and recipe, the device's arithmetic, the format they are stored in.
    pub fingerprint: [u8; 32],
}

/// Why there is no disk tier.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The directory cannot be made or used.
    #[error("{}: {error}", .dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The budget has no room for a single block.
    #[error("{max_bytes} bytes are less than one block of this model takes on disk ({needed})")]
    TooSmall {
        /// The budget.
        max_bytes: u64,
        /// Bytes of a segment with one block.
        needed: u64,
    },
    /// The executor's blocks cannot be copied.
    #[error("this device does not copy cache blocks")]
    NoBlocks,
}

/// The blocks of one namespace, on disk.
pub(crate) struct Store {
    namespace: Namespace,
    shared: Shared,
    max_bytes: u64,
    /// Dropped to let the writer finish.
    commands: Option<SyncSender<Command>>,
    writer: Option<JoinHandle<()>>,
    /// Recently read segments, the latest at the end.
    files: VecDeque<OpenSegment>,
    record: Vec<u8>,
    /// A damaged record has been logged; the next ones are only counted.
    complained: bool,
}

/// The numbers of a store, for any thread and at any time.
pub(crate) struct Watch {
    shared: Shared,
    max_bytes: u64,
}

impl Watch {
    /// As they are now.
    pub(crate) fn stats(&self) -> DiskStats {
        let counters = &self.shared.counters;
        let catalog = lock(&self.shared.catalog);
        DiskStats {
            blocks: catalog.n_entries(),
            bytes: catalog.n_bytes(),
            max_bytes: self.max_bytes,
            written: counters.written.get(),
            read: counters.read.get(),
            dropped: counters.dropped.get(),
            write_errors: counters.write_errors.get(),
            damaged: counters.damaged.get(),
            foreign: counters.foreign.get(),
            evicted: counters.evicted.get(),
        }
    }
}

struct OpenSegment {
    id: SegmentId,
    file: File,
    touched: Option<Instant>,
}

impl Store {
    /// Starts the writer, which first of all finds what is in the directory: until it has, a block
    /// is not there. `block_bytes` is the length of all blocks.
    pub(crate) fn open(options: &DiskOptions, block_bytes: usize) -> Result<Store, DiskError> {
        Store::open_on(Medium::default(), options, block_bytes)
    }

    fn open_on(
        medium: Medium,
        options: &DiskOptions,
        block_bytes: usize,
    ) -> Result<Store, DiskError> {
        if block_bytes == 0 {
            return Err(DiskError::NoBlocks);
        }
        let DiskOptions { dir, max_bytes, min_free_bytes, fingerprint } = options;
        let namespace = Namespace::new(fingerprint, block_bytes);
        let format = Format { namespace, block_bytes };
        let needed = format.sealed_len(1);
        if *max_bytes < needed {
            return Err(DiskError::TooSmall { max_bytes: *max_bytes, needed });
        }
        let limits = Limits {
            max_bytes: *max_bytes,
            min_free_bytes: *min_free_bytes,
            segment_bytes: SEGMENT_BYTES.min(max_bytes / LEAST_SEGMENTS).max(needed),
        };
        let io_error = |error| DiskError::Io { dir: dir.clone(), error };
        let folder = Folder::open(dir, &namespace, limits).map_err(io_error)?;
        let catalog = Arc::new(Mutex::new(Catalog::default()));
        let shared = Shared { format, catalog, counters: Arc::new(Counters::default()) };
        let writer = Writer::new(shared.clone(), folder, medium);
        let (commands, receiver) = sync_channel((QUEUE_BYTES / block_bytes).clamp(4, 1024));
        let thread = std::thread::Builder::new().name("kv-writer".into());
        let writer = thread.spawn(move || writer.run(receiver)).map_err(io_error)?;
        Ok(Store {
            namespace,
            shared,
            max_bytes: *max_bytes,
            commands: Some(commands),
            writer: Some(writer),
            files: VecDeque::new(),
            record: Vec::new(),
            complained: false,
        })
    }

    /// What the first block of a sequence comes after.
    pub(crate) fn root(&self) -> BlockKey {
        self.namespace.root()
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.shared.format.block_bytes
    }

    /// Whether a block of this name is likely to be there.
    pub(crate) fn contains(&self, key: &BlockKey) -> bool {
        lock(&self.shared.catalog).contains(key)
    }

    /// Reads a block. `None` if it is not there, or not exactly what was written.
    pub(crate) fn read(&mut self, label: &Label) -> Option<&[u8]> {
        let (place, path) = {
            let catalog = lock(&self.shared.catalog);
            let (place, path) = catalog.find(&label.key)?;
            (place, path.to_owned())
        };
        let read = self.fetch(place, &path);
        let intact = match &read {
            Ok(()) => record::is_intact(&self.record, label),
            // Another process made room, or somebody cleared the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                lock(&self.shared.catalog).forget_segments(|id, _| id == place.segment);
                return None;
            }
            Err(_) => false,
        };
        if !intact {
            lock(&self.shared.catalog).forget(&label.key, place);
            self.complain(read.err());
            return None;
        }
        self.shared.counters.read.add(1);
        Some(&self.record[record::RECORD_HEAD..])
    }

    /// Hands a block to the writer. Gives it back when too many are waiting already.
    pub(crate) fn offer(&self, label: Label, payload: Vec<u8>) -> Result<(), Vec<u8>> {
        let Some(commands) = &self.commands else { return Ok(()) };
        match commands.try_send(Command::Write(Box::new(label), payload)) {
            Err(TrySendError::Full(Command::Write(_, payload))) => Err(payload),
            // A writer that is gone takes nothing any more, now or later.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Like [`Store::offer`], but waits until there is room.
    pub(crate) fn put(&self, label: Label, payload: Vec<u8>) {
        if let Some(commands) = &self.commands {
            // As above.
            let _ = commands.send(Command::Write(Box::new(label), payload));
        }
    }

    /// Counts a block that will not be kept because the writer could not follow.
    pub(crate) fn count_dropped(&self) {
        self.shared.counters.dropped.add(1);
    }

    /// Waits until everything in the directory is found and everything that was handed over is in
    /// its file.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if let Some(commands) = &self.commands
            && commands.send(Command::Flush(done)).is_ok()
        {
            // Fails only if the writer is gone, and then there is nothing to wait for.
            let _ = wait.recv();
        }
    }

    /// Removes all blocks of this namespace, and says what that was.
    pub(crate) fn clear(&mut self) -> DiskCleared {
        self.files.clear();
        let (done, wait) = sync_channel(1);
        match &self.commands {
            Some(commands) if commands.send(Command::Clear(done)).is_ok() => {
                wait.recv().unwrap_or_default()
            }
            _ => DiskCleared::default(),
        }
    }

    pub(crate) fn stats(&self) -> DiskStats {
        self.watch().stats()
    }

    /// Sees what the writer does, also while nobody asks the store.
    pub(crate) fn watch(&self) -> Watch {
        Watch { shared: self.shared.clone(), max_bytes: self.max_bytes }
    }

    /// Reads a record from its file, which stays open for the next ones.
    fn fetch(&mut self, place: Place, path: &std::path::Path) -> io::Result<()> {
        let known = self.files.iter().position(|open| open.id == place.segment);
        let mut open = match known.and_then(|at| self.files.remove(at)) {
            Some(open) => open,
            None => OpenSegment { id: place.segment, file: File::open(path)?, touched: None },
        };
        let format = &self.shared.format;
        let read = segment::read_record(&mut open.file, place.record, format, &mut self.record);
        if open.touched.is_none_or(|touched| touched.elapsed() > TOUCH_AFTER) {
            open.touched = Some(Instant::now());
            // What cannot be dated is removed earlier than need be.
            let _ = open.file.set_modified(SystemTime::now());
        }
        if self.files.len() == OPEN_FILES {
            self.files.pop_front();
        }
        self.files.push_back(open);
        read
    }

    fn complain(&mut self, error: Option<io::Error>) {
        self.shared.counters.damaged.add(1);
        if !std::mem::replace(&mut self.complained, true) {
            let error = error.map_or_else(|| "its checksum is wrong".to_owned(), |e| e.to_string());
            tracing::warn!(
                error,
                "a damaged entry of the prefix cache on disk is ignored and computed anew"
            );
        }
    }
}

impl Drop for Store {
    /// Waits until the writer has finished its segment.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            // It has nothing to tell: what it could not write is counted.
            let _ = writer.join();
        }
    }
}

/// A lock that a panic elsewhere cannot spoil: nothing is left half done under it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
