//! Names of blocks on disk: what a block holds follows from its name alone.
//!
//! Hashes only; no files.

use backend::{BLOCK, TokenId};

/// Raised whenever the layout of segments or the meaning of a key changes.
pub(super) const VERSION: u32 = 1;

/// Everything that decides what the keys and values of given tokens are, besides the tokens.
/// Blocks of different namespaces never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Namespace(pub(super) [u8; 32]);

/// Names one block after everything before it: a hash chained over all tokens from the first one
/// on, rooted in the namespace. What else a block depends on goes where it begins to matter: an
/// adapter into the namespace, a picture into the link of the first block that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey(pub(super) [u8; 32]);

impl Namespace {
    /// Of blocks of `block_bytes` bytes that the model and device behind `fingerprint` made.
    pub(crate) fn new(fingerprint: &[u8; 32], block_bytes: usize) -> Namespace {
        let mut hash = blake3::Hasher::new();
        hash.update(b"hearth kv blocks");
        hash.update(&VERSION.to_le_bytes());
        hash.update(&(BLOCK as u64).to_le_bytes());
        hash.update(&(block_bytes as u64).to_le_bytes());
        hash.update(fingerprint);
        Namespace(*hash.finalize().as_bytes())
    }

    /// What the first block of a sequence comes after.
    pub(crate) fn root(&self) -> BlockKey {
        BlockKey(self.0)
    }

    /// The folder that this namespace has to itself.
    pub(super) fn folder(&self) -> String {
        self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl BlockKey {
    /// The block that holds `tokens` after this one.
    pub(crate) fn child(&self, tokens: &[TokenId; BLOCK]) -> BlockKey {
        let mut hash = blake3::Hasher::new();
        hash.update(&self.0);
        hash.update(&token_bytes(tokens));
        BlockKey(*hash.finalize().as_bytes())
    }
}

impl BlockKey {
    /// Part `part` of something of `bytes` bytes that goes with this block. `kind` says what it is.
    pub(crate) fn part(&self, kind: &str, part: usize, bytes: usize) -> BlockKey {
        let mut hash = blake3::Hasher::new();
        hash.update(kind.as_bytes());
        hash.update(&self.0);
        hash.update(&(bytes as u64).to_le_bytes());
        hash.update(&(part as u64).to_le_bytes());
        BlockKey(*hash.finalize().as_bytes())
    }
}

/// Tokens as a record has them: little endian, four bytes each.
pub(super) fn token_bytes(tokens: &[TokenId; BLOCK]) -> [u8; 4 * BLOCK] {
    let mut bytes = [0; 4 * BLOCK];
    for (bytes, token) in bytes.as_chunks_mut().0.iter_mut().zip(tokens) {
        *bytes = token.to_le_bytes();
    }
    bytes
}
