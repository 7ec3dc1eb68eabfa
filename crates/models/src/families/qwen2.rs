//! Qwen2 and Qwen2.5: llama with biases on q, k and v.

use super::*;
use crate::recipe::{Bias, Ffn};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let layer = |window| {
        let mut attention = trunk.attention(window);
        attention.qkv_bias = Bias::Stored;
        trunk.pre_norm_layer(attention, ffn.clone())
    };
    let layers = upper_windows(c, &trunk)?.into_iter().map(layer).collect();
    Ok(trunk.spec("qwen2", vec![rope], layers))
}

/// Qwen's own rule: if windows are on at all, the layers from `max_window_layers` on have one.
pub(super) fn upper_windows(c: &Config, trunk: &Trunk) -> Result<Vec<Option<usize>>, Error> {
    if !c.is_on("use_sliding_window")? {
        return Ok(vec![None; trunk.n_layers]);
    }
    let first = c.count("max_window_layers")?.unwrap_or(28);
    let views = trunk.views(c, |i| if i < first { View::Full } else { View::Sliding })?;
    trunk.windows(c, &views)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
