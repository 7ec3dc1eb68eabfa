//! What tokens bring along for every layer: an entry of a table, added to a normed projection.
//!
//! Every op is a loop over rows; the arithmetic is that of the kernels for norms and gates.

use std::cell::RefCell;

use backend::ops::{LayerInputOps, RowsOf};
use backend::{Activation, LayerInputs, NormGain};

use crate::{Buf, Cpu, Staged, Vector, Weight, row_f32};

thread_local! {
    /// One row that an op reads and replaces. Grows to the longest one, then stays.
    static ROW: RefCell<Vec<f32>> = RefCell::default();
}

/// Calls `f` with room for `len` numbers of unspecified value.
pub(crate) fn with_row(len: usize, f: impl FnOnce(&mut [f32])) {
    ROW.with_borrow_mut(|row| {
        if row.len() < len {
            row.resize(len, 0.0);
        }
        f(&mut row[..len]);
    });
}

impl LayerInputOps for Cpu {
    fn layer_inputs(
        &self,
        x: &mut Buf,
        table: &Weight,
        gain: &Vector,
        spec: &LayerInputs,
        batch: &Staged,
    ) {
        let cols = x.cols();
        assert_eq!(x.rows(), batch.n_rows(), "a row per token");
        assert_eq!(cols, table.cols(), "a group per layer in both");
        self.each_row(x.values_mut(), cols, |r, row| {
            with_row(cols, |entry| {
                let token = batch.tokens[r] as usize;
                row_f32(table, if token < table.rows() { token } else { 0 }, entry);
                let groups = row.chunks_exact_mut(spec.width);
                for (group, entry) in groups.zip(entry.chunks_exact(spec.width)) {
                    (self.kernels.ops.normalize)(group, &gain.0, NormGain::Stored, spec.eps);
                    for (x, entry) in group.iter_mut().zip(entry) {
                        *x = (*x + *entry * spec.table_scale) * spec.scale;
                    }
                }
            });
        });
    }

    fn glu_with(
        &self,
        x: &mut Buf,
        act: Activation,
        inputs: &Buf,
        first: usize,
        rows: RowsOf<'_, Cpu>,
    ) {
        let cols = x.cols();
        self.each_row(x.values_mut(), cols, |r, row| {
            let from = match rows {
                RowsOf::Pass => r,
                RowsOf::Wanted(batch) => batch.want[r] as usize,
            };
            with_row(cols, |gate| {
                gate.copy_from_slice(row);
                (self.kernels.ops.glu)(act, gate, &inputs.row(from)[first..first + cols], row);
            });
        });
    }
}
