//! Rotation and attention over pages.
//!
//! Blocks lie in runs of as many as a segment has. In a run each key head has its keys, block after
//! block, and apart from them its values, so that a sequence with consecutive blocks is read from one
//! place to the next; and what a short sequence needs is together, so that it takes few pages of the
//! system's memory. A block has its keys by column and its values by row:
//!
//! ```text
//! run 0: | keys   | head 0: block 0 [head_dim x BLOCK], block 1, ... | head 1: ...
//!        | values | head 0: block 0 [BLOCK x padded columns], ...    | head 1: ...
//! run 1: ...
//! ```
//!
//! Where values are the first columns of the keys, the keys lie as values do, once for both.
//!
//! What a number is made of says `simd/stored.rs`. Keys by column make a block's scores one fused
//! multiply-add per column for all its keys at once.
//!
//! Positions are cut into segments, counted from position 0. In each segment that a query sees any
//! of, it takes all scores, then their softmax, then the weighted sum of the values in ascending
//! order; the segments are then merged in ascending order, after the sink where there is one, by the
//! formula at `OpKernels::merge`. So what a query adds up, and in which order, depends on its position
//! and window alone, and segments may be computed anywhere: a tile of rows walks its segments one
//! after the other, or, where there are too few tiles for the threads, leaves each segment to a task
//! of its own and merges what these found. Not here: the arithmetic, which is in `simd/ops.rs`.

use std::ops::Range;

use backend::ops::{AttentionLayer, AttentionOps, HeadNorm};
use backend::{
    Attention, BlockId, DeviceError, KvFormat, KvGroup, NormOrder, NormSpan, Rope,
    Values as ValuesOf,
};

mod append;
mod blocks;
mod entry;
mod plan;
mod walk;

use crate::simd::{Keys, VALUE_PAD, Values, keys_len, values_len};
use crate::zeros::Zeros;
use crate::{Buf, Cpu, Staged, Vector};

pub(crate) use plan::Plan;
use walk::{Found, Walk};

/// Blocks that lie side by side.
const RUN: usize = 16;
/// Positions of a segment. Longer ones are read faster, shorter ones are shared by more threads.
const SEGMENT: usize = RUN * backend::BLOCK;

/// Keys and values of one layer, and room to plan a pass in.
pub struct Pages {
    format: KvFormat,
    /// Whose table says where its blocks are.
    group: KvGroup,
    /// Run after run, as told above.
    data: Zeros,
    kv_heads: usize,
    head_dim: usize,
    /// Columns of a head that are among the keys by column: all, or none where values are those of the
    /// keys.
    key_cols: usize,
    /// Columns of a row of values, or of the keys whose columns they are.
    row_cols: usize,
    /// `row_cols` rounded up to whole vectors.
    value_cols: usize,
}

impl Pages {
    /// Bytes of a block's keys, for one head.
    fn key_len(&self) -> usize {
        keys_len(self.format, self.key_cols)
    }

    /// Bytes of a block's values, for one head.
    fn value_len(&self) -> usize {
        values_len(self.format, self.value_cols)
    }

    /// Bytes of a run's keys, of all heads.
    fn run_keys(&self) -> usize {
        self.kv_heads * RUN * self.key_len()
    }

    /// Bytes of a run.
    fn run_len(&self) -> usize {
        self.run_keys() + self.kv_heads * RUN * self.value_len()
    }

    /// Where the keys of a block and head are.
    fn key_bytes(&self, block: u32, kv_head: usize) -> Range<usize> {
        let (run, slot) = (block as usize / RUN, block as usize % RUN);
        let start = run * self.run_len() + (kv_head * RUN + slot) * self.key_len();
        start..start + self.key_len()
    }

    /// Where its values are.
    fn value_bytes(&self, block: u32, kv_head: usize) -> Range<usize> {
        let (run, slot) = (block as usize / RUN, block as usize % RUN);
        let values = run * self.run_len() + self.run_keys();
        let start = values + (kv_head * RUN + slot) * self.value_len();
        start..start + self.value_len()
    }

    /// The keys and the values of a run: for each head those of all its blocks.
    fn run_mut(&mut self, run: usize) -> (&mut [u8], &mut [u8]) {
        let (start, len, keys) = (run * self.run_len(), self.run_len(), self.run_keys());
        self.data[start..start + len].split_at_mut(keys)
    }

    /// Columns of a query as it meets the keys.
    fn query_cols(&self) -> usize {
        if self.key_cols == 0 { self.value_cols } else { self.key_cols }
    }

    /// Keys of a block and head, by column.
    fn keys(&self, block: u32, kv_head: usize) -> Keys<'_> {
        Keys::new(self.format, self.key_cols, &self.data[self.key_bytes(block, kv_head)])
    }

    /// Values of a block and head, by row.
    fn values(&self, block: u32, kv_head: usize) -> Values<'_> {
        Values::new(self.format, self.value_cols, &self.data[self.value_bytes(block, kv_head)])
    }
}

impl AttentionOps for Cpu {
    type Pages = Pages;

    fn pages(&self, spec: &Attention, format: KvFormat, n_blocks: usize) -> Pages {
        let Attention { kv_heads, head_dim, .. } = *spec;
        let format = spec.kept_in(format);
        let (key_cols, row_cols) = match spec.values {
            ValuesOf::Own(cols) => (head_dim, cols),
            ValuesOf::OfKeys(_) => (0, head_dim),
        };
        let value_cols = row_cols.next_multiple_of(VALUE_PAD);
        let block_len = keys_len(format, key_cols) + values_len(format, value_cols);
        Pages {
            format,
            group: spec.group(),
            data: Zeros::new(n_blocks.next_multiple_of(RUN) * kv_heads * block_len),
            kv_heads,
            head_dim,
            key_cols,
            row_cols,
            value_cols,
        }
    }

