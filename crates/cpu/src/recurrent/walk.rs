//! One piece of one sequence's state at work: where it comes from, where it is kept, and what a rule
//! gets to see of that, which is some rows at a time.
//!
//! A tile of rows ends where a state is to be kept. Nothing else depends on where tiles end.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{PoisonError, RwLockWriteGuard};

use backend::SlotId;

use super::States;
use crate::BlockMut;
use crate::memory::StagedSpan;

/// Rows of a tile, at most: a strip of the state is loaded once for all of them.
pub(super) const TILE: usize = 32;

/// What a layer does to the pieces of its states.
pub(super) trait Rule: Sync {
    /// Columns of the output that belong to piece `piece`.
    fn cols(&self, piece: usize) -> Range<usize>;
    /// Takes some rows through the piece, and writes what comes out to their rows of `out`.
    fn tile(
        &self,
        piece: usize,
        rows: TileRows,
        state: &mut [f32],
        tile: &mut Tile,
        out: &mut BlockMut<'_>,
    );
}

/// At most [`TILE`] rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileRows {
    /// The first one, in the batch.
    pub(super) first: usize,
    /// The first one, in the span, which is that of the output.
    pub(super) out: usize,
    /// How many.
    pub(super) n: usize,
}

/// What one thread computes with. Grows to what the largest layer needs, then stays.
#[derive(Default)]
struct Scratch {
    /// The state, where the last row's is not to be kept.
    state: Vec<f32>,
    tile: Tile,
}

/// Some rows on their way through a piece.
#[derive(Default)]
pub(super) struct Tile {
    /// Columns to convolve as they come, the rows that the convolution looks back at before them.
    pub(super) fresh: Vec<f32>,
    /// The same convolved.
    pub(super) convolved: Vec<f32>,
    /// Two numbers for every row and head.
    pub(super) gates: Vec<[f32; 2]>,
    /// Decays of every row of the state, for every row.
    pub(super) decays: Vec<f32>,
    /// What is read for one head, padded to whole strips.
    pub(super) read: Vec<f32>,
    /// Gains that give q and k their length.
    pub(super) gains: [Vec<f32>; 2],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// All rows of a span, with a piece of its state.
pub(super) fn walk(
    rule: &impl Rule,
    (states, piece): (&States, usize),
    (span, mut kept): (&StagedSpan, &[(usize, SlotId)]),
    mut out: BlockMut<'_>,
) {
    SCRATCH.with_borrow_mut(|Scratch { state: own, tile }| {
        let n = span.rows.len();
        // The state that the last row leaves behind comes into being where it is to be.
        let mut place = match kept {
            [before @ .., (after, slot)] if after + 1 == n => {
                kept = before;
                Some(to_write(states, *slot, piece))
            }
            _ => None,
        };
        let state = match &mut place {
            Some(place) => &mut place[..],
            None => {
                own.resize(states.piece.len(), 0.0);
                &mut own[..]
            }
        };
        match span.state_in {
            Some(slot) => {
                let stored = states.piece(slot, piece).read();
                state.copy_from_slice(&stored.unwrap_or_else(PoisonError::into_inner));
            }
            None => state.fill(0.0),
        }
        let mut first = 0;
        while first < n {
            let stop = kept.first().map_or(n, |(after, _)| after + 1);
            let end = stop.min(first + TILE);
            let rows = TileRows { first: span.rows.start + first, out: first, n: end - first };
            rule.tile(piece, rows, state, tile, &mut out);
            if let [(_, slot), rest @ ..] = kept
                && end == stop
            {
                to_write(states, *slot, piece).copy_from_slice(state);
                kept = rest;
            }
            first = end;
        }
    });
}

fn to_write(states: &States, slot: SlotId, piece: usize) -> RwLockWriteGuard<'_, Vec<f32>> {
    states.piece(slot, piece).write().unwrap_or_else(PoisonError::into_inner)
}
