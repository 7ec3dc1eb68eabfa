//! GLM-4-9B as first published: llama with gate and up in one matrix, biases on q, k and v, and half
//! of every head rotating by neighbouring columns.

use super::*;
use crate::recipe::{Ffn, GateUp};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let layer = trunk.pre_norm_layer(attention(c, &trunk)?, ffn(c, &trunk)?);
    let layers = vec![layer; trunk.n_layers];
    let ropes = vec![rope(c, &trunk, context)?];
    Ok(trunk.spec("glm", ropes, layers))
}

/// What configs of this kind leave out.
pub(super) fn with_usual_values<'a>(c: &Config<'a>) -> Config<'a> {
    c.with_defaults(json!({
        "head_dim": 128, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7,
        "rope_interleaved": true, "attention_bias": true,
    }))
}

pub(super) fn attention(c: &Config, trunk: &Trunk) -> Result<AttentionMixer, Error> {
    let mut attention = trunk.attention(None);
    attention.qkv_bias = attention_bias(c)?;
    Ok(attention)
}

pub(super) fn ffn(c: &Config, trunk: &Trunk) -> Result<Ffn, Error> {
    let mut ffn = trunk.gated(c.need_size("intermediate_size")?);
    ffn.gate_up = GateUp::Fused;
    Ok(Ffn::Gated(ffn))
}

pub(super) fn rope(c: &Config, trunk: &Trunk, context: Option<usize>) -> Result<Rope, Error> {
    RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"attention_bias": true})
}
