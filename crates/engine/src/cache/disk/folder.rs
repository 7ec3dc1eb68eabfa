//! The directory: one folder per namespace, segments in them, a budget over all of it.
//!
//! What is used least recently goes first, whoever wrote it: the time of a file's last change is
//! when it was last written to or read from. A segment that somebody still writes is locked by
//! them and stays. Knows nothing of what is in a file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::key::Namespace;

const SUFFIX: &str = "kv";

/// The directory as one namespace sees it.
pub(super) struct Folder {
    root: PathBuf,
    own: PathBuf,
    limits: Limits,
}

/// How much may lie in the directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of all segments of all namespaces.
    pub(super) max_bytes: u64,
    /// Bytes that are to stay free on the disk.
    pub(super) min_free_bytes: u64,
    /// Bytes that a segment may grow to.
    pub(super) segment_bytes: u64,
}

/// A segment file.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    used: SystemTime,
}

/// Why there is no room for another segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoom {
    #[error("segments that are being written fill the budget of {max_bytes} bytes")]
    Budget { max_bytes: u64 },
    #[error("{free} bytes are free, and {min_free_bytes} are to stay free")]
    Floor { free: u64, min_free_bytes: u64 },
}

impl Folder {
    /// Makes the directory, for its owner alone: blocks hold what users wrote.
    pub(super) fn open(root: &Path, namespace: &Namespace, limits: Limits) -> io::Result<Folder> {
        let own = root.join(namespace.folder());
        make_private(&own)?;
        Ok(Folder { root: root.to_owned(), own, limits })
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Segments of this namespace, oldest first.
    pub(super) fn own_segments(&self) -> Vec<SegmentFile> {
        let mut segments = segments_in(&self.own);
        // Names begin with the time of their making.
        segments.sort_by(|a, b| a.path.cmp(&b.path));
        segments
    }

    /// A new segment, locked until its file is closed.
    pub(super) fn create(&self) -> io::Result<(PathBuf, File)> {
        // Somebody may have cleared the directory meanwhile.
        make_private(&self.own)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = std::process::id();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        for_owner_alone(&mut options);
        for n in 0..1000u32 {
            let name = format!("{:016x}-{process:08x}-{n:03}.{SUFFIX}", since.as_micros());
            let path = self.own.join(name);
            match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                // Whoever made room in this very moment may have taken it for an old one.
                Ok(file) if is_in_use(&file) || !path.exists() => {}
                Ok(file) => return Ok((path, file)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes segments until another one fits, and counts them in `n_removed`.
    pub(super) fn make_room(
        &self,
        free_bytes: &dyn Fn(&Path) -> Option<u64>,
        n_removed: &mut u64,
    ) -> Result<(), NoRoom> {
        let Limits { max_bytes, min_free_bytes, segment_bytes } = self.limits;
        let mut by_age: Vec<SegmentFile> = Vec::new();
        let mut total = 0;
        for file in self.all_segments() {
            // Whoever writes one may fill it.
            let written = lock(&file.path).is_none();
            total += if written { file.len.max(segment_bytes) } else { file.len };
            if !written {
                by_age.push(file);
            }
        }
        by_age.sort_by_key(|file| file.used);
        let mut by_age = by_age.into_iter();
        loop {
            let free = free_bytes(&self.root).unwrap_or(u64::MAX);
            let fits = total + segment_bytes <= max_bytes;
            let leaves_enough = free >= min_free_bytes.saturating_add(segment_bytes);
            if fits && leaves_enough {
                return Ok(());
            }
            let Some(oldest) = by_age.next() else {
                return Err(match fits {
                    true => NoRoom::Floor { free, min_free_bytes },
                    false => NoRoom::Budget { max_bytes },
                });
            };
            if remove(&oldest.path) {
                total -= oldest.len;
                *n_removed += 1;
            }
        }
    }

    fn all_segments(&self) -> Vec<SegmentFile> {
        let Ok(namespaces) = fs::read_dir(&self.root) else { return Vec::new() };
        namespaces.flatten().flat_map(|folder| segments_in(&folder.path())).collect()
    }
}

/// Removes a segment unless somebody is writing it.
pub(super) fn remove(path: &Path) -> bool {
    lock(path).is_some() && fs::remove_file(path).is_ok()
}

/// Opens a segment that nobody writes.
fn lock(path: &Path) -> Option<File> {
    File::open(path).ok().filter(|file| !is_in_use(file))
}

/// Whether another holds the lock of this file; otherwise it is ours now. Where files cannot be
/// locked at all, nobody does: a segment may then be removed while it is written, and its blocks
/// are misses.
fn is_in_use(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn segments_in(folder: &Path) -> Vec<SegmentFile> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let mut segments = Vec::new();
    for file in files.flatten() {
        let path = file.path();
        if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
            continue;
        }
        // A file that went away in between is one less.
        let Ok(meta) = file.metadata() else { continue };
        let used = meta.modified().unwrap_or(UNIX_EPOCH);
        segments.push(SegmentFile { path, len: meta.len(), used });
    }
    segments
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(unix)]
fn for_owner_alone(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(not(unix))]
fn for_owner_alone(_options: &mut OpenOptions) {}
