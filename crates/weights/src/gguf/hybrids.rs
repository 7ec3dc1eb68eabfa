//! Hyperparameters of the models that have Mamba-2 beside attention, in the words of their configs.
//!
//! Not the numbers of their tensors, which are in [`super::states`].

use serde_json::{Map, Value as Json, json};

use super::config::{Hyper, have_heads, norm_eps};
use super::{deepseek, states};
use crate::{Error, Tensor};

/// Mamba-2 where there are no heads of keys, experts or not behind it. Positions count where the
/// file says that somebody trained them.
pub(super) fn granite(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    if let Some(have_heads) = have_heads(hyper, out)? {
        let kind = |has: &bool| if *has { "attention" } else { "mamba" };
        out.insert("layer_types".into(), have_heads.iter().map(kind).collect());
    }
    let names =
        ["mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"];
    states::mamba2(hyper, names, out)?;
    out.insert("mamba_conv_bias".into(), json!(any(tensors, ".mamba.conv1d.bias")));
    out.insert("mamba_proj_bias".into(), json!(any(tensors, ".mamba.in_proj.bias")));
    let is_rotated = hyper.metadata.bool(&hyper.key("rope.scaling.finetuned"))?.unwrap_or(false);
    let position = if is_rotated { "rope" } else { "nope" };
    out.insert("position_embedding_type".into(), json!(position));
    let shared = match hyper.unsigned("expert_shared_feed_forward_length")? {
        Some(width) => width,
        None => hyper.required("feed_forward_length")?,
    };
    out.insert("shared_intermediate_size".into(), json!(shared));
    out.insert("num_local_experts".into(), json!(hyper.unsigned("expert_count")?.unwrap_or(0)));
    Ok(())
}

/// Layers of one branch each: attention where there are heads of keys, a feed-forward part where that
/// has a width, else Mamba-2.
pub(super) fn nemotron(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    let n_layers = hyper.layers()?.n;
    let have_heads = have_heads(hyper, out)?.unwrap_or_else(|| vec![true; n_layers]);
    let widths = out.get("intermediate_size").cloned().unwrap_or(Json::Null);
    let width = |i: usize| widths.get(i).unwrap_or(&widths).as_u64().unwrap_or(0);
    let has_experts = hyper.unsigned("expert_count")?.unwrap_or(0) > 0;
    let letter = |(i, has_heads): (usize, &bool)| match (has_heads, width(i) > 0) {
        (true, _) => '*',
        (false, true) if has_experts => 'E',
        (false, true) => '-',
        (false, false) => 'M',
    };
    let pattern: String = have_heads.iter().take(n_layers).enumerate().map(letter).collect();
    out.insert("hybrid_override_pattern".into(), json!(pattern));
    if let Some(most) = (0..n_layers).map(width).max().filter(|&n| n > 0) {
        out.insert("intermediate_size".into(), json!(most));
    }
    let names = ["mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"];
    states::mamba2(hyper, names, out)?;
    for (key, end) in [
        ("use_conv_bias", ".mixer.conv1d.bias"),
        ("use_bias", ".mixer.in_proj.bias"),
        ("attention_bias", ".mixer.q_proj.bias"),
        ("mlp_bias", ".mixer.up_proj.bias"),
    ] {
        out.insert(key.into(), json!(any(tensors, end)));
    }
    if has_experts {
        deepseek::mixture(hyper, out)?;
        let shared = hyper.unsigned("expert_shared_feed_forward_length")?.unwrap_or(0);
        out.insert("moe_shared_expert_intermediate_size".into(), json!(shared));
        if let Some(latent) = hyper.unsigned("moe_latent_size")?.filter(|&n| n > 0) {
            out.insert("moe_latent_size".into(), json!(latent));
        }
    }
    Ok(())
}

/// Mamba-2 and nothing else.
pub(super) fn mamba2(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    // The file says that there are none, and these would be numbers of something.
    out.remove("num_attention_heads");
    out.remove("intermediate_size");
    norm_eps(hyper, out)?;
    let names = ["num_heads", "head_dim", "n_groups", "state_size", "conv_kernel"];
    states::mamba2(hyper, names, out)?;
    out.insert("use_conv_bias".into(), json!(any(tensors, ".mixer.conv1d.bias")));
    out.insert("use_bias".into(), json!(any(tensors, ".mixer.in_proj.bias")));
    out.insert("tie_word_embeddings".into(), json!(!any(tensors, "lm_head.weight")));
    Ok(())
}

/// Mamba-2 and attention side by side. The converter multiplies all factors of the config into the
/// weights, and llama.cpp gates before it norms.
pub(super) fn falcon(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    let names =
        ["mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"];
    states::mamba2(hyper, names, out)?;
    out.insert("mamba_conv_bias".into(), json!(any(tensors, ".mamba.conv1d.bias")));
    out.insert("mamba_rms_norm".into(), json!(any(tensors, ".mamba.norm.weight")));
    out.insert("mamba_norm_before_gate".into(), json!(false));
    Ok(())
}

/// Kimi's delta rule where there are no heads of keys, else latent attention; heads are as many in both.
pub(super) fn kimi(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    let n_layers = hyper.layers()?.n;
    let have_heads = have_heads(hyper, out)?.unwrap_or_else(|| vec![true; n_layers]);
    let kind = |has: &bool| if *has { "full_attention" } else { "linear_attention" };
    out.insert("layer_types".into(), have_heads.iter().map(kind).collect());
    deepseek::mixture(hyper, out)?;
    deepseek::latent_sizes(hyper, out)?;
    // The one head of keys is that of the latent.
    let heads = out["num_attention_heads"].clone();
    out.insert("num_key_value_heads".into(), heads.clone());
    out.insert("linear_num_heads".into(), heads);
    out.insert("linear_head_dim".into(), json!(hyper.required("kda.head_dim")?));
    out.insert("linear_conv_kernel_dim".into(), json!(hyper.required("ssm.conv_kernel")?));
    Ok(())
}

/// Whether some tensor's name ends so.
fn any(tensors: &[Tensor], end: &str) -> bool {
    tensors.iter().any(|tensor| tensor.name.ends_with(end))
}
