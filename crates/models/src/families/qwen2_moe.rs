//! Qwen1.5-MoE and Qwen2-MoE: the attention of Qwen2, and a mixture of experts beside one that every
//! row passes through.

use super::*;
use crate::recipe::{Bias, Ffn, GatedFfn, MoeFfn, Shared};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let windows = lower_windows(c, &trunk)?;
    let qkv_bias = match c.get("qkv_bias") {
        Some(_) if !c.is_on("qkv_bias")? => Bias::Absent,
        _ => Bias::Stored,
    };
    let inner = c.need_size("shared_expert_intermediate_size")?;
    let shared = Shared::Gated(GatedFfn { name: "shared_expert", ..trunk.gated(inner) });
    let ffns = sparse_layers(c, &trunk, shared)?;
    let layer = |(window, ffn)| {
        let mut attention = trunk.attention(window);
        attention.qkv_bias = qkv_bias;
        trunk.pre_norm_layer(attention, ffn)
    };
    let layers = windows.into_iter().zip(ffns).map(layer).collect();
    Ok(trunk.spec("qwen2_moe", vec![rope], layers))
}

/// If windows are on at all, every second layer below `max_window_layers` has one.
fn lower_windows(c: &Config, trunk: &Trunk) -> Result<Vec<Option<usize>>, Error> {
    if !c.is_on("use_sliding_window")? {
        return Ok(vec![None; trunk.n_layers]);
    }
    let end = c.count("max_window_layers")?.unwrap_or(28);
    let views =
        trunk.views(c, |i| if i % 2 == 0 && i < end { View::Sliding } else { View::Full })?;
    trunk.windows(c, &views)
}

/// The feed-forward part of each layer of a Qwen mixture: experts, except in the layers that the
/// config keeps dense.
pub(super) fn sparse_layers(c: &Config, trunk: &Trunk, shared: Shared) -> Result<Vec<Ffn>, Error> {
    let dense_layers = c.counts("mlp_only_layers")?;
    let step = c.count("decoder_sparse_step")?.unwrap_or(1).max(1);
    let experts = experts(c, trunk)?;
    let ffn = |i: usize| {
        if dense_layers.contains(&i) || !(i + 1).is_multiple_of(step) {
            let inner = c.need_size("intermediate_size")?;
            return Ok(Ffn::Gated(trunk.gated(inner)));
        }
        Ok(Ffn::Moe(MoeFfn { shared: shared.clone(), ..trunk.mixture(experts.clone()) }))
    };
    (0..trunk.n_layers).map(ffn).collect()
}

fn experts(c: &Config, trunk: &Trunk) -> Result<Experts, Error> {
    let [n, top_k] = expert_counts(c)?;
    let renormalised = c.is_on("norm_topk_prob")?;
    Ok(Experts {
        n,
        top_k,
        inner: c.need_size("moe_intermediate_size")?,
        gating: if renormalised { Gating::SOFTMAX_OF_CHOSEN } else { Gating::SOFTMAX },
        routed_scale: 1.0,
        form: ExpertForm::gated(trunk.activation),
    })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 64, "norm_topk_prob": true,
    })
}
