//! The two ends of latent attention. What lies between them is ordinary attention.

use super::{Memory, RowNorm};
use crate::{Latent, LatentOrder, Rope};

/// From queries to the space of the latent, and from there to values.
pub trait LatentOps: Memory {
    /// `out = [q'_0 | q'_1 | ... | key]`: what [`super::AttentionOps::attend`] reads, its spec being
    /// [`Latent::attention`].
    ///
    /// ```text
    /// q'_h = [w_h q_h[..plain] | rotate(q_h[plain..])]      key = [norm(kept[..rank]) | rotate(kept[rank..])]
    /// ```
    ///
    /// `w_h` has `rank` rows and `plain` columns, or is stored the other way round, as
    /// [`LatentKeys::order`] says. Without a rotation those columns stay as they are.
    fn latent_queries(
        &self,
        rows: LatentRows<'_, Self>,
        keys: LatentKeys<'_, Self>,
        rotation: Option<(&Rope, &Self::Buf)>,
        spec: &Latent,
        out: &mut Self::Buf,
    );
    /// `out_h = w_h x_h`, where `x` has `rank` columns for each head and `w` as many rows for each
    /// as [`Latent::v_dim`].
    fn latent_values(&self, x: &Self::Buf, w: &Self::Weight, spec: &Latent, out: &mut Self::Buf);
}

/// What [`LatentOps::latent_queries`] reads.
#[derive(Debug)]
pub struct LatentRows<'a, B: Memory + ?Sized> {
    /// `[plain | rotated]` of every head.
    pub q: &'a B::Buf,
    /// `[latent | shared key]`, neither normed nor rotated.
    pub kept: &'a B::Buf,
}

/// The weights of [`LatentOps::latent_queries`].
#[derive(Debug)]
pub struct LatentKeys<'a, B: Memory + ?Sized> {
    /// The rows of all heads, one head after the other.
    pub weight: &'a B::Weight,
    /// What its rows are.
    pub order: LatentOrder,
    /// The norm of the latent.
    pub norm: RowNorm<'a, B::Vector>,
}
