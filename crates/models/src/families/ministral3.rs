//! Ministral 3, alone or as the language model of a vision model: Mistral with queries that grow
//! beyond the length that the rotation was first trained with.

use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"head_dim": 128, "rms_norm_eps": 1e-5}));
    let trunk = Trunk::read(c)?;
    let params = RopeParams::read(c, "full_attention")?;
    let rope = params.rope(trunk.rope_shape(context))?;
    let mut attention = trunk.attention(c.positions("sliding_window")?);
    attention.shape.growth = params.query_growth()?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let layers = vec![trunk.pre_norm_layer(attention, ffn); trunk.n_layers];
    Ok(trunk.spec("ministral3", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.1,
    }})
}
