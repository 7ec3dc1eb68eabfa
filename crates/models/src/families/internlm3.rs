//! InternLM3: llama with a switch of its own for the biases of q, k and v.

use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let switch = |old, new| bias_switch(c, if c.get(old).is_some() { old } else { new });
    let bias = switch("bias", "mlp_bias")?;
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (switch("qkv_bias", "attention_bias")?, bias);
    let mut ffn = trunk.gated(c.need_size("intermediate_size")?);
    ffn.bias = bias;
    let layers = vec![trunk.pre_norm_layer(attention, Ffn::Gated(ffn)); trunk.n_layers];
    Ok(trunk.spec("internlm3", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"qkv_bias": true})
}
