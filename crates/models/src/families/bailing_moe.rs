//! Ling: llama's attention with fused projections, and the mixture of DeepSeek-V3 or, in older ones,
//! experts by a softmax.

use backend::Scores;

use super::glm4_moe::ffns;
use super::*;
use crate::recipe::{
    Correction, Draft, Ffn, GatedFfn, Head, HeadNorm, Layer, MoeFfn, PairOrder, Qkv, Router, Shared,
};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let n_shared = c.get("num_shared_experts").cloned().unwrap_or(json!(0));
    let c = &c.with_defaults(json!({
        "n_shared_experts": n_shared, "norm_topk_prob": true, "first_k_dense_replace": 0,
    }));
    only(c, "use_sliding_window", &[json!(false)])?;
    only(c, "use_rmsnorm", &[json!(true)])?;
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let mut attention = trunk.attention(None);
    (attention.name, attention.out) = ("attention", "dense");
    attention.qkv = Qkv::Fused("query_key_value");
    attention.qkv_bias = bias_switch(c, "use_qkv_bias")?;
    let bias = bias_switch(c, "use_bias")?;
    attention.out_bias = bias;
    if c.is_on("use_qk_norm")? {
        let names = ["query_layernorm", "key_layernorm"];
        attention.head_norm = Some(HeadNorm { names, ..trunk.head_norm() });
    }
    let layers = ffns(c, &trunk, scores(c)?)?
        .into_iter()
        .map(|ffn| Ok(trunk.pre_norm_layer(attention.clone(), own(c, bias, ffn)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let drafts = drafts(c, &trunk, layers.last())?;
    let mut spec = trunk.spec("bailing_moe", vec![rope], layers);
    (spec.embed, spec.drafts) = ("word_embeddings", drafts);
    if c.is_on("norm_head")? {
        if spec.head == Head::Tied {
            return Err(Error::config("norm_head", "is true, but the head is the embedding"));
        }
        spec.head = Head::UnitColumns;
    }
    Ok(spec)
}

/// Draft heads lie behind the last layer and are like it.
fn drafts(c: &Config, trunk: &Trunk, layer: Option<&Layer>) -> Result<Vec<Draft>, Error> {
    let n = c.count("num_nextn_predict_layers")?.unwrap_or(0);
    let Some(layer) = layer else { return Ok(Vec::new()) };
    let draft = |i| {
        let name = format!("model.layers.{}", trunk.n_layers + i);
        Draft {
            parent: name.clone(),
            token_norm: trunk.norm("enorm"),
            hidden_norm: trunk.norm("hnorm"),
            projection: "eh_proj",
            order: PairOrder::TokenFirst,
            layers: vec![(name.clone(), layer.clone())],
            final_norm: trunk.norm("final_layernorm"),
            end: name,
        }
    };
    Ok((0..n).map(draft).collect())
}

fn scores(c: &Config) -> Result<Scores, Error> {
    match c.text("score_function")?.unwrap_or("softmax") {
        "softmax" => Ok(Scores::Softmax),
        "sigmoid" => Ok(Scores::Sigmoid),
        other => Err(wrong("score_function", "softmax or sigmoid", &other.into())),
    }
}

/// What these models have otherwise than those whose mixture they share.
fn own(c: &Config, bias: Bias, ffn: Ffn) -> Result<Ffn, Error> {
    let mut moe = match ffn {
        Ffn::Moe(moe) => moe,
        Ffn::Gated(dense) => return Ok(Ffn::Gated(GatedFfn { bias, ..dense })),
        other => return Ok(other),
    };
    if let Shared::Whole(shared) = &mut moe.shared {
        shared.bias = bias;
        if let Some(inner) = c.size("moe_shared_expert_intermediate_size")? {
            shared.inner = inner * c.need_count("n_shared_experts")?;
        }
    }
    let router = Router { correction: Correction::IfStored("gate.expert_bias"), ..moe.router };
    Ok(Ffn::Moe(MoeFfn { router, expert_bias: bias, ..moe }))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
        "topk_group": 2, "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qk_norm": true,
        "score_function": "sigmoid", "routed_scaling_factor": 2.5, "partial_rotary_factor": 0.5,
    })
}
