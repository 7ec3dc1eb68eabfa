//! Gemma 3n, alone or as the language model of a model that sees and hears: several residual streams of
//! which layers compute with one, a low-rank residual beside attention, gates of which only the largest
//! numbers count, and what Gemma 4 has too: inputs that tokens bring along, and upper layers on the
//! keys and values of lower ones.
//!
//! Not here: what is added for pictures and sound.

use super::gemma3::{full_rope, sliding_rope};
use super::gemma4::{layer_inputs, norms, sources};
use super::*;
use crate::config::{finite, wrong};
use crate::normal;
use crate::recipe::{
    AltUp, Branch, Ffn, GateKept, GatedFfn, KeysValues, Laurel, Layer, LayerInputFfn, Mixer, Norm,
    Norms, Skip, Step, Streams, ValueNorm,
};
use crate::rope::intern;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let is_full = |i: usize| (i + 1).is_multiple_of(5);
    let views = trunk.views(c, |i| if is_full(i) { View::Full } else { View::Sliding })?;
    let windows = trunk.windows(c, &views)?;
    let sources = sources(c, &views)?;
    let inputs = layer_inputs(c, &trunk)?;
    let gated = gated(c, &trunk)?;
    let shape = trunk.rope_shape(context);
    let mut ropes = Vec::new();
    let full = intern(&mut ropes, full_rope(c)?.rope(shape)?);
    let sliding = intern(&mut ropes, sliding_rope(c)?.rope(shape)?);
    let laurel = laurel(c, &trunk)?;
    let bias = attention_bias(c)?;
    let width = inputs.as_ref().map(|inputs| inputs.width).ok_or_else(|| {
        Error::config("hidden_size_per_layer_input", "is 0, but layers have inputs")
    })?;
    let mut layers = Vec::new();
    for (i, (source, ffn)) in sources.into_iter().zip(gated).enumerate() {
        let mut attention = trunk.attention(windows[i]);
        attention.shape.scale = 1.0;
        (attention.qkv_bias, attention.out_bias) = (bias, bias);
        attention.head_norm = Some(trunk.head_norm());
        attention.value_norm = ValueNorm::Plain;
        attention.keys_values = source.map_or(KeysValues::Own, KeysValues::OfMixer);
        attention.rope = Some(if views[i] == View::Full { full } else { sliding });
        let gate = LayerInputFfn { layer: i, width, activation: trunk.activation };
        layers.push(layer(
            &trunk,
            [
                Mixer::Attention(attention).into(),
                Ffn::Gated(ffn).into(),
                Ffn::LayerInput(gate).into(),
            ],
            &laurel,
        ));
    }
    let streams = streams(c, &trunk)?;
    let mut spec = trunk.spec("gemma3n", ropes, layers);
    spec.embed_scale = (spec.hidden as f32).sqrt();
    spec.layer_inputs = inputs;
    spec.streams = Streams::AltUp(streams);
    spec.final_soft_cap = c.positive("final_logit_softcapping")?;
    Ok(spec)
}

/// What configs of this kind leave out.
fn with_usual_values<'a>(c: &Config<'a>) -> Config<'a> {
    c.with_defaults(json!({
        "vocab_size": 262_400, "hidden_size": 2048, "intermediate_size": 16_384,
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 32_768,
        "tie_word_embeddings": true, "sliding_window": 512, "final_logit_softcapping": 30.0,
        "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256,
        "altup_active_idx": 0, "altup_correct_scale": true, "altup_num_inputs": 4,
        "num_kv_shared_layers": 15, "laurel_rank": 64,
    }))
}

