//! ERNIE 4.5 with experts: llama with rotated neighbours, and experts in some layers, whose scores are
//! corrected before they are compared.

use backend::{Divisor, RopeLayout};

use super::ernie4_5::refuse_variants;
use super::*;
use crate::recipe::{Correction, Ffn, GatedFfn, Head, MoeFfn, Router, Shared};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "moe_layer_start_index": 1,
        "moe_layer_interval": 1, "moe_norm_min": 1e-12, "moe_num_shared_experts": 2, "rope_theta": 500_000.0,
    }));
    refuse_variants(c)?;
    let trunk = Trunk::read(c)?;
    let mut rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    rope.layout = RopeLayout::Interleaved;
    let bias = bias_switch(c, "use_bias")?;
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    let dense = GatedFfn { bias, ..trunk.gated(c.need_size("intermediate_size")?) };
    let moe = mixture(c, &trunk, bias)?;
    let [first, last] = [bound(c, "moe_layer_start_index")?, bound(c, "moe_layer_end_index")?];
    let last = last.unwrap_or(trunk.n_layers - 1);
    let interval = c.need_count("moe_layer_interval")?;
    let layer = |i: usize| {
        let has_experts = (first.unwrap_or(0)..=last).contains(&i);
        let ffn = match has_experts && (i + 1).is_multiple_of(interval) {
            true => Ffn::Moe(moe.clone()),
            false => Ffn::Gated(dense.clone()),
        };
        trunk.pre_norm_layer(attention.clone(), ffn)
    };
    let layers = (0..trunk.n_layers).map(layer).collect();
    let spec = trunk.spec("ernie4_5_moe", vec![rope], layers);
    if bias == Bias::Stored && spec.head == Head::Tied {
        let problem = "is true, and so the head has a bias; supported with an untied head only";
        return Err(Error::config("use_bias", problem));
    }
    Ok(ModelSpec { head_bias: bias, ..spec })
}

fn mixture(c: &Config, trunk: &Trunk, bias: Bias) -> Result<MoeFfn, Error> {
    only(c, "moe_gate_act", &[json!("softmax")])?;
    let [n, top_k] = expert_counts(c)?;
    let inner = c.need_size("moe_intermediate_size")?;
    let least = c.positive("moe_norm_min")?.unwrap_or(0.0);
    let experts = Experts {
        n,
        top_k,
        inner,
        gating: Gating { divisor: Divisor::SumAtLeast(least), ..Gating::SOFTMAX },
        routed_scale: 1.0,
        form: ExpertForm::gated(trunk.activation),
    };
    let shared = match c.count("moe_num_shared_experts")?.unwrap_or(0) {
        0 => Shared::None,
        n => Shared::Whole(GatedFfn { name: "shared_experts", bias, ..trunk.gated(n * inner) }),
    };
    // mlx-lm leaves the corrections out when it converts.
    let correction = Correction::IfStored("moe_statics.e_score_correction_bias");
    let router = Router { name: "gate", bias: Bias::Absent, correction };
    Ok(MoeFfn { router, shared, ..trunk.mixture(experts) })
}

/// The layer under `key`, or -1 for none. Models with pictures have one for each kind of expert, of
/// which the first is that of text.
fn bound(c: &Config, key: &str) -> Result<Option<usize>, Error> {
    let Some(value) = c.get(key) else { return Ok(None) };
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    match value.as_i64() {
        Some(-1) => Ok(None),
        Some(layer @ 0..) => Ok(Some(layer as usize)),
        _ => Err(wrong(key, "a layer", value)),
    }
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "moe_intermediate_size": 32, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2,
    })
}
