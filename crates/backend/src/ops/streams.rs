//! Ops for models whose layers hand on several residual streams, of which they compute with one: AltUp
//! (Baykal et al., "Alternating Updates for Efficient Transformers", 2023).
//!
//! Streams lie side by side in the columns of one buffer. Making coefficients of rows is the business
//! of linear layers.

use super::Memory;

/// Below this a mean square counts as this much.
pub const LEAST_MEAN_SQUARE: f32 = 1e-5;

/// Streams taken apart, predicted, corrected, and brought to one size.
pub trait StreamOps: Memory {
    /// `x *= sqrt(mean(like^2)) / sqrt(max(mean(x^2), LEAST_MEAN_SQUARE))`, for each group of columns
    /// of `x` that is as wide as `like`.
    fn match_size(&self, x: &mut Self::Buf, like: &Self::Buf);
    /// `out` = stream `i` of `n`, which `place` says, number by number times `gain` if there is one.
    fn stream(
        &self,
        streams: &Self::Buf,
        place: (usize, usize),
        gain: Option<&Self::Vector>,
        out: &mut Self::Buf,
    );
    /// `s_i += sum over j of c[i * n + j] * s_j`, from the streams as they were; `n * n` columns of `c`.
    fn predict_streams(&self, streams: &mut Self::Buf, c: &Self::Buf);
    /// `s_i += (1 + c[i]) * (x - s_active)`, from the streams as they were; a column of `c` per stream.
    fn correct_streams(&self, streams: &mut Self::Buf, c: &Self::Buf, x: &Self::Buf, active: usize);
    /// `s_i += y` for all streams but the first.
    fn add_to_other_streams(&self, streams: &mut Self::Buf, y: &Self::Buf);
}
