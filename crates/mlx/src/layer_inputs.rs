//! What tokens bring along for every layer.

use backend::ops::{LayerInputOps, RowsOf};
use backend::{Activation, LayerInputs};

use crate::dense::activate;
use crate::ffi::Array;
use crate::{Buf, Mlx, Staged, Vector, Weight, indices};

impl LayerInputOps for Mlx {
    fn layer_inputs(
        &self,
        x: &mut Buf,
        table: &Weight,
        gain: &Vector,
        spec: &LayerInputs,
        batch: &Staged,
    ) {
        self.update(x, |x| {
            let known = |token: &u32| if (*token as usize) < table.n_rows() { *token } else { 0 };
            let tokens: Vec<u32> = batch.batch.tokens.iter().map(known).collect();
            let entries = table.rows_of(&indices(&tokens)?, self.dtype)?;
            let (rows, cols) = (x.dim(0), x.dim(1));
            let groups = x.reshape(&[rows, cols / spec.width, spec.width])?;
            let normed: Array = groups.rms_norm(Some(&gain.native), spec.eps)?;
            let sum = normed.reshape(&[rows, cols])?.add(&entries.times(spec.table_scale)?)?;
            sum.times(spec.scale)
        });
    }

    fn glu_with(
        &self,
        x: &mut Buf,
        act: Activation,
        inputs: &Buf,
        first: usize,
        rows: RowsOf<'_, Mlx>,
    ) {
        self.update(x, |x| {
            let inputs = inputs.get()?.slice(1, first..first + x.dim(1))?;
            let inputs = match rows {
                RowsOf::Pass => inputs,
                RowsOf::Wanted(batch) => inputs.take(batch.want()?, 0)?,
            };
            activate(x, act)?.multiply(&inputs)
        });
    }
}
