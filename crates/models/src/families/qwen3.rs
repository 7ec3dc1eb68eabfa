//! Qwen3: llama with a norm on every head of q and k.

use super::qwen2::upper_windows;
use super::*;
use crate::recipe::{Bias, Ffn};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"head_dim": 128}));
    let trunk = Trunk::read(c)?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = attention_bias(c)?;
    let layer = |window| trunk.pre_norm_layer(attention(&trunk, window, bias), ffn.clone());
    let layers = upper_windows(c, &trunk)?.into_iter().map(layer).collect();
    Ok(trunk.spec("qwen3", vec![rope], layers))
}

/// The attention of Qwen3, dense or not.
pub(super) fn attention(trunk: &Trunk, window: Option<usize>, bias: Bias) -> AttentionMixer {
    let mut attention = trunk.attention(window);
    attention.head_norm = Some(trunk.head_norm());
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    attention
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
