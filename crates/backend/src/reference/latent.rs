//! The two ends of latent attention, as loops.

use super::attention::rotate;
use super::dense::norm_row;
use super::{Buf, Reference, Weight, dot};
use crate::ops::{LatentKeys, LatentOps, LatentRows};
use crate::{Latent, LatentOrder, Rope};

impl LatentOps for Reference {
    fn latent_queries(
        &self,
        LatentRows { q, kept }: LatentRows<'_, Reference>,
        keys: LatentKeys<'_, Reference>,
        rotation: Option<(&Rope, &Buf)>,
        spec: &Latent,
        out: &mut Buf,
    ) {
        assert_eq!((q.cols, kept.cols), (spec.q_cols(), spec.kept_cols()), "rows of this spec");
        let (rank, width) = (spec.rank, spec.kept_cols());
        out.shape(q.rows, (spec.heads + 1) * width);
        let turn = |columns: &mut [f32], r: usize| {
            if let Some((rope, angles)) = rotation {
                rotate(columns, rope.layout, angles.row(r));
            }
        };
        for r in 0..q.rows {
            let (queries, key) = out.row_mut(r).split_at_mut(spec.heads * width);
            let heads = q.row(r).chunks_exact(spec.plain + spec.rotated);
            for (h, (q, out)) in heads.zip(queries.chunks_exact_mut(width)).enumerate() {
                let (plain, rotated) = q.split_at(spec.plain);
                let (latent, shared) = out.split_at_mut(rank);
                for (i, out) in latent.iter_mut().enumerate() {
                    *out = head_product(&keys, spec, (h, i), plain) as f32;
                }
                shared.copy_from_slice(rotated);
                turn(shared, r);
            }
            key.copy_from_slice(kept.row(r));
            let (latent, shared) = key.split_at_mut(rank);
            norm_row(latent, keys.norm);
            turn(shared, r);
        }
    }

    fn latent_values(&self, x: &Buf, w: &Weight, spec: &Latent, out: &mut Buf) {
        assert_eq!(x.cols, spec.heads * spec.rank, "a latent for each head");
        out.shape(x.rows, spec.v_cols());
        for r in 0..x.rows {
            let heads = x.row(r).chunks_exact(spec.rank);
            let outs = out.row_mut(r).chunks_exact_mut(spec.v_dim);
            for (h, (x, out)) in heads.zip(outs).enumerate() {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = dot(x, w.row(h * spec.v_dim + i)) as f32;
                }
            }
        }
    }
}

/// Number `i` of what head `h` makes of a query.
fn head_product(
    keys: &LatentKeys<'_, Reference>,
    spec: &Latent,
    (h, i): (usize, usize),
    q: &[f32],
) -> f64 {
    match keys.order {
        LatentOrder::ByOutput => dot(q, keys.weight.row(h * spec.rank + i)),
        LatentOrder::ByInput => {
            let rows = (h * spec.plain..).map(|row| keys.weight.row(row)[i]);
            q.iter().zip(rows).map(|(q, w)| f64::from(*q) * f64::from(w)).sum()
        }
    }
}
