//! Youtu-LLM: the latent attention of DeepSeek-V3 with feed-forward layers that every row passes
//! through.

use super::*;
use crate::latent_trunk::{LatentTrunk, rope_layout};
use crate::recipe::{Ffn, GatedFfn, Mixer};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"tie_word_embeddings": true}));
    let LatentTrunk { trunk, rope, mixer } = LatentTrunk::read(c, context, rope_layout(c)?)?;
    let ffn = Ffn::Gated(GatedFfn {
        bias: bias_switch(c, "mlp_bias")?,
        ..trunk.gated(c.need_size("intermediate_size")?)
    });
    let layer = |_| trunk.pre_norm(Mixer::Latent(mixer.clone()), ffn.clone());
    let layers = (0..trunk.n_layers).map(layer).collect();
    Ok(trunk.spec("youtu", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "kv_lora_rank": 48, "q_lora_rank": 40, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24,
        "v_head_dim": 20, "num_key_value_heads": 4,
    })
}
