//! Which block is in which record of which segment: what is known of the directory, in memory.
//!
//! Shared by the thread that reads and the one that writes. No files are touched here.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::key::BlockKey;

/// Names a segment within this process.
pub(super) type SegmentId = u64;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: SegmentId,
    pub(super) record: u64,
}

#[derive(Debug, Default)]
pub(super) struct Catalog {
    places: HashMap<BlockKey, Place>,
    segments: BTreeMap<SegmentId, Segment>,
    next: SegmentId,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    len: u64,
}

impl Catalog {
    /// Enters a segment of `len` bytes and what is in it. Of two records of one block the one
    /// entered last counts, so that a damaged one is replaced.
    pub(super) fn add(
        &mut self,
        path: PathBuf,
        len: u64,
        keys: impl IntoIterator<Item = (BlockKey, u64)>,
    ) -> SegmentId {
        let segment = self.next;
        self.next += 1;
        self.segments.insert(segment, Segment { path, len });
        let places = keys.into_iter().map(|(key, record)| (key, Place { segment, record }));
        self.places.extend(places);
        segment
    }

    /// Enters a record that was added to a segment, which now has `len` bytes.
    pub(super) fn grow(&mut self, key: BlockKey, place: Place, len: u64) {
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            segment.len = len;
            self.places.insert(key, place);
        }
    }

    /// A segment now has `len` bytes.
    pub(super) fn resize(&mut self, id: SegmentId, len: u64) {
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.len = len;
        }
    }

    /// Where a block is, and in which file.
    pub(super) fn find(&self, key: &BlockKey) -> Option<(Place, &Path)> {
        let place = self.places.get(key)?;
        Some((*place, &self.segments.get(&place.segment)?.path))
    }

    pub(super) fn contains(&self, key: &BlockKey) -> bool {
        self.places.contains_key(key)
    }

    /// Forgets a block, if it is still where it was.
    pub(super) fn forget(&mut self, key: &BlockKey, place: Place) {
        if self.places.get(key) == Some(&place) {
            self.places.remove(key);
        }
    }

    /// Forgets segments and all that is in them.
    pub(super) fn forget_segments(&mut self, gone: impl Fn(SegmentId, &Path) -> bool) {
        self.segments.retain(|id, segment| !gone(*id, &segment.path));
        let segments = &self.segments;
        self.places.retain(|_, place| segments.contains_key(&place.segment));
    }

    /// Bytes of a segment when it was looked at last.
    pub(super) fn len_of(&self, path: &Path) -> Option<u64> {
        self.segments.values().find(|segment| segment.path == path).map(|segment| segment.len)
    }

    pub(super) fn n_entries(&self) -> u64 {
        self.places.len() as u64
    }

    pub(super) fn n_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.len).sum()
    }
}
