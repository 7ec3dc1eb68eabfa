//! The thread that writes: appends blocks to a segment of its own, finishes it when it is full,
//! makes room for the next.
//!
//! Whatever goes wrong here costs blocks that would have been kept, and nothing else: it is said
//! once, counted, and tried again after a while.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::catalog::{Catalog, Place, SegmentId};
use super::folder::{self, Folder};
use super::key::BlockKey;
use super::record::{self, Format, Label};
use super::segment::{self, Found};
use super::stats::Counters;
use super::{DiskCleared, lock};

/// What the writer is asked for, in order.
pub(super) enum Command {
    Write(Box<Label>, Vec<u8>),
    /// Answers when everything before it is in its file.
    Flush(SyncSender<()>),
    Clear(SyncSender<DiskCleared>),
}

type FreeBytes = Box<dyn Fn(&Path) -> Option<u64> + Send>;
type Append = Box<dyn FnMut(&mut File, &[u8]) -> io::Result<()> + Send>;
type Scan = Box<dyn Fn(&Path, &Format) -> io::Result<Found> + Send>;

/// The disk, as far as tests need to replace it.
pub(super) struct Medium {
    /// Bytes that are free where a path is, if that can be told.
    pub(super) free_bytes: FreeBytes,
    /// Adds bytes to the end of a file.
    pub(super) append: Append,
    /// Looks into a file.
    pub(super) scan: Scan,
    /// How long to wait after a failure before the next try.
    pub(super) pause: Duration,
}

impl Default for Medium {
    fn default() -> Medium {
        Medium {
            free_bytes: Box::new(|path| fs4::available_space(path).ok()),
            append: Box::new(|file, bytes| file.write_all(bytes)),
            scan: Box::new(segment::scan),
            pause: Duration::from_secs(30),
        }
    }
}

/// What both threads share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) format: Format,
    pub(super) catalog: Arc<Mutex<Catalog>>,
    pub(super) counters: Arc<Counters>,
}

pub(super) struct Writer {
    pub(super) shared: Shared,
    pub(super) folder: Folder,
    pub(super) medium: Medium,
    state: State,
    /// A failure has been logged; the next ones are only counted.
    complained: bool,
}

enum State {
    /// No segment is open.
    Between,
    Open(Active),
    /// Writing failed; not before then again.
    Paused(Instant),
}

/// The segment that is being written.
struct Active {
    id: SegmentId,
    path: PathBuf,
    file: File,
    keys: Vec<BlockKey>,
}

impl Writer {
    pub(super) fn new(shared: Shared, folder: Folder, medium: Medium) -> Writer {
        Writer { shared, folder, medium, state: State::Between, complained: false }
    }

    /// Has a look at the directory, which may take a while after many kills and with cold disks, and
    /// works until nobody can ask any more, then finishes its segment.
    pub(super) fn run(mut self, commands: Receiver<Command>) {
        self.refresh();
        let damaged = self.shared.counters.damaged.get();
        if damaged > 0 {
            tracing::warn!(damaged, "damaged entries of the prefix cache on disk are ignored");
        }
        for command in commands {
            match command {
                Command::Write(label, payload) => self.write(&label, &payload),
                // Whoever asked may have left.
                Command::Flush(done) => drop(done.send(())),
                Command::Clear(done) => drop(done.send(self.clear())),
            }
        }
        self.seal();
    }

    /// Enters the segments that are in the folder, and forgets those that no longer are.
    pub(super) fn refresh(&self) {
        let files = self.folder.own_segments();
        let mut catalog = lock(&self.shared.catalog);
        catalog.forget_segments(|_, path| files.iter().all(|file| file.path != path));
        let known = |path: &Path, len| catalog.len_of(path) == Some(len);
        let news: Vec<_> = files.iter().filter(|file| !known(&file.path, file.len)).collect();
        drop(catalog);
        let mut n_foreign = 0;
        for file in news {
            // One that went away meanwhile, or cannot be read, has nothing for us.
            let Ok(found) = (self.medium.scan)(&file.path, &self.shared.format) else { continue };
            let counters = &self.shared.counters;
            match found {
                Found::Segment(contents) => {
                    counters.damaged.add(contents.n_damaged);
                    let mut catalog = lock(&self.shared.catalog);
                    if catalog.len_of(&file.path).is_some() {
                        catalog.forget_segments(|_, path| path == file.path);
                    }
                    catalog.add(file.path.clone(), file.len, contents.keys);
                }
                Found::Foreign => n_foreign += 1,
                // Nobody can use it, unless it is just being made: then its maker holds the lock.
                Found::Damaged => counters.damaged.add(folder::remove(&file.path).into()),
            }
        }
        self.shared.counters.foreign.set(n_foreign);
    }

