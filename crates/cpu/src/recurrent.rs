//! The gated delta rule: one task per sequence and key head, which steps through the sequence's
//! rows with the state of its value heads at hand.
//!
//! A state is kept in pieces, one per key head, so that tasks share nothing. A piece has the rows
//! that the convolution looks back at, of the head's own columns, then the matrices of its value
//! heads in strips of [`STATE_COLS`] columns, padded with zeros. A strip fits the first cache and
//! stays there while some rows go through it; the arithmetic of a row does not know how many did.
//! Not here: what a task does, which is in `head.rs`.

use std::sync::{PoisonError, RwLock};

use backend::ops::{DeltaWeights, RecurrentOps};
use backend::{DeviceError, GatedDelta, SlotId};

mod head;

use crate::simd::STATE_COLS;
use crate::{Block, Buf, Cpu, Staged, Vector};
use head::Head;

/// States of one layer.
pub struct States {
    /// Piece `head` of slot `slot` is number `slot * k_heads + head`. The locks are never waited
    /// for in a sound batch, whose tasks read and write different pieces.
    pieces: Vec<RwLock<Vec<f32>>>,
    k_heads: usize,
    piece: Piece,
}

/// Sizes of a piece of a state.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Columns of the head that are convolved: `[q | k | v]`.
    cols: usize,
    /// Numbers of the rows that the convolution looks back at.
    window: usize,
    /// Strips of a value head.
    strips: usize,
    /// Numbers of a strip.
    strip: usize,
    /// Numbers of all of it.
    len: usize,
}

impl Piece {
    fn of(spec: &GatedDelta) -> Piece {
        let cols = 2 * spec.k_dim + spec.group() * spec.v_dim;
        let window = (spec.taps - 1) * cols;
        let strips = spec.v_dim.div_ceil(STATE_COLS);
        let strip = spec.k_dim * STATE_COLS;
        Piece { cols, window, strips, strip, len: window + spec.group() * strips * strip }
    }
}

impl States {
    fn piece(&self, slot: SlotId, head: usize) -> &RwLock<Vec<f32>> {
        &self.pieces[slot as usize * self.k_heads + head]
    }

    /// All pieces of a slot.
    fn slot(&self, slot: SlotId) -> &[RwLock<Vec<f32>>] {
        &self.pieces[slot as usize * self.k_heads..][..self.k_heads]
    }
}

impl RecurrentOps for Cpu {
    type States = States;

    fn states(&self, spec: &GatedDelta, n_slots: usize) -> States {
        assert!(spec.taps >= 2 && spec.v_heads.is_multiple_of(spec.k_heads), "a sound layer");
        let piece = Piece::of(spec);
        let n_pieces = n_slots * spec.k_heads;
        let pieces = (0..n_pieces).map(|_| RwLock::new(vec![0.0; piece.len])).collect();
        States { pieces, k_heads: spec.k_heads, piece }
    }

    fn gated_delta(
        &self,
        x: &Buf,
        weights: DeltaWeights<'_, Vector>,
        spec: &GatedDelta,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        assert_eq!(x.cols(), spec.row_cols(), "rows are what the layout says");
        let cols = spec.group() * spec.v_dim;
        let mut outputs = self.heads();
        outputs.clear();
        for span in &batch.spans {
            let kept = batch.states_out(span);
            let is_read = |(_, slot): &(usize, SlotId)| Some(*slot) == span.state_in;
            assert!(!kept.iter().any(is_read), "a pass writes no state that it reads");
            outputs.extend((0..spec.k_heads).map(|head| Block {
                rows: span.rows.clone(),
                cols: head * cols..(head + 1) * cols,
            }));
        }
        let (out, states) = (out.reshape(x.rows(), spec.v_cols()), &*states);
        self.pool.blocks(out, spec.v_cols(), &outputs, |i, out| {
            let (span, head) = (&batch.spans[i / spec.k_heads], i % spec.k_heads);
            let (ops, place) = (self.kernels.ops, spec.place(head));
            Head { ops, spec, weights, states, head, place, x }.run(span, batch, out);
        });
    }

    fn state_bytes(&self, states: &States) -> usize {
        states.k_heads * states.piece.len * size_of::<f32>()
    }

    fn read_state(&self, states: &States, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(out.len(), self.state_bytes(states), "a whole state is read");
        let out = out.as_chunks_mut().0.chunks_exact_mut(states.piece.len);
        for (out, piece) in out.zip(states.slot(slot)) {
            let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
            out.iter_mut().zip(&*piece).for_each(|(out, x)| *out = x.to_le_bytes());
        }
        Ok(())
    }

    fn write_state(&self, states: &mut States, slot: SlotId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.state_bytes(states), "a whole state is written");
        let bytes = bytes.as_chunks().0.chunks_exact(states.piece.len);
        for (bytes, piece) in bytes.zip(states.slot(slot)) {
            let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
            piece.iter_mut().zip(bytes).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
        }
    }
}
