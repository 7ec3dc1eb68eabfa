//! A block's keys and values as bytes, to be kept elsewhere and brought back. Copies only: no
//! arithmetic, and no layout but that of the pages.

use backend::{BLOCK, BlockId};

use super::Pages;

impl Pages {
    /// Bytes of one block: head after head, its keys by column and then its values by row. The
    /// padding of values is left out.
    pub(super) fn block_bytes(&self) -> usize {
        self.n_kv_heads() * self.head_bytes()
    }

    /// Copies a block into `out`.
    pub(super) fn read_block(&self, block: BlockId, out: &mut [u8]) {
        assert_eq!(out.len(), self.block_bytes(), "a whole block is read");
        for (kv_head, out) in out.chunks_exact_mut(self.head_bytes()).enumerate() {
            let (keys, values) = out.split_at_mut(2 * self.key_len());
            to_bytes(self.keys(block, kv_head), keys);
            let rows = self.values(block, kv_head).chunks_exact(self.value_cols);
            for (row, out) in rows.zip(values.chunks_exact_mut(2 * self.head_dim)) {
                to_bytes(&row[..self.head_dim], out);
            }
        }
    }

    /// Copies a block out of `bytes`.
    pub(super) fn write_block(&mut self, block: BlockId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.block_bytes(), "a whole block is written");
        let (key_len, value_len) = (self.key_len(), self.value_len());
        for (kv_head, bytes) in bytes.chunks_exact(self.head_bytes()).enumerate() {
            let part = kv_head * self.n_blocks + block as usize;
            let (keys, values) = bytes.split_at(2 * key_len);
            from_bytes(keys, &mut self.keys[part * key_len..][..key_len]);
            let rows =
                self.values[part * value_len..][..value_len].chunks_exact_mut(self.value_cols);
            for (row, bytes) in rows.zip(values.chunks_exact(2 * self.head_dim)) {
                from_bytes(bytes, &mut row[..self.head_dim]);
            }
        }
    }

    fn n_kv_heads(&self) -> usize {
        self.keys.len() / (self.n_blocks * self.key_len()).max(1)
    }

    /// Bytes of the keys and values of one block and head.
    fn head_bytes(&self) -> usize {
        2 * 2 * BLOCK * self.head_dim
    }
}

fn to_bytes(stored: &[u16], out: &mut [u8]) {
    for (out, stored) in out.as_chunks_mut().0.iter_mut().zip(stored) {
        *out = stored.to_le_bytes();
    }
}

fn from_bytes(bytes: &[u8], stored: &mut [u16]) {
    for (stored, bytes) in stored.iter_mut().zip(bytes.as_chunks().0) {
        *stored = u16::from_le_bytes(*bytes);
    }
}