    fn write(&mut self, label: &Label, payload: &[u8]) {
        if lock(&self.shared.catalog).contains(&label.key) {
            return;
        }
        if let State::Paused(until) = self.state {
            if Instant::now() < until {
                return self.shared.counters.dropped.add(1);
            }
            self.state = State::Between;
        }
        match self.append(label, payload) {
            Ok(()) => self.shared.counters.written.add(1),
            Err(error) => self.fail(&error),
        }
    }

    fn append(&mut self, label: &Label, payload: &[u8]) -> io::Result<()> {
        let format = self.shared.format;
        if let State::Open(active) = &self.state
            && format.sealed_len(active.keys.len() as u64 + 1) > self.folder.limits().segment_bytes
        {
            self.seal();
        }
        if !matches!(self.state, State::Open(_)) {
            self.state = State::Open(self.begin()?);
        }
        let State::Open(active) = &mut self.state else { return Ok(()) };
        (self.medium.append)(&mut active.file, &record::record_head(label, payload))?;
        (self.medium.append)(&mut active.file, payload)?;
        let place = Place { segment: active.id, record: active.keys.len() as u64 };
        active.keys.push(label.key);
        let len = format.offset(active.keys.len() as u64);
        lock(&self.shared.catalog).grow(label.key, place, len);
        Ok(())
    }

    /// Makes room, has a look at what others did meanwhile, and starts a segment.
    fn begin(&mut self) -> io::Result<Active> {
        let mut n_removed = 0;
        let room = self.folder.make_room(&*self.medium.free_bytes, &mut n_removed);
        self.shared.counters.evicted.add(n_removed);
        self.refresh();
        room.map_err(io::Error::other)?;
        let (path, mut file) = self.folder.create()?;
        let head = self.shared.format.head();
        if let Err(error) = (self.medium.append)(&mut file, &head) {
            // It holds nothing yet. If it cannot be removed, it will be ignored.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let id = lock(&self.shared.catalog).add(path.clone(), head.len() as u64, []);
        Ok(Active { id, path, file, keys: Vec::new() })
    }

    /// Finishes the open segment. Without a footer it is as good, only slower to open.
    fn seal(&mut self) {
        let State::Open(mut active) = std::mem::replace(&mut self.state, State::Between) else {
            return;
        };
        let footer = record::footer(&active.keys);
        let sealed = (self.medium.append)(&mut active.file, &footer);
        if let Err(error) = sealed.and_then(|()| active.file.sync_data()) {
            self.complain(&error);
        }
        let len = self.shared.format.sealed_len(active.keys.len() as u64);
        lock(&self.shared.catalog).resize(active.id, len);
    }

    /// Gives up the open segment, which keeps what is whole in it, and waits a while.
    fn fail(&mut self, error: &io::Error) {
        let paused = State::Paused(Instant::now() + self.medium.pause);
        if let State::Open(active) = std::mem::replace(&mut self.state, paused) {
            // Gives the piece of a record back to the disk; if it stays, it is no record either.
            let _ = active.file.set_len(self.shared.format.offset(active.keys.len() as u64));
            if active.keys.is_empty() {
                let _ = fs::remove_file(&active.path);
            }
        }
        self.shared.counters.dropped.add(1);
        self.complain(error);
    }

    fn complain(&mut self, error: &io::Error) {
        self.shared.counters.write_errors.add(1);
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(
                %error,
                "the prefix cache cannot be kept on disk; serving goes on without it, and writing \
                 is tried again now and then"
            );
        }
    }

    fn clear(&mut self) -> DiskCleared {
        let mut cleared = DiskCleared::default();
        // Closed first, so that it is not taken for somebody else's.
        self.state = State::Between;
        for file in self.folder.own_segments() {
            if folder::remove(&file.path) {
                cleared.segments += 1;
                cleared.bytes += file.len;
            } else {
                cleared.segments_in_use += 1;
            }
        }
        let mut catalog = lock(&self.shared.catalog);
        cleared.blocks = catalog.n_entries();
        catalog.forget_segments(|_, _| true);
        cleared
    }
}
