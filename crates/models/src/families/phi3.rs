//! Phi-3: llama with fused projections and, for long contexts, longrope.

use super::*;
use crate::recipe::{Ffn, GateUp, Qkv};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"rms_norm_eps": 1e-5}));
    let trunk = Trunk::read(c)?;
    let window = c.positions("sliding_window")?;
    let mut ffn = trunk.gated(c.need_size("intermediate_size")?);
    ffn.gate_up = GateUp::Fused;
    let mut attention = trunk.attention(window);
    attention.qkv = Qkv::Fused("qkv_proj");
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let layers = vec![trunk.pre_norm_layer(attention, Ffn::Gated(ffn)); trunk.n_layers];
    Ok(trunk.spec("phi3", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"partial_rotary_factor": 0.75})
}
