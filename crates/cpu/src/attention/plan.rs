//! Cutting a pass into tasks. No arithmetic: how a pass is cut shows in no result.

use std::ops::Range;

use backend::{Attention, BLOCK};

use super::SEGMENT;
use super::append::Writes;
use crate::simd::Running;
use crate::{Block, Staged};

/// Queries of one task, about.
const QUERIES: usize = 64;
/// Tasks per thread that make up for their differences.
const TASKS_PER_THREAD: usize = 4;

/// Tasks of a pass, and room for what they leave to each other. Grows to what the largest pass
/// needs, then stays.
#[derive(Default)]
pub(crate) struct Plan {
    /// What goes to the pages first.
    pub(super) writes: Writes,
    /// What each tile gives.
    pub(super) outputs: Vec<Block>,
    /// What each of them attends with.
    pub(super) tiles: Vec<Tile>,
    /// Segments that are tasks of their own.
    pub(super) parts: Vec<Part>,
    /// What the parts found.
    pub(super) found: Softmaxes,
    /// Queries of the largest tile.
    pub(super) queries: usize,
}

/// Some rows of one span, and one key head.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    /// Index of the span.
    pub(super) span: usize,
    /// Position of the first row.
    pub(super) position: usize,
    pub(super) kv_head: usize,
    /// Segments that its rows see.
    pub(super) segments: Range<usize>,
    /// Its first part, if its segments are tasks of their own.
    pub(super) first_part: Option<usize>,
}

/// One segment of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) tile: usize,
    pub(super) segment: usize,
}

/// Softmaxes of some queries over some keys, not yet divided by their sums.
#[derive(Default)]
pub(super) struct Softmaxes {
    pub(super) running: Vec<Running>,
    /// Weighted sums of values, padded.
    pub(super) sums: Vec<f32>,
}

impl Softmaxes {
    /// Makes room for `queries` queries whose sums have `cols` columns.
    pub(super) fn grow(&mut self, queries: usize, cols: usize) {
        if self.running.len() < queries {
            self.running.resize(queries, Running::START);
        }
        if self.sums.len() < queries * cols {
            self.sums.resize(queries * cols, 0.0);
        }
    }
}

/// Positions that the row at `position` sees.
pub(super) fn seen(spec: &Attention, position: usize) -> Range<usize> {
    spec.window.map_or(0, |window| (position + 1).saturating_sub(window))..position + 1
}

impl Plan {
    /// Plans a pass, its tiles in the order of their outputs.
    pub(super) fn make(&mut self, spec: &Attention, batch: &Staged, threads: usize) {
        self.outputs.clear();
        self.tiles.clear();
        let group = spec.heads / spec.kv_heads;
        let n_rows = (QUERIES / group).max(1);
        for (span, rows) in batch.spans.iter().map(|span| &span.rows).enumerate() {
            for first in rows.clone().step_by(n_rows) {
                let rows = first..(first + n_rows).min(rows.end);
                let position = batch.spans[span].start + first - batch.spans[span].rows.start;
                let last = position + rows.len() - 1;
                let segments = seen(spec, position).start / SEGMENT..last / SEGMENT + 1;
                for kv_head in 0..spec.kv_heads {
                    let cols = kv_head * group * spec.v_dim()..(kv_head + 1) * group * spec.v_dim();
                    let segments = segments.clone();
                    self.outputs.push(Block { rows: rows.clone(), cols });
                    self.tiles.push(Tile { span, position, kv_head, segments, first_part: None });
                }
            }
        }
        self.queries = self.outputs.iter().map(|block| block.rows.len()).max().unwrap_or(0) * group;
        self.split(threads);
    }

    /// Gives the segments of a tile to several tasks where the tile alone is more than a task should
    /// be.
    fn split(&mut self, threads: usize) {
        self.parts.clear();
        let total: usize = self.tiles.iter().map(|tile| tile.segments.len()).sum();
        let most = total / (threads * TASKS_PER_THREAD);
        if threads == 1 {
            return;
        }
        for (i, tile) in self.tiles.iter_mut().enumerate() {
            if tile.segments.len() > most.max(1) {
                tile.first_part = Some(self.parts.len());
                let part = |segment| Part { tile: i, segment };
                self.parts.extend(tile.segments.clone().map(part));
            }
        }
    }
}

/// Blocks that hold the positions `keys`.
pub(super) fn blocks_of(keys: &Range<usize>) -> Range<usize> {
    keys.start / BLOCK..keys.end.div_ceil(BLOCK)
}
