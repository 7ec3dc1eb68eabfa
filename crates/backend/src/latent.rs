//! Shapes of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), as plain data. The ops are
//! [`crate::ops::LatentOps`] and, between them, [`crate::ops::AttentionOps::attend`].
//!
//! What is kept of a position is its latent, out of which the keys and values of all heads could be
//! made, and one rotated key that all heads share. Nobody makes those keys and values: a query is
//! taken to the latent instead, and what attention gives is taken back. That is the same product in
//! another order, for one row as for many.

use crate::{Attention, Values};

/// The sizes of a latent attention layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Query heads.
    pub heads: usize,
    /// Columns of the latent.
    pub rank: usize,
    /// Columns of a query head that meet the latent, its first ones.
    pub plain: usize,
    /// Columns of a query head that meet the shared key, its last ones. They may be rotated.
    pub rotated: usize,
    /// Columns of a head of values.
    pub v_dim: usize,
    /// What scores are multiplied with before the softmax.
    pub scale: f32,
}

impl Latent {
    /// Columns of a row of queries: `[plain | rotated]` of each head.
    pub fn q_cols(&self) -> usize {
        self.heads * (self.plain + self.rotated)
    }

    /// Columns of what is kept of a position: `[latent | shared key]`.
    pub fn kept_cols(&self) -> usize {
        self.rank + self.rotated
    }

    /// Attention in the space of the latent: all query heads read one key, whose first columns are
    /// the value.
    pub fn attention(&self) -> Attention {
        Attention {
            heads: self.heads,
            kv_heads: 1,
            head_dim: self.kept_cols(),
            values: Values::OfKeys(self.rank),
            scale: self.scale,
            growth: None,
            window: None,
            soft_cap: None,
        }
    }

    /// Columns of a row of values, which the output projection reads.
    pub fn v_cols(&self) -> usize {
        self.heads * self.v_dim
    }
}

/// How a weight of a [`Latent`] layer that takes queries to the latent lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatentOrder {
    /// `rank` rows of `plain` columns for each head: multiplied like any linear layer.
    ByOutput,
    /// `plain` rows of `rank` columns for each head, which is how a projection from the latent to
    /// keys is stored: a query's numbers weigh its rows.
    ByInput,
}
