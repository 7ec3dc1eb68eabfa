//! A block's keys and values as bytes, to be kept elsewhere and brought back. Copies only: no
//! arithmetic, and no layout but that of the pages.

use backend::BlockId;

use super::Pages;
use crate::simd::{value_cell, values_head, values_len};

impl Pages {
    /// Bytes of one block: head after head, its keys by column and then its values by row. The
    /// padding of values is left out.
    pub(super) fn block_bytes(&self) -> usize {
        self.n_kv_heads() * self.head_bytes()
    }

    /// Copies a block into `out`.
    pub(super) fn read_block(&self, block: BlockId, out: &mut [u8]) {
        assert_eq!(out.len(), self.block_bytes(), "a whole block is read");
        let (key_len, value_len, row) = (self.key_len(), self.value_len(), self.row_len());
        for (kv_head, out) in out.chunks_exact_mut(self.head_bytes()).enumerate() {
            let part = self.part(block, kv_head);
            let (keys, out) = out.split_at_mut(key_len);
            keys.copy_from_slice(&self.keys[part * key_len..][..key_len]);
            let values = &self.values[part * value_len..][..value_len];
            let (scales, rows) = values.split_at(self.value_scales());
            let (out_scales, out) = out.split_at_mut(scales.len());
            out_scales.copy_from_slice(scales);
            let rows = rows.chunks_exact(value_cell(self.format) * self.value_cols);
            for (stored, out) in rows.zip(out.chunks_exact_mut(row)) {
                out.copy_from_slice(&stored[..row]);
            }
        }
    }

    /// Copies a block out of `bytes`.
    pub(super) fn write_block(&mut self, block: BlockId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.block_bytes(), "a whole block is written");
        let (key_len, value_len, row) = (self.key_len(), self.value_len(), self.row_len());
        let (scales_len, padded) = (self.value_scales(), value_cell(self.format) * self.value_cols);
        for (kv_head, bytes) in bytes.chunks_exact(self.head_bytes()).enumerate() {
            let part = self.part(block, kv_head);
            let (keys, bytes) = bytes.split_at(key_len);
            self.keys[part * key_len..][..key_len].copy_from_slice(keys);
            let values = &mut self.values[part * value_len..][..value_len];
            let (scales, rows) = values.split_at_mut(scales_len);
            let (new_scales, bytes) = bytes.split_at(scales_len);
            scales.copy_from_slice(new_scales);
            for (stored, bytes) in rows.chunks_exact_mut(padded).zip(bytes.chunks_exact(row)) {
                stored[..row].copy_from_slice(bytes);
            }
        }
    }

    fn n_kv_heads(&self) -> usize {
        self.values.len() / (self.n_blocks * self.value_len()).max(1)
    }

    /// Bytes of the keys and values of one block and head. Padding needs no scales of its own.
    fn head_bytes(&self) -> usize {
        self.key_len() + values_len(self.format, self.row_cols)
    }

    /// Bytes of the scales of a block's values.
    fn value_scales(&self) -> usize {
        values_head(self.format, self.value_cols)
    }

    /// Bytes of a row of values without padding.
    fn row_len(&self) -> usize {
        value_cell(self.format) * self.row_cols
    }
}
