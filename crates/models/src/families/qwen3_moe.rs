//! Qwen3-MoE: the attention of Qwen3 and a mixture of experts.

use super::qwen2_moe::sparse_layers;
use super::qwen3::attention;
use super::*;
use crate::recipe::Shared;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let window = if c.is_on("use_sliding_window")? { c.positions("sliding_window")? } else { None };
    let attention = attention(&trunk, window, attention_bias(c)?);
    let ffns = sparse_layers(c, &trunk, Shared::None)?;
    let layers = ffns.into_iter().map(|ffn| trunk.pre_norm_layer(attention.clone(), ffn)).collect();
    Ok(trunk.spec("qwen3_moe", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2,
        "norm_topk_prob": true,
    })
}
