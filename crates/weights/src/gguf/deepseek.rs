//! Hyperparameters of the models that are like DeepSeek's, in the words of their configs: latent
//! attention, and experts behind some layers that have none.
//!
//! Not the names of their tensors, which are in [`super::arch`].

use serde_json::{Map, Value as Json, json};

use super::config::{Hyper, number};
use crate::{Error, Tensor};

/// `expert_gating_func` of sigmoids.
const SIGMOID: u64 = 2;
/// llama.cpp's converter writes a tenth of `mscale_all_dim` for this architecture.
const LOG_MULTIPLIER: f32 = 0.1;

/// DeepSeek-V2 and V3, and whoever has their latent attention: one name there, two families here.
pub(super) fn latent(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    mixture(hyper, out)?;
    if hyper.unsigned("expert_gating_func")? == Some(SIGMOID) {
        out.insert("model_type".into(), json!("deepseek_v3"));
        out.insert("architectures".into(), json!(["DeepseekV3ForCausalLM"]));
    } else if out["n_group"] != json!(1) {
        out.insert("topk_method".into(), json!("group_limited_greedy"));
    }
    latent_sizes(hyper, out)
}

/// Ling's second one: experts in groups behind fused attention.
pub(super) fn bailing(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    mixture(hyper, out)?;
    let is_sigmoid = hyper.unsigned("expert_gating_func")? == Some(SIGMOID);
    let scores = if is_sigmoid { "sigmoid" } else { "softmax" };
    out.insert("score_function".into(), json!(scores));
    // All shared experts are one, as wide as they are together.
    if let Some(width) = hyper.unsigned("expert_shared_feed_forward_length")? {
        out.insert("moe_shared_expert_intermediate_size".into(), json!(width));
        out.insert("n_shared_experts".into(), json!(1));
    }
    let has = |end: &str| tensors.iter().any(|tensor| tensor.name.ends_with(end));
    out.insert("use_qk_norm".into(), json!(has(".attention.query_layernorm.weight")));
    out.insert("use_qkv_bias".into(), json!(has(".attention.query_key_value.bias")));
    out.insert("use_bias".into(), json!(has(".attention.dense.bias")));
    Ok(())
}

/// The sizes of latent attention.
pub(super) fn latent_sizes(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    // Files of older converters have keys and values of the heads, newer ones what they are made of.
    let length = |kind: &str| match hyper.unsigned(&format!("attention.{kind}_length_mla"))? {
        Some(length) if length > 0 => Ok(length),
        _ => hyper.required(&format!("attention.{kind}_length")),
    };
    let (key, value, rotated) =
        (length("key")?, length("value")?, hyper.required("rope.dimension_count")?);
    let plain = key.checked_sub(rotated).filter(|&n| n > 0).ok_or_else(|| {
        let name = hyper.key("rope.dimension_count");
        hyper.metadata.bad(
            &name,
            &format!("less than the {key} columns of a key"),
            rotated.to_string(),
        )
    })?;
    let low = hyper.unsigned("attention.q_lora_rank")?.filter(|&n| n > 0);
    for (ours, n) in [
        ("kv_lora_rank", json!(hyper.required("attention.kv_lora_rank")?)),
        ("q_lora_rank", json!(low)),
        ("qk_nope_head_dim", json!(plain)),
        ("qk_rope_head_dim", json!(rotated)),
        ("v_head_dim", json!(value)),
    ] {
        out.insert(ours.into(), n);
    }
    // Both are those of no head here.
    out.remove("head_dim");
    out.remove("partial_rotary_factor");
    Ok(())
}

/// What stretches a rotation of theirs makes of scores: the same factor in both of its places.
pub(super) fn mscale(hyper: &Hyper, scaling: &mut Json) -> Result<(), Error> {
    if let Some(log) = hyper.f32("rope.scaling.yarn_log_multiplier")? {
        scaling["mscale"] = number(log / LOG_MULTIPLIER);
        scaling["mscale_all_dim"] = number(log / LOG_MULTIPLIER);
    }
    Ok(())
}

/// Experts in groups, behind layers that have none and beside some that every row passes through.
pub(super) fn mixture(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    for (theirs, ours, usual) in [
        ("leading_dense_block_count", "first_k_dense_replace", 0),
        ("expert_shared_count", "n_shared_experts", 0),
        ("expert_group_count", "n_group", 1),
        ("expert_group_used_count", "topk_group", 1),
    ] {
        out.insert(ours.into(), json!(hyper.unsigned(theirs)?.unwrap_or(usual)));
    }
    if let Some(scale) = hyper.f32("expert_weights_scale")?.filter(|&scale| scale != 0.0) {
        out.insert("routed_scaling_factor".into(), number(scale));
    } else {
        out.insert("routed_scaling_factor".into(), json!(1.0));
    }
    Ok(())
}
