//! What tokens bring along for every layer, as loops.

use super::dense::norm_row;
use super::{Buf, Reference, Weight, activate};
use crate::ops::{LayerInputOps, RowNorm, RowsOf};
use crate::{Activation, Batch, LayerInputs, NormGain};

impl LayerInputOps for Reference {
    fn layer_inputs(
        &self,
        x: &mut Buf,
        table: &Weight,
        gain: &Vec<f32>,
        spec: &LayerInputs,
        batch: &Batch,
    ) {
        assert_eq!(x.rows, batch.tokens.len(), "a row per token");
        assert_eq!(x.cols, table.cols, "a group per layer in both");
        for (r, &token) in batch.tokens.iter().enumerate() {
            let token = token as usize;
            let entry = table.row(if token < table.rows { token } else { 0 });
            let groups = x.row_mut(r).chunks_exact_mut(spec.width);
            for (group, entry) in groups.zip(entry.chunks_exact(spec.width)) {
                norm_row(group, RowNorm::rms(gain, NormGain::Stored, spec.eps));
                for (x, entry) in group.iter_mut().zip(entry) {
                    let sum = f64::from(*x) + f64::from(*entry) * f64::from(spec.table_scale);
                    *x = (sum * f64::from(spec.scale)) as f32;
                }
            }
        }
    }

    fn glu_with(
        &self,
        x: &mut Buf,
        act: Activation,
        inputs: &Buf,
        first: usize,
        rows: RowsOf<'_, Reference>,
    ) {
        for r in 0..x.rows {
            let from = match rows {
                RowsOf::Pass => r,
                RowsOf::Wanted(batch) => batch.want[r] as usize,
            };
            for (x, input) in x.row_mut(r).iter_mut().zip(&inputs.row(from)[first..]) {
                *x = (activate(act, *x) * f64::from(*input)) as f32;
            }
        }
    }
}