/// Attention, thinking, and what the token brings along, which is for the other streams.
fn layer(trunk: &Trunk, [mix, think, inputs]: [Branch; 3], laurel: &Laurel) -> Layer {
    let mut mix = Step::new(norms(trunk, "input_layernorm", "post_attention_layernorm"), mix);
    mix.skip = Skip::Laurel(laurel.clone());
    let around = norms(trunk, "pre_feedforward_layernorm", "post_feedforward_layernorm");
    let think = Step::new(around, think);
    let mut inputs = Step::new(Norms::Post(trunk.norm("post_per_layer_input_norm")), inputs);
    inputs.skip = Skip::OtherStreams;
    Layer { steps: vec![mix, think, inputs] }
}

fn laurel(c: &Config, trunk: &Trunk) -> Result<Laurel, Error> {
    Ok(Laurel {
        rank: c.need_size("laurel_rank")?,
        norm: trunk.norm("laurel.post_laurel_norm"),
        scale: std::f32::consts::FRAC_1_SQRT_2,
    })
}

fn streams(c: &Config, trunk: &Trunk) -> Result<AltUp, Error> {
    let (n, active) = (c.need_count("altup_num_inputs")?, c.count("altup_active_idx")?);
    let active = active.unwrap_or(0);
    if n < 2 || active >= n {
        let problem = format!("is {active}, but there are {n} streams (of two at least)");
        return Err(Error::config("altup_active_idx", problem));
    }
    // What a router reads is divided by its columns besides.
    let scale = 1.0 / trunk.hidden as f32;
    Ok(AltUp {
        n,
        active,
        correct_scale: bias_switch(c, "altup_correct_scale")?,
        router_norm: Norm { scale, ..trunk.norm("altup.router_norm") },
    })
}

/// The feed-forward part of each layer. Configs say one width or one for each.
fn gated(c: &Config, trunk: &Trunk) -> Result<Vec<GatedFfn>, Error> {
    let n = trunk.n_layers;
    let inner = match c.get("intermediate_size") {
        Some(Value::Array(_)) => c.sizes("intermediate_size")?,
        _ => vec![c.need_size("intermediate_size")?; n],
    };
    need_len("intermediate_size", inner.len(), n)?;
    let layer = |(inner, kept)| GatedFfn { kept, ..trunk.gated(inner) };
    Ok(inner.into_iter().zip(kept(c, n)?).map(layer).collect())
}

/// Which numbers of the gate of each layer count. Hugging Face says of what share of them nothing is
/// left, GGUF how many deviations above the mean that is.
fn kept(c: &Config, n: usize) -> Result<Vec<GateKept>, Error> {
    let (shares, deviations) = ("activation_sparsity_pattern", "activation_sparsity_scale");
    if let Some(value) = c.get(deviations) {
        let list = value.as_array().ok_or_else(|| wrong(deviations, "a list", value))?;
        need_len(deviations, list.len(), n)?;
        let kept = |value: &Value| match value {
            Value::Null => Ok(GateKept::All),
            value => Ok(GateKept::Above(finite(deviations, value)? as f32)),
        };
        return list.iter().map(kept).collect();
    }
    let lost = match c.get(shares) {
        Some(_) => c.numbers(shares)?,
        None => (0..n).map(|i| if n > 10 && i < 10 { 0.95 } else { 0.0 }).collect(),
    };
    need_len(shares, lost.len(), n)?;
    let kept = |lost: f64| match lost {
        0.0 => Ok(GateKept::All),
        lost if lost > 0.0 && lost < 1.0 => Ok(GateKept::Above(normal::quantile(lost) as f32)),
        lost => Err(Error::config(shares, format!("has {lost}, which is no share below 1"))),
    };
    lost.into_iter().map(kept).collect()
}

fn need_len(key: &str, len: usize, n: usize) -> Result<(), Error> {
    match len == n {
        true => Ok(()),
        false => Err(Error::config(key, format!("has {len} entries for {n} layers"))),
    }
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "tie_word_embeddings": true, "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "num_kv_shared_layers": 1, "activation_sparsity_pattern": [0.9, 0.5, 0.0],
        "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 264, "laurel_rank": 8,
    })
}
