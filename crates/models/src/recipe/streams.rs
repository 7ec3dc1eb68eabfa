//! What goes from layer to layer, and what a step adds to: one residual stream, or several.

use super::{Bias, Norm};

/// What goes from layer to layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Streams {
    /// One residual stream.
    One,
    /// Several, of which layers compute with one and guess the others.
    AltUp(AltUp),
}

/// Alternating updates (Baykal et al., 2023), as Gemma 3n has them: all streams begin as projections of
/// the embedding, and the mean of projections of them is what comes out. In front of a layer every
/// stream becomes a mixture of all, weighted by what a router makes of the active one, which then goes
/// through the steps of the layer. What that changes is added to all streams, weighted likewise.
#[derive(Clone, Debug, PartialEq)]
pub struct AltUp {
    /// How many streams.
    pub n: usize,
    /// Which one layers compute with.
    pub active: usize,
    /// Whether [`Skip::OtherStreams`] multiplies the active stream with stored numbers.
    pub correct_scale: Bias,
    /// The norm in front of the router.
    pub router_norm: Norm,
}

/// What a step adds to.
#[derive(Clone, Debug, PartialEq)]
pub enum Skip {
    /// The residual stream, or the active one.
    Stream,
    /// More than that.
    Laurel(Laurel),
    /// The streams but the first, after all of them have been corrected by what the steps before have
    /// made of the active one. Needs [`Streams::AltUp`]; one step of every layer is of this kind.
    OtherStreams,
}

/// A learned augmented residual (LAuReL; Menghani et al., 2024), beside the stream `x`:
/// `x = scale * (x + n + norm(right(left(n))) + after(branches))`, where `n = before(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Laurel {
    /// Columns between `laurel.linear_left` and `laurel.linear_right`.
    pub rank: usize,
    /// The norm of what they say.
    pub norm: Norm,
    /// What the sum is multiplied with.
    pub scale: f32,
}
