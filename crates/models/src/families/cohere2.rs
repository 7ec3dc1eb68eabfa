//! Command R7B and Command A: Command R with a window in three of four layers, and only these rotate.

use super::cohere::{attention, finish, parallel_layer, with_usual_values};
use super::*;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let period = c.count("sliding_window_pattern")?.unwrap_or(4).max(1);
    let is_full = |i: usize| (i + 1).is_multiple_of(period);
    let views = trunk.views(c, |i| if is_full(i) { View::Full } else { View::Sliding })?;
    let windows = trunk.windows(c, &views)?;
    let rope = RopeParams::read(c, "sliding_attention")?.rope(trunk.rope_shape(context))?;
    let attention = attention(c, &trunk)?;
    let layer = |window: Option<usize>| {
        let mut attention = attention.clone();
        attention.shape.window = window;
        attention.rope = window.map(|_| 0);
        parallel_layer(c, &trunk, attention)
    };
    let layers = windows.into_iter().map(layer).collect::<Result<_, Error>>()?;
    finish(c, trunk.spec("cohere2", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "tie_word_embeddings": true, "logit_scale": 0.5, "sliding_window": 40,
        "sliding_window_pattern": 2,
    })
}
