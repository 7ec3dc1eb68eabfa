//! How a segment file is made of bytes: a head, records of equal size, and, once nothing more is
//! added, a footer that lists them.
//!
//! ```text
//! head:    magic 8 | version u32 | positions per block u32 | bytes per block u64 | namespace 32
//!          | checksum 16
//! record:  magic 8 | key 32 | key of the block before 32 | tokens 4 x BLOCK
//!          | checksum of the payload 32 | checksum of all this 16 | payload
//! footer:  one key per record | magic 8 | records u64 | checksum 16
//! ```
//!
//! Numbers are little endian, checksums are BLAKE3 cut to their length. A footer only saves reading
//! the records' heads at start: whatever it says, a record is checked as a whole when it is read.
//! No files here.

use backend::BLOCK;

use super::key::{BlockKey, Namespace, VERSION, token_bytes};
use backend::TokenId;

const SEGMENT_MAGIC: &[u8; 8] = b"HEARTHKV";
const RECORD_MAGIC: &[u8; 8] = b"HKVBLOCK";
const FOOTER_MAGIC: &[u8; 8] = b"HKVINDEX";

const SUM: usize = 16;
const KEY: usize = 32;
/// Bytes of a segment's head.
pub(super) const HEAD: usize = 8 + 4 + 4 + 8 + 32 + SUM;
/// Bytes of a record before its payload.
pub(super) const RECORD_HEAD: usize = 8 + KEY + KEY + 4 * BLOCK + 32 + SUM;
/// Bytes of a footer after its keys.
pub(super) const FOOTER_TAIL: usize = 8 + 8 + SUM;

/// What is in a block and where it belongs. A record is a hit only if all of it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The block's name.
    pub key: BlockKey,
    /// The name of the block before it, or the namespace's root.
    pub parent: BlockKey,
    /// Its tokens.
    pub tokens: [TokenId; BLOCK],
}

/// The segments of one namespace: sizes and heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) namespace: Namespace,
    pub(super) block_bytes: usize,
}

/// What the head of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    Ours,
    /// Sound, but of another version or namespace.
    Foreign,
    /// Not a segment, or one whose head has been damaged.
    Damaged,
}

impl Format {
    /// Bytes of a record.
    pub(super) fn record_len(&self) -> u64 {
        (RECORD_HEAD + self.block_bytes) as u64
    }

    /// Where record `n` begins.
    pub(super) fn offset(&self, n: u64) -> u64 {
        HEAD as u64 + n * self.record_len()
    }

    /// Whole records that a file of this many bytes has room for.
    pub(super) fn records_in(&self, file_len: u64) -> u64 {
        file_len.saturating_sub(HEAD as u64) / self.record_len()
    }

    /// Bytes of a finished segment of `n` records.
    pub(super) fn sealed_len(&self, n: u64) -> u64 {
        self.offset(n) + n * KEY as u64 + FOOTER_TAIL as u64
    }

    pub(super) fn head(&self) -> Vec<u8> {
        let mut bytes = SEGMENT_MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((BLOCK as u32).to_le_bytes());
        bytes.extend((self.block_bytes as u64).to_le_bytes());
        bytes.extend(self.namespace.0);
        with_sum(bytes)
    }

    pub(super) fn judge(&self, head: &[u8; HEAD]) -> Head {
        if *head == *self.head() {
            return Head::Ours;
        }
        match head.starts_with(SEGMENT_MAGIC) && has_sum(head) {
            true => Head::Foreign,
            false => Head::Damaged,
        }
    }

    /// The keys in a footer, of which `tail` is the end and `keys` what precedes it. `None` if it
    /// is no footer of `n` records.
    pub(super) fn keys_of_footer(
        &self,
        keys: &[u8],
        tail: &[u8; FOOTER_TAIL],
    ) -> Option<Vec<BlockKey>> {
        let n = n_in_footer(tail)?;
        let sound = has_sum(&[keys, tail].concat());
        let keys = keys.as_chunks::<KEY>().0;
        (sound && keys.len() as u64 == n).then(|| keys.iter().copied().map(BlockKey).collect())
    }
}

/// Records that the end of a file speaks of, if it looks like the end of a footer.
pub(super) fn n_in_footer(tail: &[u8; FOOTER_TAIL]) -> Option<u64> {
    let (magic, rest) = tail.split_first_chunk::<8>()?;
    let (n, _) = rest.split_first_chunk::<8>()?;
    (magic == FOOTER_MAGIC).then_some(u64::from_le_bytes(*n))
}

pub(super) fn footer(keys: &[BlockKey]) -> Vec<u8> {
    let mut bytes: Vec<u8> = keys.iter().flat_map(|key| key.0).collect();
    bytes.extend(FOOTER_MAGIC);
    bytes.extend((keys.len() as u64).to_le_bytes());
    with_sum(bytes)
}

/// A record's head, given its payload.
pub(super) fn record_head(label: &Label, payload: &[u8]) -> Vec<u8> {
    let mut bytes = RECORD_MAGIC.to_vec();
    bytes.extend(label.key.0);
    bytes.extend(label.parent.0);
    bytes.extend(token_bytes(&label.tokens));
    bytes.extend(blake3::hash(payload).as_bytes());
    with_sum(bytes)
}

/// The key in a record's head, if the head is sound.
pub(super) fn key_of(head: &[u8; RECORD_HEAD]) -> Option<BlockKey> {
    let key = head[8..].first_chunk::<KEY>()?;
    (head.starts_with(RECORD_MAGIC) && has_sum(head)).then_some(BlockKey(*key))
}

/// Whether a record holds the block of this label, every bit as it was written.
pub(super) fn is_intact(record: &[u8], label: &Label) -> bool {
    match record.split_first_chunk::<RECORD_HEAD>() {
        Some((head, payload)) => *head == *record_head(label, payload),
        None => false,
    }
}

fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = blake3::hash(&bytes);
    bytes.extend(&sum.as_bytes()[..SUM]);
    bytes
}

fn has_sum(bytes: &[u8]) -> bool {
    let Some((bytes, sum)) = bytes.split_last_chunk::<SUM>() else { return false };
    blake3::hash(bytes).as_bytes()[..SUM] == *sum
}
