//! DeepSeek-V3 and R1, Kimi K2: latent attention, and experts in groups beside shared ones.

use backend::Scores;

use super::glm4_moe::{drafts, ffns};
use super::*;
use crate::latent_trunk::{LatentTrunk, rope_layout};
use crate::recipe::Mixer;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "first_k_dense_replace": 3, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
        "norm_topk_prob": true, "routed_scaling_factor": 2.5,
    }));
    corrected_sigmoids(c)?;
    every_layer(c)?;
    let LatentTrunk { trunk, rope, mixer } = LatentTrunk::read(c, context, rope_layout(c)?)?;
    let ffns = ffns(c, &trunk, Scores::Sigmoid)?.into_iter();
    let mixer = Mixer::Latent(mixer);
    let drafts = drafts(c, &trunk, &mixer)?;
    let layers = ffns.map(|ffn| trunk.pre_norm(mixer.clone(), ffn)).collect();
    Ok(ModelSpec { drafts, ..trunk.spec("deepseek_v3", vec![rope], layers) })
}

/// Refuses other ways to choose experts.
pub(super) fn corrected_sigmoids(c: &Config) -> Result<(), Error> {
    only(c, "scoring_func", &[json!("sigmoid")])?;
    only(c, "topk_method", &[json!("noaux_tc")])
}

/// Refuses mixtures in some layers only.
pub(super) fn every_layer(c: &Config) -> Result<(), Error> {
    only(c, "moe_layer_freq", &[json!(1)])
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "kv_lora_rank": 48, "q_lora_rank": 40, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24,
        "v_head_dim": 20, "num_key_value_heads": 4, "moe_intermediate_size": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 1,
    })
}
