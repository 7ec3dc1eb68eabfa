//! Rotation and attention over pages of f16.
//!
//! A page holds, for one block and one key head, the keys by column and the values by row:
//!
//! ```text
//! block 0                                           block 1 ...
//! | head 0: keys [head_dim x BLOCK]                 |
//! |         values [BLOCK x padded head_dim]        |
//! | head 1: ...                                     |
//! ```
//!
//! Keys by column make a block's scores one fused multiply-add per column for all its keys at once.
//! A task takes some neighbouring rows of one sequence and the query heads that share a key head,
//! so that what it loads serves all of them; it walks the blocks in ascending order with a running
//! softmax per query. What a query adds up, and in which order, depends on its position alone. Not
//! here: the arithmetic, which is in `simd/ops.rs`.

use std::cell::RefCell;
use std::ops::Range;

use backend::ops::{AttentionOps, HeadNorm};
use backend::{Attention, BLOCK, Rope};

use crate::simd::{BlockScores, OpKernels, Running, Scoring};
use crate::{Block, BlockMut, Buf, Cpu, Staged, StagedSpan, Vector};

/// Queries of one task, about.
const QUERIES: usize = 32;
/// Values are padded to whole vectors.
const PAD: usize = 8;

/// Keys and values of one layer, and room to plan a pass in.
pub struct Pages {
    data: Vec<u16>,
    kv_heads: usize,
    head_dim: usize,
    /// `head_dim` rounded up to whole vectors.
    value_cols: usize,
    /// Outputs of the tasks of a pass.
    outputs: Vec<Block>,
    /// What each of them attends with.
    tiles: Vec<Tile>,
    /// One key in f16, on its way to its columns.
    narrow: Vec<u16>,
}

/// Some rows of one span, and one key head.
#[derive(Clone, Debug)]
struct Tile {
    /// Index of the span.
    span: usize,
    /// Position of the first row.
    position: usize,
    kv_head: usize,
}

/// What one thread computes with. Grows to what the largest layer needs, then stays.
#[derive(Default)]
struct Scratch {
    /// Queries, one after the other.
    q: Vec<f32>,
    /// Scores, then weights of the current block.
    weights: Vec<BlockScores>,
    running: Vec<Running>,
    /// Weighted sums of values, padded.
    sums: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Pages {
    fn head_len(&self) -> usize {
        BLOCK * (self.head_dim + self.value_cols)
    }

    /// Where keys and values of a block and head are.
    fn head(&self, block: u32, kv_head: usize) -> Range<usize> {
        let first = (block as usize * self.kv_heads + kv_head) * self.head_len();
        first..first + self.head_len()
    }

    /// Keys by column and values by row, of a block and head.
    fn read(&self, block: u32, kv_head: usize) -> (&[u16], &[u16]) {
        self.data[self.head(block, kv_head)].split_at(BLOCK * self.head_dim)
    }

    /// Stores one `[k | v]` row at `position`.
    fn write(&mut self, blocks: &[u32], position: usize, kv: &[f32], cpu: &Cpu) {
        let (block, slot) = (blocks[position / BLOCK], position % BLOCK);
        let (head_dim, value_cols) = (self.head_dim, self.value_cols);
        let (k, v) = kv.split_at(kv.len() / 2);
        let heads = k.chunks_exact(head_dim).zip(v.chunks_exact(head_dim));
        for (kv_head, (k, v)) in heads.enumerate() {
            let place = self.head(block, kv_head);
            let (keys, values) = self.data[place].split_at_mut(BLOCK * head_dim);
            (cpu.kernels.narrow)(k, &mut self.narrow);
            for (column, k) in keys.chunks_exact_mut(BLOCK).zip(&self.narrow) {
                column[slot] = *k;
            }
            (cpu.kernels.narrow)(v, &mut values[slot * value_cols..][..head_dim]);
        }
    }

    /// Cuts a pass into tasks, in the order of their outputs.
    fn plan(&mut self, spec: &Attention, batch: &Staged) {
        self.outputs.clear();
        self.tiles.clear();
        let group = spec.heads / spec.kv_heads;
        let n_rows = (QUERIES / group).max(1);
        for (span, rows) in batch.spans.iter().map(|span| &span.rows).enumerate() {
            for first in rows.clone().step_by(n_rows) {
                let tile_rows = first..(first + n_rows).min(rows.end);
                let position = batch.spans[span].start + first - rows.start;
                for kv_head in 0..spec.kv_heads {
                    let first_col = kv_head * group * spec.head_dim;
                    let cols = first_col..first_col + group * spec.head_dim;
                    self.outputs.push(Block { rows: tile_rows.clone(), cols });
                    self.tiles.push(Tile { span, position, kv_head });
                }
            }
        }
    }
}

impl AttentionOps for Cpu {
    type Pages = Pages;

