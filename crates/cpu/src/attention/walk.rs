//! One tile at work: its rows walk the keys they see, segment by segment. Not here: the arithmetic,
//! which is in `simd/ops.rs`.

use std::cell::RefCell;
use std::f32::consts::LOG2_E;
use std::ops::Range;

use backend::{Attention, BLOCK, KvFormat, Values as ValuesOf};

use super::plan::{Softmaxes, Tile, blocks_of, seen};
use super::{Pages, SEGMENT};
use crate::simd::{BlockScores, Keys, OpKernels, Queries, Running, Values};
use crate::{Block, BlockMut, Buf};

/// What one thread computes with. Grows to what the largest layer needs, then stays.
#[derive(Default)]
struct Scratch {
    q: Laid,
    /// Scores, then weights: of one block after the other, all queries.
    weights: Vec<BlockScores>,
    /// Of the segments so far.
    merged: Softmaxes,
    /// Of the segment at hand.
    segment: Softmaxes,
}

/// Queries, one after the other, as the keys want them: floats, or codes and scales.
#[derive(Default)]
struct Laid {
    floats: Vec<f32>,
    /// An even number of each.
    codes: Vec<i16>,
    scales: Vec<f32>,
}

impl Laid {
    fn clear(&mut self) {
        self.floats.clear();
        self.codes.clear();
        self.scales.clear();
    }

    /// One more query in numbers, times `scale`, with so many zeros behind it.
    fn push_floats(&mut self, q: &[f32], scale: f32, padding: usize) {
        self.floats.extend(q.iter().map(|x| x * scale));
        self.floats.resize(self.floats.len() + padding, 0.0);
    }

    /// One more query in codes, which is to be multiplied with `scale`.
    fn push_codes(&mut self, ops: &OpKernels, q: &[f32], scale: f32) {
        let start = self.codes.len();
        self.codes.resize(start + q.len().next_multiple_of(2), 0);
        self.scales.push((ops.round_query)(q, &mut self.codes[start..][..q.len()]) * scale);
    }

    /// Some of them, of `cols` columns each.
    fn some(&self, queries: Range<usize>, cols: usize) -> Queries<'_> {
        let part = |each: usize| queries.start * each..queries.end * each;
        if self.scales.is_empty() {
            Queries { floats: &self.floats[part(cols)], codes: &[], scales: &[] }
        } else {
            let codes = &self.codes[part(cols.next_multiple_of(2))];
            Queries { floats: &[], codes, scales: &self.scales[queries] }
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A tile and what it works with.
pub(super) struct Walk<'a> {
    pub(super) ops: &'a OpKernels,
    pub(super) spec: &'a Attention,
    /// A logit per query head, if there are sinks.
    pub(super) sinks: Option<&'a [f32]>,
    pub(super) pages: &'a Pages,
    /// Blocks of the sequence.
    pub(super) blocks: &'a [u32],
    pub(super) tile: &'a Tile,
    pub(super) output: &'a Block,
    pub(super) q: &'a Buf,
}

/// Softmaxes of every query of a tile, from whoever computed them.
pub(super) struct Found<'a> {
    pub(super) running: &'a mut [Running],
    pub(super) sums: &'a mut [f32],
}

