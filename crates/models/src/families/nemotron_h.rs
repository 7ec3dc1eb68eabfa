//! Nemotron-H and Nemotron 3: layers of one branch each, which a pattern names: Mamba-2, attention
//! without positions, a plain feed-forward layer, or experts without gates beside one that every row
//! passes through.
//!
//! Steps are clamped to `time_step_limit`, as these models were trained, and not to `time_step_min`,
//! which tells how they were initialised.

use backend::{Activation, Divisor, MambaGate, Scores};

use super::glm4_moe::groups;
use super::state_space::{Keys, kinds, mamba2};
use super::*;
use crate::recipe::{
    Branch, Correction, Draft, ExpertLatent, Ffn, Layer, Mixer, MoeFfn, Norms, PairOrder, PlainFfn,
    Router, Skip, Step,
};

const KEYS: Keys = Keys {
    heads: "mamba_num_heads",
    head_dim: "mamba_head_dim",
    groups: "n_groups",
    state: "ssm_state_size",
    taps: "conv_kernel",
    conv_bias: "use_conv_bias",
    bias: "use_bias",
};

/// What a layer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mamba,
    Attention,
    Plain,
    Experts,
}

pub(super) fn recipe(c: &Config, _context: Option<usize>) -> Result<ModelSpec, Error> {
    let kinds = kinds_of(c, &["layers_block_type", "layer_types"], "hybrid_override_pattern")?;
    let kinds = kinds.ok_or_else(|| crate::config::missing("hybrid_override_pattern"))?;
    // Some were published with the names that others have.
    let or = |name: &str, usual: Value| c.get(name).cloned().unwrap_or(usual);
    let c = &c.with_defaults(json!({
        "num_hidden_layers": kinds.len(), "head_dim": 128, "n_groups": or("mamba_n_groups", json!(8)),
        "use_conv_bias": or("mamba_conv_bias", json!(true)), "conv_kernel": or("mamba_d_conv", json!(4)),
        "time_step_limit": or("mamba_dt_limit", Value::Null),
        "layer_norm_epsilon": 1e-5, "norm_topk_prob": true, "mlp_hidden_act": "relu2",
        "n_shared_experts": 1,
    }));
    only(c, "mamba_hidden_act", &[json!("silu")])?;
    let trunk = Trunk::read(c)?;
    let layers = kinds.into_iter().map(|kind| layer(c, &trunk, kind));
    let layers = layers.collect::<Result<Vec<_>, Error>>()?;
    let drafts = draft(c, &trunk)?.into_iter().collect();
    let mut spec = trunk.spec("nemotron_h", Vec::new(), layers);
    spec.embed = "embeddings";
    spec.final_norm.name = "norm_f";
    Ok(ModelSpec { drafts, ..spec })
}

fn layer(c: &Config, trunk: &Trunk, kind: Kind) -> Result<Layer, Error> {
    let (norms, branches) = (Norms::Pre(trunk.norm("norm")), branches(c, trunk, kind)?);
    Ok(Layer { steps: vec![Step { norms, branches, scale: 1.0, skip: Skip::Stream }] })
}

/// The draft head, if there is one: layers like the model's, of which the first one has what joins its
/// inputs and the last one the norm. How files have several is not known.
fn draft(c: &Config, trunk: &Trunk) -> Result<Option<Draft>, Error> {
    if c.count("num_nextn_predict_layers")?.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let kinds = kinds_of(c, &["mtp_layers_block_type"], "mtp_hybrid_override_pattern")?;
    let kinds = kinds.unwrap_or_else(|| vec![Kind::Attention, Kind::Experts]);
    if kinds.is_empty() {
        return Ok(None);
    }
    let name = |i: usize| format!("mtp.layers.{i}");
    let end = name(kinds.len() - 1);
    let layers =
        kinds.into_iter().enumerate().map(|(i, kind)| Ok((name(i), layer(c, trunk, kind)?)));
    Ok(Some(Draft {
        parent: name(0),
        token_norm: trunk.norm("enorm"),
        hidden_norm: trunk.norm("hnorm"),
        projection: "eh_proj",
        order: PairOrder::TokenFirst,
        layers: layers.collect::<Result<_, Error>>()?,
        final_norm: trunk.norm("final_layernorm"),
        end,
    }))
}