    fn pages(&self, spec: &Attention, n_blocks: usize) -> Pages {
        let Attention { kv_heads, head_dim, .. } = *spec;
        let value_cols = head_dim.next_multiple_of(PAD);
        Pages {
            data: vec![0; n_blocks * kv_heads * BLOCK * (head_dim + value_cols)],
            kv_heads,
            head_dim,
            value_cols,
            outputs: Vec::new(),
            tiles: Vec::new(),
            narrow: vec![0; head_dim],
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
        assert_eq!(cols, spec.qkv_cols(), "rows are [q | k | v]");
        let ops = self.kernels.ops;
        self.each_row(qkv.values_mut(), cols, |r, row| {
            let heads = row.chunks_exact_mut(spec.head_dim);
            for (i, head) in heads.take(spec.heads + spec.kv_heads).enumerate() {
                if let Some(norm) = norm {
                    let gain = if i < spec.heads { norm.q } else { norm.k };
                    (ops.normalize)(head, &gain.0, norm.kind, norm.eps);
                }
                if let Some((rope, angles)) = rotation {
                    (ops.rotate)(head, rope.layout, angles.row(r));
                }
            }
        });
    }

    fn attend(
        &self,
        qkv: &Buf,
        spec: &Attention,
        pages: &mut Pages,
        batch: &Staged,
        out: &mut Buf,
    ) {
        assert_eq!(qkv.cols(), spec.qkv_cols(), "rows are [q | k | v]");
        assert_eq!((pages.kv_heads, pages.head_dim), (spec.kv_heads, spec.head_dim));
        for span in &batch.spans {
            for (row, position) in span.rows.clone().zip(span.start..) {
                let kv = &qkv.row(row)[spec.q_cols()..];
                pages.write(batch.blocks(span), position, kv, self);
            }
        }
        pages.plan(spec, batch);
        let pages = &*pages;
        let out = out.reshape(qkv.rows(), spec.q_cols());
        self.pool.blocks(out, spec.q_cols(), &pages.outputs, |i, mut out| {
            let (tile, output) = (&pages.tiles[i], &pages.outputs[i]);
            let span = &batch.spans[tile.span];
            let task = Task { ops: self.kernels.ops, spec, pages, batch, span, tile, output };
            SCRATCH.with_borrow_mut(|scratch| task.run(qkv, scratch, &mut out));
        });
    }
}

/// A tile at work.
struct Task<'a> {
    ops: &'a OpKernels,
    spec: &'a Attention,
    pages: &'a Pages,
    batch: &'a Staged,
    span: &'a StagedSpan,
    tile: &'a Tile,
    output: &'a Block,
}

impl Task<'_> {
    fn run(&self, qkv: &Buf, scratch: &mut Scratch, out: &mut BlockMut<'_>) {
        self.start(qkv, scratch);
        let n_rows = self.output.rows.len();
        let blocks = self.batch.blocks(self.span);
        let first = self.seen(0).start / BLOCK;
        let last = (self.seen(n_rows - 1).end - 1) / BLOCK;
        for (i, block) in blocks.iter().enumerate().take(last + 1).skip(first) {
            let page = self.pages.read(*block, self.tile.kv_head);
            self.block(i * BLOCK, page, scratch);
        }
        let group = self.group();
        let (head_dim, value_cols) = (self.spec.head_dim, self.pages.value_cols);
        for row in 0..n_rows {
            let heads = out.row(row).chunks_exact_mut(head_dim);
            for (query, out) in (row * group..).zip(heads) {
                let sums = &scratch.sums[query * value_cols..];
                let total = scratch.running[query].sum;
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / total);
            }
        }
    }

    /// Query heads per key head.
    fn group(&self) -> usize {
        self.spec.heads / self.spec.kv_heads
    }

    /// Positions that row `row` of the tile sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let end = self.tile.position + row + 1;
        let start = self.spec.window.map_or(0, |window| end.saturating_sub(window));
        start..end
    }

    /// Lays out the queries and empties the sums.
    fn start(&self, qkv: &Buf, scratch: &mut Scratch) {
        scratch.q.clear();
        for row in self.output.rows.clone() {
            scratch.q.extend_from_slice(&qkv.row(row)[self.output.cols.clone()]);
        }
        let n_queries = self.output.rows.len() * self.group();
        scratch.weights.resize(n_queries, [0.0; BLOCK]);
        scratch.running.clear();
        scratch.running.resize(n_queries, Running::START);
        scratch.sums.clear();
        scratch.sums.resize(n_queries * self.pages.value_cols, 0.0);
    }

    /// One block of keys and values, for the rows that see any of it.
    fn block(&self, position: usize, (keys, values): (&[u16], &[u16]), scratch: &mut Scratch) {
        let group = self.group();
        let (head_dim, value_cols) = (self.spec.head_dim, self.pages.value_cols);
        let n_rows = self.output.rows.len();
        let inside = |row: usize| {
            let seen = self.seen(row);
            seen.start.max(position) - position
                ..seen.end.clamp(position, position + BLOCK) - position
        };
        let sees = |row: &usize| inside(*row).start < inside(*row).end;
        let Some(first_row) = (0..n_rows).find(sees) else { return };
        let rows = first_row..(first_row..n_rows).take_while(sees).last().map_or(0, |row| row + 1);

        let queries = rows.start * group..rows.end * group;
        let q = &scratch.q[queries.start * head_dim..queries.end * head_dim];
        (self.ops.scores)(q, keys, &mut scratch.weights[queries]);

        let scoring = Scoring { scale: self.spec.scale, soft_cap: self.spec.soft_cap };
        let mut row = rows.start;
        while row < rows.end {
            // Neighbouring rows that see the same keys share the walk over the values.
            let seen = inside(row);
            let end = (row..rows.end).take_while(|row| inside(*row) == seen).last();
            let end = end.map_or(row + 1, |last| last + 1);
            let queries = row * group..end * group;
            for query in queries.clone() {
                let (weights, running) = (&mut scratch.weights[query], &mut scratch.running[query]);
                let correction = (self.ops.weigh)(weights, seen.clone(), scoring, running);
                if correction != 1.0 {
                    let sums = &mut scratch.sums[query * value_cols..][..value_cols];
                    sums.iter_mut().for_each(|sum| *sum *= correction);
                }
            }
            let sums = &mut scratch.sums[queries.start * value_cols..queries.end * value_cols];
            (self.ops.add_values)(&scratch.weights[queries], seen, values, sums);
            row = end;
        }
    }
}
