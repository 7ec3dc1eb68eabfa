//! Layers with a state: one task per sequence and piece of the state, which steps through the
//! sequence's rows with its piece at hand.
//!
//! A state is kept in pieces, so that tasks share nothing: a few heads each, or some columns where
//! there is nothing but a convolution. A piece has the rows that the convolution looks back at, of the
//! columns it needs, then its heads' matrices in strips of [`STATE_COLS`] columns, padded with zeros.
//! A strip fits the first cache and stays there while some rows go through it; the arithmetic of a
//! row does not know how many did.
//!
//! Here and in `walk.rs` is what all such layers have in common. What is done to a piece is in a file
//! for each rule.

use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use backend::ops::{ConvWeights, DeltaRows, DeltaWeights, Mamba2Weights, RecurrentOps};
use backend::{DeviceError, GatedDelta, Mamba2, ReadOrder, Recurrence, ShortConv, SlotId};

mod convolve;
mod delta;
mod mamba2;
mod short_conv;
mod walk;

use crate::simd::STATE_COLS;
use crate::{Block, Buf, Cpu, Staged, Vector};
use walk::Rule;

/// States of one layer.
pub struct States {
    /// Piece `i` of slot `slot` is number `slot * n_pieces + i`. The locks are never waited for in a
    /// sound batch, whose tasks read and write different pieces.
    pieces: Vec<RwLock<Vec<f32>>>,
    /// Pieces of a slot.
    n_pieces: usize,
    piece: Piece,
}

/// Sizes of a piece of a state.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Columns that are convolved.
    cols: usize,
    /// Rows that the convolution looks back at.
    rows: usize,
    /// Heads.
    heads: usize,
    /// Strips of a head.
    strips: usize,
    /// Numbers of a strip.
    strip: usize,
}

impl Piece {
    /// Numbers of the rows that the convolution looks back at.
    fn window(&self) -> usize {
        self.rows * self.cols
    }

    /// Numbers of all of it.
    fn len(&self) -> usize {
        self.window() + self.heads * self.strips * self.strip
    }

    /// The pieces of a state, and how many there are.
    fn of(spec: &Recurrence) -> (Piece, usize) {
        match spec {
            Recurrence::GatedDelta(spec) => (delta::piece(spec), spec.k_heads),
            Recurrence::Mamba2(spec) => (mamba2::piece(spec), mamba2::n_pieces(spec)),
            Recurrence::ShortConv(spec) => (short_conv::piece(spec), short_conv::n_pieces(spec)),
        }
    }
}

impl States {
    fn piece(&self, slot: SlotId, piece: usize) -> &RwLock<Vec<f32>> {
        &self.pieces[slot as usize * self.n_pieces + piece]
    }

    /// All pieces of a slot.
    fn slot(&self, slot: SlotId) -> &[RwLock<Vec<f32>>] {
        &self.pieces[slot as usize * self.n_pieces..][..self.n_pieces]
    }
}

impl RecurrentOps for Cpu {
    type States = States;

    fn states(&self, spec: &Recurrence, n_slots: usize) -> States {
        let (piece, n_pieces) = Piece::of(spec);
        assert!(piece.rows >= 1, "a convolution looks back");
        let new = |_| RwLock::new(vec![0.0; piece.len()]);
        States { pieces: (0..n_slots * n_pieces).map(new).collect(), n_pieces, piece }
    }

    fn gated_delta(
        &self,
        x: DeltaRows<'_, Buf>,
        weights: DeltaWeights<'_, Vector>,
        spec: &GatedDelta,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        assert_eq!(x.qkv.cols(), spec.row_cols(), "rows are what the layout says");
        out.reshape(x.qkv.rows(), spec.v_cols());
        let piece = states.piece;
        let rule = delta::Delta { ops: self.kernels.ops, spec, weights, x, piece };
        self.take_through(&rule, states, batch, out);
        if spec.read_order == ReadOrder::InTurn {
            self.each_row(out.values_mut(), spec.v_cols(), |_, row| delta::in_turn(row, spec));
        }
    }

    fn mamba2(
        &self,
        x: &Buf,
        weights: Mamba2Weights<'_, Vector>,
        spec: &Mamba2,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        assert_eq!(x.cols(), spec.row_cols(), "rows have all parts");
        out.reshape(x.rows(), spec.inner());
        let piece = states.piece;
        let rule = mamba2::Ssm { ops: self.kernels.ops, spec, weights, x, piece };
        self.take_through(&rule, states, batch, out);
        // Norms go over the columns of several pieces.
        self.each_row(out.values_mut(), spec.inner(), |row, out| rule.gate(row, out));
    }

    fn short_conv(
        &self,
        x: &Buf,
        weights: ConvWeights<'_, Vector>,
        spec: &ShortConv,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        assert_eq!(x.cols(), spec.row_cols(), "rows have all parts");
        out.reshape(x.rows(), spec.cols);
        let rule = short_conv::Gated { ops: self.kernels.ops, spec, weights, x };
        self.take_through(&rule, states, batch, out);
    }

    fn state_bytes(&self, states: &States) -> usize {
        states.n_pieces * states.piece.len() * size_of::<f32>()
    }

    fn read_state(&self, states: &States, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(out.len(), self.state_bytes(states), "a whole state is read");
        let out = out.as_chunks_mut().0.chunks_exact_mut(states.piece.len());
        for (out, piece) in out.zip(states.slot(slot)) {
            let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
            out.iter_mut().zip(&*piece).for_each(|(out, x)| *out = x.to_le_bytes());
        }
        Ok(())
    }

    fn write_state(&self, states: &mut States, slot: SlotId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.state_bytes(states), "a whole state is written");
        let bytes = bytes.as_chunks().0.chunks_exact(states.piece.len());
        for (bytes, piece) in bytes.zip(states.slot(slot)) {
            let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
            piece.iter_mut().zip(bytes).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
        }
    }
}

impl Cpu {
    /// Takes the rows of all sequences through all pieces of their states.
    fn take_through(&self, rule: &impl Rule, states: &States, batch: &Staged, out: &mut Buf) {
        let mut outputs = self.heads();
        outputs.clear();
        for span in &batch.spans {
            let kept = batch.states_out(span);
            let is_read = |(_, slot): &(usize, SlotId)| Some(*slot) == span.state_in;
            assert!(!kept.iter().any(is_read), "a pass writes no state that it reads");
            let block = |piece| Block { rows: span.rows.clone(), cols: rule.cols(piece) };
            outputs.extend((0..states.n_pieces).map(block));
        }
        let cols = out.cols();
        self.pool.blocks(out.values_mut(), cols, &outputs, |i, out| {
            let (span, piece) = (&batch.spans[i / states.n_pieces], i % states.n_pieces);
            walk::walk(rule, (states, piece), (span, batch.states_out(span)), out);
        });
    }
}

/// Strips of a head of `cols` columns.
fn strips(cols: usize) -> usize {
    cols.div_ceil(STATE_COLS)
}

/// Columns of strip `strip` of a head of `cols` columns.
fn strip_cols(strip: usize, cols: usize) -> Range<usize> {
    strip * STATE_COLS..((strip + 1) * STATE_COLS).min(cols)
}
