//! Ops for what a token brings along for every layer besides its embedding: Gemma's per-layer inputs.
//!
//! Not the layers' own inputs, which are the residual stream.

use super::Memory;
use crate::{Activation, LayerInputs};

/// Making the inputs of all layers at once, and handing one layer its own.
pub trait LayerInputOps: Memory {
    /// In place on rows of equal groups of `spec.width` columns, one group per layer:
    ///
    /// ```text
    /// x = (x / sqrt(mean(x^2) + eps) * gain + table[token of row] * table_scale) * scale
    /// ```
    ///
    /// The mean is that of a group; `gain` is as long as one; a row of `table` as long as one of `x`.
    /// A token that the table lacks has what token 0 has.
    fn layer_inputs(
        &self,
        x: &mut Self::Buf,
        table: &Self::Weight,
        gain: &Self::Vector,
        spec: &LayerInputs,
        batch: &Self::Staged,
    );
    /// `x = act(x) * inputs`, with the columns of `inputs` from `first` on, as many as `x` has.
    fn glu_with(
        &self,
        x: &mut Self::Buf,
        act: Activation,
        inputs: &Self::Buf,
        first: usize,
        rows: RowsOf<'_, Self>,
    );
}

/// Which of a pass's rows a buffer holds.
#[derive(Debug)]
pub enum RowsOf<'a, B: Memory + ?Sized> {
    /// All of them.
    Pass,
    /// Those that the batch wants, in its order.
    Wanted(&'a B::Staged),
}

// Written out because a derive would ask for `B: Copy`.
impl<B: Memory + ?Sized> Clone for RowsOf<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Memory + ?Sized> Copy for RowsOf<'_, B> {}
