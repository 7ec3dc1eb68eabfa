//! Storing the keys and values of a pass in its pages.

use std::cell::RefCell;
use std::ops::Range;

use backend::{Attention, BLOCK, Values};

use super::entry::Entry;
use super::{Pages, RUN};
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
    /// For those of one run, number of every head's part of each of them in the run, head after head.
    parts: Vec<usize>,
}

thread_local! {
    /// One key or value on its way to its place.
    static ENTRY: RefCell<Entry> = RefCell::default();
}

impl Writes {
    fn plan(&mut self, pages: &Pages, batch: &Staged) {
        self.blocks.clear();
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
        self.plan(pages, batch);
        let Writes { blocks, parts } = self;
        for writes in blocks.chunk_by(|a, b| a.block / RUN == b.block / RUN) {
            parts.clear();
            for kv_head in 0..spec.kv_heads {
                parts.extend(writes.iter().map(|write| kv_head * RUN + write.block % RUN));
            }
            store(cpu, qkv, spec, pages, (writes, parts));
        }
    }
}

/// Stores the rows that go to the blocks of one run.
fn store(
    cpu: &Cpu,
    qkv: &Buf,
    spec: &Attention,
    pages: &mut Pages,
    (writes, parts): (&[Write], &[usize]),
) {
    let (key_len, value_len) = (pages.key_len(), pages.value_len());
    let (kernels, format, value_cols) = (cpu.kernels, pages.format, pages.value_cols);
    let store = |i: usize, keys: &mut [u8], values: &mut [u8]| {
        let (kv_head, write) = (i / writes.len(), &writes[i % writes.len()]);
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
    let (keys, values) = pages.run_mut(writes[0].block / RUN);
    let n_rows: usize = writes.iter().map(|write| write.rows.len()).sum();
    if n_rows * spec.k_cols() >= ALONE {
        return cpu.pool.zip_some_chunks(parts, (keys, key_len), (values, value_len), store);
    }
    for (i, part) in parts.iter().enumerate() {
        let keys = &mut keys[part * key_len..][..key_len];
        store(i, keys, &mut values[part * value_len..][..value_len]);
    }
}
