//! Qwen3-Next: three layers of a gated delta rule to one of gated attention, experts beside a shared
//! one, gains that lack the one.

use backend::{DeltaLayout, DeltaRule, GatedDelta, ReadOrder};

use super::qwen2_moe::sparse_layers;
use super::*;
use crate::recipe::{
    Draft, Ffn, GatedFfn, HeadNorm, Layer, Mixer, Norm, Norms, OutGate, PairOrder, Shared, Step,
};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let ffns = shared_experts(c, &trunk)?;
    let layout = match c.is_on("linear_by_kind")? {
        true => DeltaLayout::ByKind,
        false => DeltaLayout::ByHead,
    };
    hybrid(c, trunk, ffns, Hybrid { family: "qwen3_next", layout, context })
}

/// What configs of this kind leave out.
pub(super) fn with_usual_values<'a>(c: &Config<'a>) -> Config<'a> {
    c.with_defaults(json!({
        "head_dim": 256, "partial_rotary_factor": 0.25, "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4, "norm_topk_prob": true,
    }))
}

/// A mixture beside one expert that every row passes through, in every layer that is not kept dense.
pub(super) fn shared_experts(c: &Config, trunk: &Trunk) -> Result<Vec<Ffn>, Error> {
    let inner = c.need_size("shared_expert_intermediate_size")?;
    sparse_layers(c, trunk, Shared::Gated(GatedFfn { name: "shared_expert", ..trunk.gated(inner) }))
}

/// How the models of this kind differ.
pub(super) struct Hybrid {
    pub(super) family: &'static str,
    pub(super) layout: DeltaLayout,
    pub(super) context: Option<usize>,
}

/// The model around `ffns`, one per layer.
pub(super) fn hybrid(
    c: &Config,
    trunk: Trunk,
    ffns: Vec<Ffn>,
    kind: Hybrid,
) -> Result<ModelSpec, Error> {
    // A position of text is the same on all axes that a rotation of pictures has.
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(kind.context))?;
    let mut attention = trunk.attention(None);
    let bias = attention_bias(c)?;
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    attention.head_norm = Some(HeadNorm { gain: NormGain::OnePlus, ..trunk.head_norm() });
    attention.gate = OutGate::WithQuery;
    let attention = Mixer::Attention(attention);
    let delta = Mixer::GatedDelta(gated_delta(c, &trunk, kind.layout)?);
    let norms = |name| Norms::Pre(Norm { gain: NormGain::OnePlus, ..trunk.norm(name) });
    let layer = |(mix, ffn)| {
        let mixer = match mix {
            Mix::Full => attention.clone(),
            Mix::Linear => delta.clone(),
        };
        let mixer = Step::new(norms("input_layernorm"), mixer);
        Layer { steps: vec![mixer, Step::new(norms("post_attention_layernorm"), ffn)] }
    };
    let drafts = match ffns.last() {
        Some(ffn) => drafts(c, &trunk, layer((Mix::Full, ffn.clone())))?,
        None => Vec::new(),
    };
    let layers = mixes(c, trunk.n_layers)?.into_iter().zip(ffns).map(layer).collect();
    let mut spec = trunk.spec(kind.family, vec![rope], layers);
    spec.final_norm.gain = NormGain::OnePlus;
    spec.drafts = drafts;
    Ok(spec)
}

/// Draft heads share all but their layers. Configs need not tell of the one that there is.
fn drafts(c: &Config, trunk: &Trunk, layer: Layer) -> Result<Vec<Draft>, Error> {
    let n = match c.count("mtp_num_hidden_layers")? {
        Some(n) => n,
        None => c.count("num_nextn_predict_layers")?.unwrap_or(1),
    };
    let norm = |name| Norm { gain: NormGain::OnePlus, ..trunk.norm(name) };
    let draft = |i| Draft {
        parent: "mtp".to_owned(),
        token_norm: norm("pre_fc_norm_embedding"),
        hidden_norm: norm("pre_fc_norm_hidden"),
        projection: "fc",
        order: PairOrder::TokenFirst,
        layers: vec![(format!("mtp.layers.{i}"), layer.clone())],
        final_norm: norm("norm"),
        end: "mtp".to_owned(),
    };
    Ok((0..n).map(draft).collect())
}

/// How a layer moves information.
#[derive(Clone, Copy)]
enum Mix {
    Full,
    Linear,
}

/// `layer_types` where the config has it, else every `full_attention_interval`-th layer is full.
fn mixes(c: &Config, n_layers: usize) -> Result<Vec<Mix>, Error> {
    let Some(names) = c.per_layer("layer_types", n_layers)? else {
        let interval = c.need_count("full_attention_interval")?;
        let mix = |i: usize| match (i + 1).is_multiple_of(interval) {
            true => Mix::Full,
            false => Mix::Linear,
        };
        return Ok((0..n_layers).map(mix).collect());
    };
    let mix = |name: &String| match name.as_str() {
        "full_attention" => Ok(Mix::Full),
        "linear_attention" => Ok(Mix::Linear),
        other => Err(Error::config(
            "layer_types",
            format!("names \"{other}\"; supported: full_attention, linear_attention"),
        )),
    };
    names.iter().take(n_layers).map(mix).collect()
}

fn gated_delta(c: &Config, trunk: &Trunk, layout: DeltaLayout) -> Result<GatedDelta, Error> {
    let k_heads = c.need_size("linear_num_key_heads")?;
    let v_heads = c.need_size("linear_num_value_heads")?;
    if v_heads % k_heads != 0 {
        let problem =
            format!("is {k_heads}, which does not divide linear_num_value_heads {v_heads}");
        return Err(Error::config("linear_num_key_heads", problem));
    }
    let taps = c.need_size("linear_conv_kernel_dim")?;
    if !(2..=64).contains(&taps) {
        let problem = format!("is {taps}; supported: 2 to 64");
        return Err(Error::config("linear_conv_kernel_dim", problem));
    }
    if trunk.activation != backend::Activation::Silu {
        return Err(Error::config("hidden_act", "must be silu where layers have a convolution"));
    }
    Ok(GatedDelta {
        k_heads,
        v_heads,
        k_dim: c.need_size("linear_key_head_dim")?,
        v_dim: c.need_size("linear_value_head_dim")?,
        taps,
        eps: trunk.eps,
        rule: DeltaRule::PerHead,
        layout,
        read_order: match c.is_on("linear_heads_in_turn")? {
            true => ReadOrder::InTurn,
            false => ReadOrder::ByKeyHead,
        },
    })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "full_attention_interval": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4,
        "moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 64,
    })
}
