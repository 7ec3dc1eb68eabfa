//! Gemma 4, alone or as the language model of a model that sees and hears: heads of another size in the
//! full layers, whose keys may be their values too, the upper layers on the keys and values of lower
//! ones, and inputs that tokens bring along for every layer.
//!
//! Not here: what is added for pictures and sound.

use backend::Values;

use super::gemma3::looks_back;
use super::*;
use crate::config::whole;
use crate::recipe::{
    Correction, Ffn, GatedFfn, KeysValues, Layer, LayerInputFfn, LayerInputs, LayerScalars, Mixer,
    MoeFfn, Norms, Router, Step, TwinFfn, ValueNorm,
};
use crate::rope::{RopeParams, RopeShape, intern};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c)?;
    if c.get("use_bidirectional_attention") == Some(&json!("all")) {
        let problem = "is \"all\": models that look ahead cannot generate text";
        return Err(Error::config("use_bidirectional_attention", problem));
    }
    looks_back(c)?;
    let trunk = Trunk::read(c)?;
    let views = views(c, &trunk)?;
    let windows = trunk.windows(c, &views)?;
    let sources = sources(c, &views)?;
    let inputs = layer_inputs(c, &trunk)?;
    let mut ropes = Vec::new();
    let mut layers = Vec::new();
    for (i, (view, keys_values)) in views.iter().zip(sources).enumerate() {
        let mut attention = attention(c, (&trunk, i), *view, windows[i])?;
        if let Some(mixer) = keys_values {
            attention.keys_values = KeysValues::OfMixer(mixer);
        }
        let shape = RopeShape { head_dim: attention.shape.head_dim, ..trunk.rope_shape(context) };
        attention.rope = Some(intern(&mut ropes, rope(c, *view)?.rope(shape)?));
        let ffn = gated(c, &trunk, keys_values.is_some())?;
        let mut steps = vec![
            Step::new(
                norms(&trunk, "input_layernorm", "post_attention_layernorm"),
                Mixer::Attention(attention),
            ),
            Step::new(
                norms(&trunk, "pre_feedforward_layernorm", "post_feedforward_layernorm"),
                if c.is_on("enable_moe_block")? { twin(c, &trunk, ffn)? } else { Ffn::Gated(ffn) },
            ),
        ];
        if let Some(inputs) = &inputs {
            let gate =
                LayerInputFfn { layer: i, width: inputs.width, activation: trunk.activation };
            let norms = Norms::Post(trunk.norm("post_per_layer_input_norm"));
            steps.push(Step::new(norms, Ffn::LayerInput(gate)));
        }
        layers.push(Layer { steps });
    }
    let mut spec = trunk.spec("gemma4", ropes, layers);
    spec.embed_scale = (spec.hidden as f32).sqrt();
    spec.layer_inputs = inputs;
    spec.layer_scalars = LayerScalars::Stored;
    spec.final_soft_cap = c.positive("final_logit_softcapping")?;
    Ok(spec)
}

/// What configs of this kind leave out. The models without encoders have no inputs per layer.
fn with_usual_values<'a>(c: &Config<'a>) -> Result<Config<'a>, Error> {
    let [width, window, positions] = match c.model_type()?.contains("unified") {
        true => [0, 1024, 262_144],
        false => [256, 512, 131_072],
    };
    Ok(c.with_defaults(json!({
        "vocab_size": 262_144, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "sliding_window": window,
        "max_position_embeddings": positions, "hidden_size_per_layer_input": width,
        "vocab_size_per_layer_input": 262_144,
    })))
}

pub(super) fn norms(trunk: &Trunk, before: &'static str, after: &'static str) -> Norms {
    Norms::Sandwich { before: trunk.norm(before), after: trunk.norm(after) }
}

/// Five sliding layers to a full one, unless the config says otherwise. The last one is full in any
/// case.
fn views(c: &Config, trunk: &Trunk) -> Result<Vec<View>, Error> {
    let is_full = |i: usize| (i + 1).is_multiple_of(6);
    let mut views = trunk.views(c, |i| if is_full(i) { View::Full } else { View::Sliding })?;
    if let Some(last) = views.last_mut() {
        *last = View::Full;
    }
    Ok(views)
}

/// Whose keys and values each layer reads, if not its own: the last layers share those of the last
/// layer before them that sees as much.
pub(super) fn sources(c: &Config, views: &[View]) -> Result<Vec<Option<usize>>, Error> {
    let (key, n) = ("num_kv_shared_layers", views.len());
    let shared = c.count(key)?.unwrap_or(0);
    let Some(first) = n.checked_sub(shared).filter(|first| *first > 0) else {
        return Err(Error::config(key, format!("is {shared}, but there are {n} layers")));
    };
    let source = |(i, view): (usize, &View)| {
        if i < first {
            return Ok(None);
        }
        let like = views[..first].iter().rposition(|other| other == view);
        like.map(Some).ok_or_else(|| {
            let problem = format!("is {shared}: no layer before them sees as much as layer {i}");
            Error::config(key, problem)
        })
    };
    views.iter().enumerate().map(source).collect()
}

