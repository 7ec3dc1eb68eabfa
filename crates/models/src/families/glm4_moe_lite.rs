//! GLM-4.7-Flash: the latent attention of DeepSeek-V3 with the mixture of GLM-4.5.

use backend::Scores;

use super::deepseek_v3::corrected_sigmoids;
use super::glm4_moe::{dense_layers, drafts, ffns};
use super::*;
use crate::latent_trunk::{LatentTrunk, rope_layout};
use crate::recipe::Mixer;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let n_layers = c.need_count("num_hidden_layers")?;
    let c = &c.with_defaults(json!({
        "rms_norm_eps": 1e-5, "n_shared_experts": 1, "norm_topk_prob": true,
        "routed_scaling_factor": 1.8, "first_k_dense_replace": dense_layers(c, n_layers)?,
    }));
    corrected_sigmoids(c)?;
    let LatentTrunk { trunk, rope, mixer } = LatentTrunk::read(c, context, rope_layout(c)?)?;
    let ffns = ffns(c, &trunk, Scores::Sigmoid)?.into_iter();
    let mixer = Mixer::Latent(mixer);
    let drafts = drafts(c, &trunk, &mixer)?;
    let layers = ffns.map(|ffn| trunk.pre_norm(mixer.clone(), ffn)).collect();
    Ok(ModelSpec { drafts, ..trunk.spec("glm4_moe_lite", vec![rope], layers) })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "kv_lora_rank": 48, "q_lora_rank": 40, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24,
        "v_head_dim": 20, "num_key_value_heads": 4, "moe_intermediate_size": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
    })
}
