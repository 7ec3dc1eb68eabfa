//! The two ends of latent attention.

use backend::ops::{LatentKeys, LatentOps, LatentRows};
use backend::{Latent, LatentOrder, Rope};

use crate::attention::rotate;
use crate::ffi::{Array, Fault, concatenate};
use crate::{Buf, Mlx, Weight};

impl LatentOps for Mlx {
    fn latent_queries(
        &self,
        LatentRows { q, kept }: LatentRows<'_, Mlx>,
        keys: LatentKeys<'_, Mlx>,
        rotation: Option<(&Rope, &Buf)>,
        spec: &Latent,
        out: &mut Buf,
    ) {
        let turn = |x: Array| match rotation {
            Some((rope, angles)) => rotate(&x, rope.layout, angles.get()?),
            None => Ok(x),
        };
        self.fill(out, || {
            let (q, kept) = (q.get()?, kept.get()?);
            let rows = q.dim(0);
            let (heads, plain, width) = (spec.heads, spec.plain, spec.kept_cols());
            if rows == 0 {
                return Array::zeros(&[0, (heads + 1) * width], self.dtype);
            }
            let q = q.reshape(&[rows, heads, plain + spec.rotated])?;
            let latent = self.to_latent(&q.slice(2, 0..plain)?, &keys, spec)?;
            let rotated = turn(q.slice(2, plain..plain + spec.rotated)?)?;
            let queries = concatenate(&[&latent, &rotated], 2)?.reshape(&[rows, heads * width])?;
            let latent = self.normed(&kept.slice(1, 0..spec.rank)?, keys.norm)?;
            let shared = kept.slice(1, spec.rank..width)?.reshape(&[rows, 1, spec.rotated])?;
            let shared = turn(shared)?.reshape(&[rows, spec.rotated])?;
            concatenate(&[&queries, &latent, &shared], 1)
        });
    }

    fn latent_values(&self, x: &Buf, w: &Weight, spec: &Latent, out: &mut Buf) {
        self.fill(out, || {
            let x = x.get()?;
            let rows = x.dim(0);
            if rows == 0 {
                return Array::zeros(&[0, spec.v_cols()], self.dtype);
            }
            let heads = x.reshape(&[rows, spec.heads, spec.rank])?.transpose(&[1, 0, 2])?;
            let values = w.stack(spec.heads, self.dtype)?.multiply(&heads)?;
            values.transpose(&[1, 0, 2])?.reshape(&[rows, spec.v_cols()])
        });
    }
}

impl Mlx {
    /// `[rows, heads, plain]` to `[rows, heads, rank]`.
    fn to_latent(
        &self,
        q: &Array,
        keys: &LatentKeys<'_, Mlx>,
        spec: &Latent,
    ) -> Result<Array, Fault> {
        let weight: &Weight = keys.weight;
        let (stack, q) = (weight.stack(spec.heads, self.dtype)?, q.transpose(&[1, 0, 2])?);
        let latent = match keys.order {
            LatentOrder::ByOutput => stack.multiply(&q),
            LatentOrder::ByInput => stack.multiply_plain(&q),
        };
        latent?.transpose(&[1, 0, 2])
    }
}
