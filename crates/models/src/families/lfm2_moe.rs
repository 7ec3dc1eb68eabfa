//! LFM2 with experts in all but the first layers. Sigmoids are corrected before they are compared.

use backend::{Divisor, Scores};

use super::lfm2::{conv_hybrid, gated, with_usual_values};
use super::*;
use crate::recipe::{Correction, Ffn, MoeFfn, Router};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c)?;
    let trunk = Trunk::read(c)?;
    let dense = Ffn::Gated(gated(&trunk, c.need_size("intermediate_size")?));
    let sparse = Ffn::Moe(mixture(c, &trunk)?);
    let n_dense = c.count("num_dense_layers")?.unwrap_or(2);
    let ffn = |i| if i < n_dense { dense.clone() } else { sparse.clone() };
    let ffns = (0..trunk.n_layers).map(ffn).collect();
    conv_hybrid(c, trunk, ffns, "lfm2_moe", context)
}

fn mixture(c: &Config, trunk: &Trunk) -> Result<MoeFfn, Error> {
    let [n, top_k] = expert_counts(c)?;
    let divisor = match c.is_on("norm_topk_prob")? {
        true => Divisor::SumPlus(1e-6),
        false => Divisor::One,
    };
    let experts = Experts {
        n,
        top_k,
        inner: c.need_size("moe_intermediate_size")?,
        gating: Gating { scores: Scores::Sigmoid, groups: None, divisor },
        routed_scale: c.factor("routed_scaling_factor")?,
        form: ExpertForm::gated(trunk.activation),
    };
    let correction = match c.is_on("use_expert_bias")? {
        true => Correction::Stored("expert_bias"),
        false => Correction::Absent,
    };
    let router = Router { name: "gate", bias: Bias::Absent, correction };
    Ok(MoeFfn { name: "feed_forward", router, ..trunk.mixture(experts) })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "norm_eps": 1e-5, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
        "conv_bias": false, "tie_word_embeddings": true, "num_dense_layers": 1, "num_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "routed_scaling_factor": 1.5,
    })
}