fn attention(
    c: &Config,
    (trunk, i): (&Trunk, usize),
    view: View,
    window: Option<usize>,
) -> Result<AttentionMixer, Error> {
    let mut attention = trunk.attention(window);
    attention.shape.scale = 1.0;
    let bias = attention_bias(c)?;
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    attention.head_norm = Some(trunk.head_norm());
    attention.value_norm = ValueNorm::Plain;
    if view == View::Full {
        let is_one = c.is_on("attention_k_eq_v")?;
        let (head_dim, kv_heads) = full_heads(c, trunk, (i, is_one))?;
        (attention.shape.head_dim, attention.shape.kv_heads) = (head_dim, kv_heads);
        attention.shape.values = Values::Own(head_dim);
        if is_one {
            attention.keys_values = KeysValues::OneProjection;
        }
    }
    Ok(attention)
}

/// Columns of a head and heads of keys in full layer `i`. Newer configs say it layer by layer, under
/// numbers with zeros before them.
fn full_heads(
    c: &Config,
    trunk: &Trunk,
    (i, is_one): (usize, bool),
) -> Result<(usize, usize), Error> {
    let (head_dim, kv_heads) = match c.get("per_layer_config").and_then(Value::as_object) {
        Some(layers) => {
            let own = layers.iter().find(|(number, _)| number.parse() == Ok(i));
            let size = |key: &str| {
                let value = own.and_then(|(_, values)| values.get(key)).filter(|v| !v.is_null());
                value
                    .map(|v| whole(&format!("per_layer_config.{i}.{key}"), v, 1, 1 << 20))
                    .transpose()
            };
            (size("head_dim")?.unwrap_or(trunk.head_dim), size("num_key_value_heads")?)
        }
        None => {
            let kv_heads = if is_one { c.size("num_global_key_value_heads")? } else { None };
            (c.size("global_head_dim")?.unwrap_or(512), kv_heads)
        }
    };
    let kv_heads = kv_heads.unwrap_or(trunk.kv_heads);
    if !trunk.heads.is_multiple_of(kv_heads) {
        let heads = trunk.heads;
        let problem = format!("is {kv_heads}, which does not divide num_attention_heads {heads}");
        return Err(Error::config("num_global_key_value_heads", problem));
    }
    Ok((head_dim, kv_heads))
}

/// Layers on the keys and values of others may be twice as wide.
fn gated(c: &Config, trunk: &Trunk, is_sharing: bool) -> Result<GatedFfn, Error> {
    let inner = c.need_size("intermediate_size")?;
    let is_double = is_sharing && c.is_on("use_double_wide_mlp")?;
    Ok(trunk.gated(if is_double { 2 * inner } else { inner }))
}

/// Experts beside a layer that every row passes through.
fn twin(c: &Config, trunk: &Trunk, dense: GatedFfn) -> Result<Ffn, Error> {
    let [n, top_k] = expert_counts(c)?;
    let experts = Experts {
        n,
        top_k,
        inner: c.need_size("moe_intermediate_size")?,
        gating: Gating::SOFTMAX_OF_CHOSEN,
        routed_scale: 1.0,
        form: ExpertForm::gated(trunk.activation),
    };
    let router = Router { name: "router.proj", bias: Bias::Absent, correction: Correction::Absent };
    let scales = Some("router.per_expert_scale");
    Ok(Ffn::Twin(Box::new(TwinFfn {
        dense,
        dense_after: trunk.norm("post_feedforward_layernorm_1"),
        experts_before: trunk.norm("pre_feedforward_layernorm_2"),
        experts: MoeFfn { name: "", router, scales, ..trunk.mixture(experts) },
        experts_after: trunk.norm("post_feedforward_layernorm_2"),
    })))
}

/// A rotation of its own for each kind of layer.
fn rope(c: &Config, view: View) -> Result<RopeParams, Error> {
    let (name, usual) = match view {
        View::Sliding => ("sliding_attention", json!({"rope_theta": 10_000.0})),
        View::Full => (
            "full_attention",
            json!({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}),
        ),
    };
    let mut params = RopeParams::nested(c, name)?;
    if c.get("rope_parameters").is_none() {
        for (key, value) in usual.as_object().into_iter().flatten() {
            params.or(key, Some(value));
        }
    }
    Ok(params)
}

/// What tokens bring along for every layer; a width of 0 is none.
pub(super) fn layer_inputs(c: &Config, trunk: &Trunk) -> Result<Option<LayerInputs>, Error> {
    match c.count("hidden_size_per_layer_input")? {
        None | Some(0) => Ok(None),
        Some(width) => {
            let vocab = c.need_size("vocab_size_per_layer_input")?;
            Ok(Some(LayerInputs { vocab, width, eps: trunk.eps }))
        }
    }
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "tie_word_embeddings": true, "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "num_kv_shared_layers": 1, "use_double_wide_mlp": true, "global_head_dim": 24,
        "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 264,
        "final_logit_softcapping": 30.0,
    })
}
