//! One segment file, read: which blocks are in it, and a record's bytes.
//!
//! Reads rather than maps: a file that somebody else cuts off, or a disk that fails, is then an
//! error like any other and not a signal that ends the process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::key::BlockKey;
use super::record::{self, FOOTER_TAIL, Format, HEAD, Head, RECORD_HEAD};

/// What a file turned out to be.
#[derive(Debug)]
pub(super) enum Found {
    /// Keys of the records that look sound, with their numbers.
    Segment(Contents),
    /// A segment of another version or namespace.
    Foreign,
    /// Nothing that could be read.
    Damaged,
}

/// What is in a segment.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) keys: Vec<(BlockKey, u64)>,
    /// Records with a head that is not sound.
    pub(super) n_damaged: u64,
}

/// Looks into a file. An error means that it could not be read at all.
pub(super) fn scan(path: &Path, format: &Format) -> io::Result<Found> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut head = [0; HEAD];
    if len < HEAD as u64 {
        return Ok(Found::Damaged);
    }
    file.read_exact(&mut head)?;
    Ok(match format.judge(&head) {
        Head::Foreign => Found::Foreign,
        Head::Damaged => Found::Damaged,
        Head::Ours => match by_footer(&mut file, len, format)? {
            Some(contents) => Found::Segment(contents),
            None => Found::Segment(by_records(&mut file, len, format)?),
        },
    })
}

/// A finished segment says itself what is in it.
fn by_footer(file: &mut File, len: u64, format: &Format) -> io::Result<Option<Contents>> {
    let Some(at) = len.checked_sub(FOOTER_TAIL as u64) else { return Ok(None) };
    let mut tail = [0; FOOTER_TAIL];
    read_at(file, at, &mut tail)?;
    // The length is compared before anything is allocated by a number from the file.
    let n = record::n_in_footer(&tail).filter(|n| *n <= format.records_in(len));
    let Some(n) = n.filter(|n| format.sealed_len(*n) == len) else { return Ok(None) };
    let start = format.offset(n);
    let mut keys = vec![0; (at - start) as usize];
    read_at(file, start, &mut keys)?;
    let keys = format.keys_of_footer(&keys, &tail);
    Ok(keys.map(|keys| Contents { keys: keys.into_iter().zip(0..).collect(), n_damaged: 0 }))
}

/// The segment of a process that did not come to finish it. What its last write left behind is a
/// piece of a record, which is no record.
fn by_records(file: &mut File, len: u64, format: &Format) -> io::Result<Contents> {
    let mut contents = Contents::default();
    for n in 0..format.records_in(len) {
        let mut head = [0; RECORD_HEAD];
        read_at(file, format.offset(n), &mut head)?;
        match record::key_of(&head) {
            Some(key) => contents.keys.push((key, n)),
            None => contents.n_damaged += 1,
        }
    }
    Ok(contents)
}

/// Replaces `out` by record `n`, head and payload.
pub(super) fn read_record(
    file: &mut File,
    n: u64,
    format: &Format,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    out.resize(format.record_len() as usize, 0);
    read_at(file, format.offset(n), out)
}

fn read_at(file: &mut File, at: u64, out: &mut [u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(out)
}