impl Walk<'_> {
    /// Attends to one segment.
    pub(super) fn part(&self, segment: usize, found: Found<'_>) {
        SCRATCH.with_borrow_mut(|Scratch { q, weights, .. }| {
            self.lay_out(q);
            self.segment(segment, q, weights, found);
        });
    }

    /// Attends to all segments, or takes what the tile's parts have found, `stride` queries each.
    pub(super) fn whole(&self, parts: &Softmaxes, stride: usize, out: &mut BlockMut<'_>) {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { q, weights, merged, segment: fresh } = scratch;
            let (cols, n) = (self.pages.value_cols, self.n_rows() * self.group());
            merged.grow(n, cols);
            self.begin(&mut merged.running[..n]);
            merged.sums[..n * cols].fill(0.0);
            fresh.grow(n, cols);
            self.lay_out(q);
            for (i, segment) in self.tile.segments.clone().enumerate() {
                let (first, found) = match self.tile.first_part {
                    Some(part) => ((part + i) * stride, parts),
                    None => {
                        let (running, sums) =
                            (&mut fresh.running[..n], &mut fresh.sums[..n * cols]);
                        self.segment(segment, q, weights, Found { running, sums });
                        (0, &*fresh)
                    }
                };
                for query in self.queries(self.rows_that_see(segment)) {
                    let later = &found.sums[(first + query) * cols..][..cols];
                    let sums = &mut merged.sums[query * cols..][..cols];
                    let running = &mut merged.running[query];
                    (self.ops.merge)(running, sums, found.running[first + query], later);
                }
            }
            self.divide(merged, out);
        });
    }

    /// What every query has seen before the first key: its sink, or nothing.
    fn begin(&self, running: &mut [Running]) {
        let Some(sinks) = self.sinks else { return running.fill(Running::START) };
        let group = self.group();
        let sinks = &sinks[self.tile.kv_head * group..][..group];
        for queries in running.chunks_exact_mut(group) {
            for (running, sink) in queries.iter_mut().zip(sinks) {
                *running = Running { max: sink * LOG2_E, sum: 1.0 };
            }
        }
    }

    /// Weighted means of the values.
    fn divide(&self, merged: &Softmaxes, out: &mut BlockMut<'_>) {
        let (group, cols) = (self.group(), self.pages.value_cols);
        for row in 0..self.n_rows() {
            let heads = out.row(row).chunks_exact_mut(self.spec.v_dim());
            for (query, out) in (row * group..).zip(heads) {
                let (sums, share) = (&merged.sums[query * cols..], 1.0 / merged.running[query].sum);
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * share);
            }
        }
    }

    fn n_rows(&self) -> usize {
        self.output.rows.len()
    }

    /// Query heads per key head.
    fn group(&self) -> usize {
        self.spec.heads / self.spec.kv_heads
    }

    fn queries(&self, rows: Range<usize>) -> Range<usize> {
        rows.start * self.group()..rows.end * self.group()
    }

    /// Positions that row `row` of the tile sees.
    fn seen(&self, row: usize) -> Range<usize> {
        seen(self.spec, self.tile.position + row)
    }

    /// Rows that see any position of a segment: neighbours.
    fn rows_that_see(&self, segment: usize) -> Range<usize> {
        let (first, end) = (segment * SEGMENT, (segment + 1) * SEGMENT);
        let start = first.saturating_sub(self.tile.position);
        let sees = |row: &usize| self.seen(*row).start < end;
        start..(start..self.n_rows()).take_while(sees).last().map_or(start, |row| row + 1)
    }

    /// Puts the queries one after the other, scaled so that scores come out as logarithms to base
    /// two, or natural ones if they are to be capped.
    fn lay_out(&self, q: &mut Laid) {
        q.clear();
        let to_base = if self.spec.soft_cap.is_some() { 1.0 } else { LOG2_E };
        let head_dim = self.spec.head_dim;
        let padding = self.pages.query_cols() - head_dim;
        let cols = self.group() * head_dim;
        for (row, position) in self.output.rows.clone().zip(self.tile.position..) {
            let scale = self.spec.scale_at(position) * to_base;
            let heads = &self.q.row(row)[self.tile.kv_head * cols..][..cols];
            for head in heads.chunks_exact(head_dim) {
                match self.pages.format {
                    KvFormat::Int16 => q.push_codes(self.ops, head, scale),
                    KvFormat::F16 | KvFormat::Int8 => q.push_floats(head, scale, padding),
                }
            }
        }
    }

    /// Attends to one segment with the rows that see any of it; `found` of the others stays as it
    /// is.
    fn segment(&self, segment: usize, q: &Laid, weights: &mut Vec<BlockScores>, found: Found<'_>) {
        let rows = self.rows_that_see(segment);
        let inside = |keys: Range<usize>| {
            keys.start.max(segment * SEGMENT)..keys.end.min((segment + 1) * SEGMENT)
        };
        let keys = inside(self.seen(rows.start)).start..inside(self.seen(rows.end - 1)).end;
        let (blocks, queries) = (blocks_of(&keys), self.queries(rows.clone()));
        let (n, cols, q_cols) = (queries.len(), self.pages.value_cols, self.pages.query_cols());
        if weights.len() < blocks.len() * n {
            weights.resize(blocks.len() * n, [0.0; BLOCK]);
        }
        let weights = &mut weights[..blocks.len() * n];

        let q = q.some(queries.clone(), q_cols);
        for (block, scores) in blocks.clone().zip(weights.chunks_exact_mut(n)) {
            match self.spec.values {
                ValuesOf::Own(_) => (self.ops.scores)(q, self.keys(block), scores),
                ValuesOf::OfKeys(_) => {
                    (self.ops.scores_by_row)(q.floats, self.values(block), scores)
                }
            }
        }

        let first = blocks.start * BLOCK;
        for row in rows.clone() {
            let seen = inside(self.seen(row));
            let seen = seen.start - first..seen.end - first;
            for query in self.queries(row..row + 1) {
                let weights = &mut weights[query - queries.start..];
                found.running[query] =
                    (self.ops.weigh)(weights, n, seen.clone(), self.spec.soft_cap);
            }
        }

        let sums = &mut found.sums[queries.start * cols..queries.end * cols];
        sums.fill(0.0);
        for (block, weights) in blocks.clone().zip(weights.chunks_exact(n)) {
            self.add(rows.clone(), block, weights, sums);
        }
    }

    /// Adds a block's values: together what all rows see, one row at a time the rest. Where they are whole
    /// numbers, a query's weights for the block are rounded together, so it is added at once.
    fn add(&self, rows: Range<usize>, block: usize, weights: &[BlockScores], sums: &mut [f32]) {
        let (position, values) = (block * BLOCK, self.values(block));
        if let Values::Int16(_) = values {
            return (self.ops.add_values)(weights, 0..BLOCK, values, sums);
        }
        let inside = |keys: Range<usize>| {
            let at = |key: usize| key.clamp(position, position + BLOCK) - position;
            at(keys.start)..at(keys.end)
        };
        let cols = self.pages.value_cols;
        let mut add = |some: Range<usize>, keys: Range<usize>| {
            if !keys.is_empty() {
                let (first, end) = (some.start - rows.start, some.end - rows.start);
                let queries = self.queries(first..end);
                let sums = &mut sums[queries.start * cols..queries.end * cols];
                (self.ops.add_values)(&weights[queries], keys, values, sums);
            }
        };
        let shared_end = self.seen(rows.start).end;
        let shared_start = self.seen(rows.end - 1).start.min(shared_end);
        for row in rows.clone() {
            let seen = self.seen(row);
            add(row..row + 1, inside(seen.start..shared_start.min(seen.end)));
        }
        add(rows.clone(), inside(shared_start..shared_end));
        for row in rows.clone() {
            let seen = self.seen(row);
            add(row..row + 1, inside(seen.start.max(shared_end)..seen.end));
        }
    }

    /// Keys by column of a block of the sequence.
    fn keys(&self, block: usize) -> Keys<'_> {
        self.pages.keys(self.blocks[block], self.tile.kv_head)
    }

    /// Values by row, or the keys whose columns they are.
    fn values(&self, block: usize) -> Values<'_> {
        self.pages.values(self.blocks[block], self.tile.kv_head)
    }
}
