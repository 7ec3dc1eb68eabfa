//! GLM-4.5 and GLM-4.6: the mixture of DeepSeek-V3 behind llama's attention with a partial rotation.

use backend::{Divisor, GroupMerit, Groups, Scores};

use super::deepseek_v3::corrected_sigmoids;
use super::*;
use crate::recipe::{Correction, Draft, Ffn, GatedFfn, Mixer, MoeFfn, PairOrder, Router, Shared};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "first_k_dense_replace": 1,
        "norm_topk_prob": true, "n_shared_experts": 1,
    }));
    corrected_sigmoids(c)?;
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let mut attention = trunk.attention(None);
    attention.qkv_bias = attention_bias(c)?;
    if c.is_on("use_qk_norm")? {
        attention.head_norm = Some(trunk.head_norm());
    }
    let ffns = ffns(c, &trunk, Scores::Sigmoid)?;
    let mixer = Mixer::Attention(attention);
    let drafts = drafts(c, &trunk, &mixer)?;
    let layers = ffns.into_iter().map(|ffn| trunk.pre_norm(mixer.clone(), ffn)).collect();
    Ok(ModelSpec { drafts, ..trunk.spec("glm4_moe", vec![rope], layers) })
}

/// Draft heads as DeepSeek and many after it have them, behind the last layer and with experts.
pub(super) fn drafts(c: &Config, trunk: &Trunk, mixer: &Mixer) -> Result<Vec<Draft>, Error> {
    let n = c.count("num_nextn_predict_layers")?.unwrap_or(1);
    let ffn = Ffn::Moe(mixture(c, trunk, Scores::Sigmoid)?);
    let draft = |i| {
        let name = format!("model.layers.{}", trunk.n_layers + i);
        Draft {
            parent: name.clone(),
            token_norm: trunk.norm("enorm"),
            hidden_norm: trunk.norm("hnorm"),
            projection: "eh_proj",
            order: PairOrder::TokenFirst,
            layers: vec![(name.clone(), trunk.pre_norm(mixer.clone(), ffn.clone()))],
            final_norm: trunk.norm("shared_head.norm"),
            end: name,
        }
    };
    Ok((0..n).map(draft).collect())
}

/// The feed-forward part of each layer as DeepSeek and many after it have them: the first ones dense,
/// then experts in groups beside shared ones. Sigmoids are corrected before they are compared.
pub(super) fn ffns(c: &Config, trunk: &Trunk, scores: Scores) -> Result<Vec<Ffn>, Error> {
    let moe = mixture(c, trunk, scores)?;
    let n_dense = c.count("first_k_dense_replace")?.unwrap_or(0);
    let ffn = |i: usize| match i < n_dense {
        true => Ok(Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?))),
        false => Ok(Ffn::Moe(moe.clone())),
    };
    (0..trunk.n_layers).map(ffn).collect()
}

fn mixture(c: &Config, trunk: &Trunk, scores: Scores) -> Result<MoeFfn, Error> {
    let [n, top_k] = expert_counts(c)?;
    let inner = c.need_size("moe_intermediate_size")?;
    let divisor = match c.is_on("norm_topk_prob")? {
        true => Divisor::SumPlus(1e-20),
        false => Divisor::One,
    };
    let gating = Gating { scores, groups: groups(c, n, top_k)?, divisor };
    let routed_scale = c.positive("routed_scaling_factor")?.unwrap_or(1.0);
    let form = ExpertForm::gated(trunk.activation);
    let experts = Experts { n, top_k, inner, gating, routed_scale, form };
    let shared = match c.count("n_shared_experts")?.unwrap_or(0) {
        0 => Shared::None,
        n => Shared::Whole(GatedFfn { name: "shared_experts", ..trunk.gated(n * inner) }),
    };
    let correction = match scores {
        Scores::Sigmoid => Correction::Stored("gate.e_score_correction_bias"),
        Scores::Softmax => Correction::Absent,
    };
    let router = Router { name: "gate", bias: Bias::Absent, correction };
    Ok(MoeFfn { router, shared, ..trunk.mixture(experts) })
}

/// How many of the first layers have no experts.
pub(super) fn dense_layers(c: &Config, n_layers: usize) -> Result<usize, Error> {
    let Some(names) = c.per_layer("mlp_layer_types", n_layers)? else { return Ok(1) };
    let n = names.iter().take_while(|name| *name == "dense").count();
    match names[..n_layers].iter().skip(n).find(|name| *name != "sparse") {
        None => Ok(n),
        Some(other) => {
            let problem =
                format!("has \"{other}\" after sparse layers; supported: dense layers first");
            Err(Error::config("mlp_layer_types", problem))
        }
    }
}

/// How experts are grouped, if there is more than one group.
pub(super) fn groups(c: &Config, n_experts: usize, top_k: usize) -> Result<Option<Groups>, Error> {
    let n = c.count("n_group")?.unwrap_or(1).max(1);
    let kept = c.count("topk_group")?.unwrap_or(1);
    if n == 1 {
        return Ok(None);
    }
    if !n_experts.is_multiple_of(n) || n_experts / n < 2 {
        let problem = format!("is {n}, which does not divide {n_experts} experts into groups");
        return Err(Error::config("n_group", problem));
    }
    if kept == 0 || kept > n || kept * (n_experts / n) < top_k {
        let problem = format!(
            "is {kept}: {kept} of {n} groups of {} experts do not hold the {top_k} of a row",
            n_experts / n
        );
        return Err(Error::config("topk_group", problem));
    }
    Ok(Some(Groups { n, kept, merit: GroupMerit::TwoLargest }))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
        "topk_group": 2, "use_qk_norm": true, "routed_scaling_factor": 2.5,
    })
}