    fn angles(&self, rope: &Rope, batch: &Staged, out: &mut Buf) {
        let pairs = rope.inv_freq.len();
        let out = out.reshape(batch.n_rows(), 2 * pairs);
        for span in &batch.spans {
            let out = &mut out[span.rows.start * 2 * pairs..span.rows.end * 2 * pairs];
            self.each_row(out, 2 * pairs, |row, out| {
                let (cos, sin) = out.split_at_mut(pairs);
                let position = (span.start + row) as f32;
                for ((cos, sin), inv_freq) in cos.iter_mut().zip(sin).zip(&rope.inv_freq) {
                    let (exact_sin, exact_cos) = libm::sincos(f64::from(position * inv_freq));
                    *cos = exact_cos as f32 * rope.attention_factor;
                    *sin = exact_sin as f32 * rope.attention_factor;
                }
            });
        }
    }

    fn rope(
        &self,
        qkv: &mut Buf,
        spec: &Attention,
        norm: Option<HeadNorm<'_, Vector>>,
        rotation: Option<(&Rope, &Buf)>,
    ) {
        let cols = qkv.cols();
        assert!(spec.has_rows_of(cols), "rows are [q | k | v], or q alone");
        let rotated = cols.min(spec.q_cols() + spec.k_cols());
        let is_due = |order| norm.filter(|norm| norm.order == order);
        let (before, after) = (is_due(NormOrder::BeforeRotation), is_due(NormOrder::AfterRotation));
        self.each_row(qkv.values_mut(), cols, |r, row| {
            let (row, values) = row.split_at_mut(rotated);
            self.norm_heads(row, spec, before);
            if let Some((rope, angles)) = rotation {
                for head in row.chunks_exact_mut(spec.head_dim) {
                    (self.kernels.ops.rotate)(head, rope.layout, angles.row(r));
                }
            }
            self.norm_heads(row, spec, after);
            if let Some(norm) = norm.and_then(|norm| norm.v) {
                values.chunks_exact_mut(spec.v_dim()).for_each(|x| self.norm_columns(norm, 0, x));
            }
        });
    }

    fn attend(
        &self,
        qkv: &Buf,
        layer: AttentionLayer<'_, Vector>,
        pages: &mut Pages,
        batch: &Staged,
        out: &mut Buf,
    ) {
        let spec = layer.spec;
        assert_eq!(qkv.cols(), spec.qkv_cols(), "rows are [q | k | v]");
        assert_eq!(pages.head_dim, spec.head_dim);
        self.plan().writes.run(self, qkv, spec, pages, batch);
        self.attend_stored(qkv, layer, pages, batch, out);
    }

    fn attend_stored(
        &self,
        q: &Buf,
        layer: AttentionLayer<'_, Vector>,
        pages: &Pages,
        batch: &Staged,
        out: &mut Buf,
    ) {
        let spec = layer.spec;
        assert!(spec.has_rows_of(q.cols()), "rows begin with q");
        assert_eq!(pages.head_dim, spec.head_dim);
        let mut plan = self.plan();
        plan.make(spec, batch, self.threads());
        let Plan { outputs, tiles, parts, found, queries, .. } = &mut *plan;
        let walk = |tile: usize| Walk {
            ops: self.kernels.ops,
            spec,
            sinks: layer.sinks.map(|sinks| &sinks.0[..]),
            pages,
            blocks: batch.blocks(&batch.spans[tiles[tile].span], pages.group),
            tile: &tiles[tile],
            output: &outputs[tile],
            q,
        };
        let (queries, cols) = (*queries, pages.value_cols);
        found.grow(parts.len() * queries, cols);
        self.pool.zip_chunks(
            (&mut found.running[..parts.len() * queries], queries),
            (&mut found.sums[..parts.len() * queries * cols], queries * cols),
            |i, running, sums| walk(parts[i].tile).part(parts[i].segment, Found { running, sums }),
        );
        let out = out.reshape(q.rows(), spec.out_cols());
        self.pool.blocks(out, spec.out_cols(), outputs, |i, mut out| {
            walk(i).whole(found, queries, &mut out);
        });
    }

    fn block_bytes(&self, pages: &Pages) -> usize {
        pages.block_bytes()
    }

    fn read_block(&self, pages: &Pages, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
        pages.read_block(block, out);
        Ok(())
    }

    fn write_block(&self, pages: &mut Pages, block: BlockId, bytes: &[u8]) {
        pages.write_block(block, bytes);
    }
}

impl Cpu {
    /// Norms the queries and keys of a `[q | k]` row.
    fn norm_heads(&self, row: &mut [f32], spec: &Attention, norm: Option<HeadNorm<'_, Vector>>) {
        let Some(HeadNorm { q, k, span, .. }) = norm else { return };
        let (queries, keys) = row.split_at_mut(spec.q_cols());
        for (x, norm) in [(queries, q), (keys, k)] {
            let len = if span == NormSpan::AllHeads { x.len().max(1) } else { spec.head_dim };
            for (i, x) in x.chunks_exact_mut(len).enumerate() {
                let first = if span == NormSpan::OwnHead { i * len } else { 0 };
                self.norm_columns(norm, first, x);
            }
        }
    }
}
