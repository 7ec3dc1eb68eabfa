//! Multi-head latent attention as a family file describes it.

use backend::Latent;

use super::{Bias, Norm};

/// Multi-head latent attention with its projections.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentMixer {
    /// Heads, widths and scale.
    pub shape: Latent,
    /// How queries are made.
    pub query: LatentQuery,
    /// The norm of the latent.
    pub norm: Norm,
    /// Whether the projections that read or write the residual stream have biases, a direct one to
    /// queries excepted.
    pub bias: Bias,
    /// Index into [`super::ModelSpec::ropes`]; `None` leaves the shared key as it is.
    pub rope: Option<usize>,
}

/// How latent attention makes its queries.
#[derive(Clone, Debug, PartialEq)]
pub enum LatentQuery {
    /// By one projection, `q_proj`.
    Direct,
    /// By one to fewer columns, `q_a_proj`, a norm, and one from there, `q_b_proj`.
    LowRank {
        /// Columns between.
        rank: usize,
        /// The norm between.
        norm: Norm,
    },
}
