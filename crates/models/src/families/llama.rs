//! Llama and everything that is llama under another name (SmolLM2, Hermes, Yi, …).

use super::*;
use crate::recipe::{Ffn, GatedFfn};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let views = trunk.views(c, |_| View::Full)?;
    let windows = trunk.windows(c, &views)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let (attention, ffn) = parts(c, &trunk)?;
    let layer = |window| {
        let mut attention = attention.clone();
        attention.shape.window = window;
        trunk.pre_norm_layer(attention, Ffn::Gated(ffn.clone()))
    };
    let layers = windows.into_iter().map(layer).collect();
    Ok(trunk.spec("llama", vec![rope], layers))
}

/// Attention that sees everything and the feed-forward part, with the biases that the config names.
pub(super) fn parts(c: &Config, trunk: &Trunk) -> Result<(AttentionMixer, GatedFfn), Error> {
    let bias = attention_bias(c)?;
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    let mut ffn = trunk.gated(c.need_size("intermediate_size")?);
    ffn.bias = bias_switch(c, "mlp_bias")?;
    Ok((attention, ffn))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
