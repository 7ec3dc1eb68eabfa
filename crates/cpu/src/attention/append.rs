//! Storing the keys and values of a pass in its pages.

use std::cell::RefCell;
use std::ops::Range;

use backend::{Attention, BLOCK, Values};

use super::Pages;
use super::entry::Entry;
use crate::{Buf, Cpu, Staged};

/// Numbers below which a region of the pool costs more than it saves.
const ALONE: usize = 1 << 14;

/// Rows that go to one block.
#[derive(Clone, Debug)]
pub(super) struct Write {
    block: usize,
    /// Rows of the batch.
    rows: Range<usize>,
    /// Where the first of them goes in the block.
    slot: usize,
}

/// What a pass stores. Grows to what the largest pass needs, then stays.
#[derive(Default)]
pub(super) struct Writes {
    /// Ascending by block.
    blocks: Vec<Write>,
    /// Number of every head's part of each of them in the pages, head after head.
    parts: Vec<usize>,
}

thread_local! {
    /// One key or value on its way to its place.
    static ENTRY: RefCell<Entry> = RefCell::default();
}

impl Writes {
    fn plan(&mut self, spec: &Attention, pages: &Pages, batch: &Staged) {
        let n_blocks = pages.n_blocks;
        self.blocks.clear();
        self.parts.clear();
        for span in &batch.spans {
            let (mut row, mut position) = (span.rows.start, span.start);
            while row < span.rows.end {
                let slot = position % BLOCK;
                let rows = row..(row + BLOCK - slot).min(span.rows.end);
                let block = batch.blocks(span, pages.group)[position / BLOCK] as usize;
                (row, position) = (rows.end, position + rows.len());
                self.blocks.push(Write { block, rows, slot });
            }
        }
        self.blocks.sort_unstable_by_key(|write| write.block);
        for kv_head in 0..spec.kv_heads {
            let part = |write: &Write| kv_head * n_blocks + write.block;
            self.parts.extend(self.blocks.iter().map(part));
        }
    }

    /// Stores the keys and values of `[q | k | v]` rows.
    pub(super) fn run(
        &mut self,
        cpu: &Cpu,
        qkv: &Buf,
        spec: &Attention,
        pages: &mut Pages,
        batch: &Staged,
    ) {
        self.plan(spec, pages, batch);
        let (key_len, value_len) = (pages.key_len(), pages.value_len());
        let (kernels, format, value_cols) = (cpu.kernels, pages.format, pages.value_cols);
        let store = |i: usize, keys: &mut [u8], values: &mut [u8]| {
            let write = &self.blocks[i % self.blocks.len()];
            let kv_head = i / self.blocks.len();
            ENTRY.with_borrow_mut(|entry| {
                for (row, slot) in write.rows.clone().zip(write.slot..) {
                    let (k, v) = qkv.row(row)[spec.q_cols()..].split_at(spec.k_cols());
                    let k = &k[kv_head * spec.head_dim..][..spec.head_dim];
                    let by_row = match spec.values {
                        Values::Own(cols) => {
                            entry.put_key(kernels, format, (keys, slot), k);
                            &v[kv_head * cols..][..cols]
                        }
                        Values::OfKeys(_) => k,
                    };
                    entry.put_value(kernels, format, (values, slot, value_cols), by_row);
                }
            });
        };
        let (keys, values) = (&mut pages.keys, &mut pages.values);
        if batch.n_rows() * spec.k_cols() >= ALONE {
            let (keys, values) = ((&mut keys[..], key_len), (&mut values[..], value_len));
            return cpu.pool.zip_some_chunks(&self.parts, keys, values, store);
        }
        for (i, part) in self.parts.iter().enumerate() {
            let keys = &mut keys[part * key_len..][..key_len];
            store(i, keys, &mut values[part * value_len..][..value_len]);
        }
    }
}
