//! Mistral, alone or as the language model of a vision model: llama without any biases, layers behind
//! a sliding window if there is one.

use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"sliding_window": 4096}));
    let trunk = Trunk::read(c)?;
    let window = c.positions("sliding_window")?;
    let views = trunk.views(c, |_| if window.is_some() { View::Sliding } else { View::Full })?;
    let ffn = trunk.gated(c.need_size("intermediate_size")?);
    let rope = RopeParams::read(c, "sliding_attention")?.rope(trunk.rope_shape(context))?;
    let layer = |window| trunk.pre_norm_layer(trunk.attention(window), Ffn::Gated(ffn.clone()));
    let layers = trunk.windows(c, &views)?.into_iter().map(layer).collect();
    Ok(trunk.spec("mistral", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"sliding_window": 40})
}
