//! DeepSeek-V2: latent attention, and experts beside shared ones, weighted with a softmax over all of
//! them.

use backend::{GroupMerit, RopeLayout, Scores};

use super::deepseek_v3::every_layer;
use super::glm4_moe::ffns;
use super::*;
use crate::latent_trunk::LatentTrunk;
use crate::recipe::{Ffn, Mixer};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({ "n_shared_experts": 2, "topk_method": "greedy" }));
    every_layer(c)?;
    // The programs that run this model do not agree on what it would mean.
    if c.is_on("norm_topk_prob")? {
        return Err(Error::config("norm_topk_prob", "is on, which is not supported here"));
    }
    let LatentTrunk { trunk, rope, mixer } =
        LatentTrunk::read(c, context, RopeLayout::Interleaved)?;
    let mut ffns = ffns(c, &trunk, Scores::Softmax)?;
    choose(c, &mut ffns)?;
    let layer = |ffn| trunk.pre_norm(Mixer::Latent(mixer.clone()), ffn);
    let layers = ffns.into_iter().map(layer).collect();
    Ok(trunk.spec("deepseek_v2", vec![rope], layers))
}

/// Whether experts are chosen out of groups.
fn choose(c: &Config, ffns: &mut [Ffn]) -> Result<(), Error> {
    let method = c.text("topk_method")?.unwrap_or("greedy");
    for ffn in ffns {
        let Ffn::Moe(moe) = ffn else { continue };
        let groups = &mut moe.experts.gating.groups;
        match method {
            "greedy" => *groups = None,
            "group_limited_greedy" => {
                if let Some(groups) = groups {
                    groups.merit = GroupMerit::Largest;
                }
            }
            other => {
                let problem = format!("is \"{other}\"; supported: greedy, group_limited_greedy");
                return Err(Error::config("topk_method", problem));
            }
        }
    }
    Ok(())
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "kv_lora_rank": 48, "q_lora_rank": null, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24,
        "v_head_dim": 20, "num_key_value_heads": 4, "moe_intermediate_size": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
        "topk_method": "group_limited_greedy", "first_k_dense_replace": 1,
    })
}
