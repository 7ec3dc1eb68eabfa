//! A block's keys and values as bytes, to be kept elsewhere and brought back. Copies only: no
//! arithmetic, and no layout but that of the pages.

use backend::BlockId;

use super::Pages;
use crate::simd::{value_cell, values_head, values_len};

impl Pages {
    /// Bytes of one block: head after head, its keys by column and then its values by row. The
    /// padding of values is left out.
    pub(super) fn block_bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// Copies a block into `out`.
    pub(super) fn read_block(&self, block: BlockId, out: &mut [u8]) {
        assert_eq!(out.len(), self.block_bytes(), "a whole block is read");
        let (key_len, row) = (self.key_len(), self.row_len());
        for (kv_head, out) in out.chunks_exact_mut(self.head_bytes()).enumerate() {
            let (keys, out) = out.split_at_mut(key_len);
            keys.copy_from_slice(&self.data[self.key_bytes(block, kv_head)]);
            let values = &self.data[self.value_bytes(block, kv_head)];
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
        let (key_len, row) = (self.key_len(), self.row_len());
        let (scales_len, padded) = (self.value_scales(), value_cell(self.format) * self.value_cols);
        for (kv_head, bytes) in bytes.chunks_exact(self.head_bytes()).enumerate() {
            let (keys, bytes) = bytes.split_at(key_len);
            let (key_bytes, value_bytes) =
                (self.key_bytes(block, kv_head), self.value_bytes(block, kv_head));
            self.data[key_bytes].copy_from_slice(keys);
            let values = &mut self.data[value_bytes];
            let (scales, rows) = values.split_at_mut(scales_len);
            let (new_scales, bytes) = bytes.split_at(scales_len);
            scales.copy_from_slice(new_scales);
            for (stored, bytes) in rows.chunks_exact_mut(padded).zip(bytes.chunks_exact(row)) {
                stored[..row].copy_from_slice(bytes);
            }
        }
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

#[cfg(test)]
mod tests {
    use backend::ops::AttentionOps;
    use backend::{Attention, KvFormat, Values};

    use crate::attention::RUN;
    use crate::{Cpu, Options};

    /// Over several runs, no two blocks and heads share a byte, none is unused, and tasks that write
    /// to a run find them where readers do.
    #[test]
    fn blocks_tile_the_pages() {
        let spec = Attention {
            heads: 6,
            kv_heads: 3,
            head_dim: 64,
            values: Values::Own(40),
            scale: 0.125,
            window: None,
            growth: None,
            soft_cap: None,
        };
        let cpu = Cpu::new(&Options { threads: 1, ..Options::default() });
        for format in [KvFormat::Int16, KvFormat::F16, KvFormat::Int8] {
            let mut pages = cpu.pages(&spec, format, 2 * RUN + 3);
            let mut all = Vec::new();
            for block in 0..3 * RUN as u32 {
                for kv_head in 0..3 {
                    let (keys, values) =
                        (pages.key_bytes(block, kv_head), pages.value_bytes(block, kv_head));
                    let (run, slot) = (block as usize / RUN, block as usize % RUN);
                    let (key_len, value_len) = (pages.key_len(), pages.value_len());
                    let start = pages.data.as_ptr().addr();
                    let (run_keys, run_values) = pages.run_mut(run);
                    let part = kv_head * RUN + slot;
                    assert_eq!(run_keys[part * key_len..].as_ptr().addr() - start, keys.start);
                    assert_eq!(
                        run_values[part * value_len..].as_ptr().addr() - start,
                        values.start
                    );
                    all.extend([keys, values]);
                }
            }
            all.sort_by_key(|range| range.start);
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((all[0].start, all.last().unwrap().end), (0, pages.data.len()));
        }
    }
}
