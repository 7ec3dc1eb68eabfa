//! Kimi Linear: Kimi's delta rule, some latent attention without positions between, and the mixture of
//! DeepSeek-V3.

use backend::{DeltaLayout, DeltaRule, GatedDelta, ReadOrder, RopeLayout, Scores};

use super::deepseek_v3::every_layer;
use super::glm4_moe::{dense_layers, ffns};
use super::state_space::{kinds, need_silu, taps};
use super::*;
use crate::latent_trunk::LatentTrunk;
use crate::recipe::{Ffn, LatentMixer, Mixer, MoeFfn};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_names(c)?;
    every_layer(c)?;
    only(c, "moe_router_activation_func", &[json!("sigmoid")])?;
    if c.get("mla_use_nope") == Some(&json!(false)) {
        return Err(Error::config("mla_use_nope", "is false; supported: true"));
    }
    // No layer uses the rotation.
    let LatentTrunk { trunk, mixer, .. } = LatentTrunk::read(c, context, RopeLayout::Interleaved)?;
    need_silu(trunk.activation, "hidden_act")?;
    let attention = Mixer::Latent(LatentMixer { rope: None, ..mixer });
    let delta = Mixer::GatedDelta(delta(c, trunk.eps)?);
    let ffns = ffns(c, &trunk, Scores::Sigmoid)?.into_iter().map(|ffn| match ffn {
        Ffn::Moe(moe) => Ffn::Moe(MoeFfn { name: "block_sparse_moe", ..moe }),
        other => other,
    });
    let layer = |(is_full, ffn)| {
        trunk.pre_norm(if is_full { attention.clone() } else { delta.clone() }, ffn)
    };
    let layers = are_full(c, trunk.n_layers)?.into_iter().zip(ffns).map(layer).collect();
    Ok(trunk.spec("kimi_linear", Vec::new(), layers))
}

/// What configs of this kind call otherwise than others do, and what they leave out.
fn with_usual_names<'a>(c: &Config<'a>) -> Result<Config<'a>, Error> {
    let n_layers = c.need_count("num_hidden_layers")?;
    let mut names = json!({
        "rms_norm_eps": 1e-5, "n_shared_experts": 1, "routed_scaling_factor": 2.446, "norm_topk_prob": true,
        "first_k_dense_replace": dense_layers(c, n_layers)?,
    });
    for (usual, own) in [
        ("max_position_embeddings", "model_max_length"),
        ("norm_topk_prob", "moe_renormalize"),
        ("n_group", "num_expert_group"),
        ("n_shared_experts", "num_shared_experts"),
    ] {
        if let Some(value) = c.get(own) {
            names[usual] = value.clone();
        }
    }
    for (usual, own) in LINEAR {
        if let Some(value) = c.get("linear_attn_config").and_then(|config| config.get(own)) {
            names[usual] = value.clone();
        }
    }
    Ok(c.with_defaults(names))
}

/// Sizes of layers with a delta rule, flat and in a table of their own.
const LINEAR: [(&str, &str); 4] = [
    ("linear_num_heads", "num_heads"),
    ("linear_head_dim", "head_dim"),
    ("linear_conv_kernel_dim", "short_conv_kernel_size"),
    ("full_attn_layers", "full_attn_layers"),
];

fn delta(c: &Config, eps: f32) -> Result<GatedDelta, Error> {
    let (heads, head_dim) = (c.need_size("linear_num_heads")?, c.need_size("linear_head_dim")?);
    Ok(GatedDelta {
        k_heads: heads,
        v_heads: heads,
        k_dim: head_dim,
        v_dim: head_dim,
        taps: taps(c, "linear_conv_kernel_dim")?,
        eps,
        rule: DeltaRule::PerChannel,
        layout: DeltaLayout::Apart,
        read_order: ReadOrder::ByKeyHead,
    })
}

/// Which layers have attention: `layer_types`, or those whose numbers, from one on, are listed.
fn are_full(c: &Config, n_layers: usize) -> Result<Vec<bool>, Error> {
    if let Some(names) = c.per_layer("layer_types", n_layers)? {
        let known = [("linear_attention", false), ("full_attention", true)];
        return kinds(&names[..n_layers], "layer_types", &known);
    }
    let full = c.counts("full_attn_layers")?;
    if full.is_empty() {
        return Err(crate::config::missing("linear_attn_config.full_attn_layers"));
    }
    Ok((1..=n_layers).map(|number| full.contains(&number)).collect())
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "kv_lora_rank": 48, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24, "v_head_dim": 20,
        "num_key_value_heads": 4, "moe_intermediate_size": 32, "num_experts": 8,
        "num_experts_per_token": 2, "moe_renormalize": true, "routed_scaling_factor": 2.4,
        "linear_attn_config": {
            "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "full_attn_layers": [2],
            "kda_layers": [1, 3],
        },
    })
}