/// The kind of each layer, if the config says it: a list of names, or a text with a letter for each.
fn kinds_of(c: &Config, lists: &[&str], text: &str) -> Result<Option<Vec<Kind>>, Error> {
    for key in lists {
        if let Some(names) = c.per_layer(key, 1)? {
            let known = [
                ("linear_attention", Kind::Mamba),
                ("mamba", Kind::Mamba),
                ("full_attention", Kind::Attention),
                ("attention", Kind::Attention),
                ("mlp", Kind::Plain),
                ("moe", Kind::Experts),
            ];
            return kinds(&names, key, &known).map(Some);
        }
    }
    let Some(letters) = c.text(text)? else { return Ok(None) };
    let names: Vec<String> = letters.chars().map(String::from).collect();
    let known =
        [("M", Kind::Mamba), ("*", Kind::Attention), ("-", Kind::Plain), ("E", Kind::Experts)];
    kinds(&names, text, &known).map(Some)
}

fn branches(c: &Config, trunk: &Trunk, kind: Kind) -> Result<Vec<Branch>, Error> {
    Ok(match kind {
        Kind::Mamba => {
            let mamba = mamba2(c, &KEYS, "mixer", MambaGate::ThenNorm(trunk.eps))?;
            vec![Mixer::Mamba2(mamba).into()]
        }
        Kind::Attention => {
            let mut attention = trunk.attention(None);
            (attention.name, attention.rope) = ("mixer", None);
            (attention.qkv_bias, attention.out_bias) = (attention_bias(c)?, attention_bias(c)?);
            vec![Mixer::Attention(attention).into()]
        }
        Kind::Plain => {
            let inner = c.need_size("intermediate_size")?;
            vec![Ffn::Plain(plain(c, "mixer", inner)?).into()]
        }
        Kind::Experts => {
            let mut branches = vec![Ffn::Moe(mixture(c, trunk)?).into()];
            if c.count("n_shared_experts")?.unwrap_or(0) > 0 {
                let inner = c.need_size("moe_shared_expert_intermediate_size")?;
                branches.push(Ffn::Plain(plain(c, "mixer.shared_experts", inner)?).into());
            }
            branches
        }
    })
}

fn plain(c: &Config, name: &'static str, inner: usize) -> Result<PlainFfn, Error> {
    let (up, down, bias) = ("up_proj", "down_proj", bias_switch(c, "mlp_bias")?);
    Ok(PlainFfn { name, inner, activation: activation(c)?, up, down, bias })
}

fn activation(c: &Config) -> Result<Activation, Error> {
    match c.text("mlp_hidden_act")? {
        Some("relu2") => Ok(Activation::ReluSquared),
        other => {
            let problem = format!("is {other:?}; supported: relu2");
            Err(Error::config("mlp_hidden_act", problem))
        }
    }
}

fn mixture(c: &Config, trunk: &Trunk) -> Result<MoeFfn, Error> {
    let [n, top_k] = expert_counts(c)?;
    let divisor = match c.is_on("norm_topk_prob")? {
        true => Divisor::SumPlus(1e-20),
        false => Divisor::One,
    };
    let experts = Experts {
        n,
        top_k,
        inner: c.need_size("moe_intermediate_size")?,
        gating: Gating { scores: Scores::Sigmoid, groups: groups(c, n, top_k)?, divisor },
        routed_scale: c.factor("routed_scaling_factor")?,
        form: ExpertForm::Plain(activation(c)?),
    };
    let correction = Correction::Stored("gate.e_score_correction_bias");
    let router = Router { name: "gate", bias: Bias::Absent, correction };
    let bias = bias_switch(c, "mlp_bias")?;
    let latent = c.size("moe_latent_size")?.map(|cols| ExpertLatent { cols, bias });
    Ok(MoeFfn { name: "mixer", router, latent, ..trunk.mixture(experts) })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "hybrid_override_pattern": "ME*", "mamba_num_heads": 6, "mamba_head_dim": 16, "n_groups": 2,
        "ssm_state_size": 16, "conv_kernel": 4, "n_routed_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "n_group": 2,
        "topk_group": 1, "routed_scaling_factor": 1.7,
    })
}
