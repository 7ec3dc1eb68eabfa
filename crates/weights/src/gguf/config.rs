//! Writes the Hugging Face config.json that a GGUF file's metadata stands for.
//!
//! Beyond Hugging Face's own keys there are some of ours, for what GGUF does to a model:
//! - `activation_sparsity_scale`: for each layer of Gemma 3n, how many standard deviations above its mean a
//!   number of the gate must be in order to count; null where all do.
//! - `linear_by_kind: true`: the projections of gated delta rules have queries, keys, values and gates of
//!   all heads one after the other, whatever the family.
//! - `linear_heads_in_turn: true`: the large ones have the first value head of every key head, then the
//!   second ones, and so on.
//! - `rope_interleaved: true`: the rows of q and k lie in rotary pairs side by side.
//! - `rope_scaling: {"rope_type": "explicit", "factors": […]}`: divide the frequency of pair `i` by
//!   `factors[i]`. GGUF stores the outcome of Llama 3's rule only; where the rule's usual parameters
//!   explain the factors, they are named instead (`rope_type: llama3`).
//!
//! The tokenizer is not here.

use serde_json::{Map, Number, Value as Json, json};

use super::{
    arch::{Arch, Gains, RopeRows},
    deepseek, gemma, hybrids,
    metadata::{Metadata, Value},
    names::RopeFactors,
    states::{self, Restoring},
};
use crate::{Error, Tensor};

/// Layers a file may claim; the deepest real models have a few hundred.
const MAX_LAYERS: u64 = 10_000;

/// The hyperparameters of one architecture in one file.
pub(super) struct Hyper<'a> {
    /// The file's metadata.
    pub(super) metadata: &'a Metadata,
    /// Its architecture.
    pub(super) arch: &'a Arch,
}

impl Hyper<'_> {
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch.name)
    }

    pub(super) fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.metadata.unsigned(&self.key(key))
    }

    pub(super) fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.metadata.f32(&self.key(key))
    }

    pub(super) fn required(&self, key: &str) -> Result<u64, Error> {
        let found = self.unsigned(key)?.filter(|&n| n > 0);
        found.ok_or_else(|| self.metadata.missing(&self.key(key), "a number above zero"))
    }

    /// A number that may differ from layer to layer: one where all are equal, else a list.
    fn per_layer(&self, key: &str) -> Result<Option<Json>, Error> {
        let key = self.key(key);
        let Some(Value::Array(_)) = self.metadata.get(&key) else {
            return Ok(self.metadata.unsigned(&key)?.map(Json::from));
        };
        let Some(array) = self.metadata.numbers(&key)? else { return Ok(None) };
        let all: Option<Vec<u64>> = array.numbers().map(|value| value.as_unsigned()).collect();
        let all = all.ok_or_else(|| self.metadata.missing(&key, "whole numbers"))?;
        Ok(match all.first() {
            Some(first) if all.iter().all(|n| n == first) => Some(Json::from(*first)),
            Some(_) => Some(Json::from(all)),
            None => None,
        })
    }

    /// The layers of the model, and behind them those that guess further tokens, which are left out.
    pub(super) fn layers(&self) -> Result<Layers, Error> {
        let all = self.n_blocks()?;
        let guessing = self.unsigned("nextn_predict_layers")?.unwrap_or(0) as usize;
        match all.checked_sub(guessing).filter(|&n| n > 0) {
            Some(n) => Ok(Layers { n, guessing, states: Restoring::of(self)? }),
            None => {
                let key = self.key("nextn_predict_layers");
                Err(self.metadata.bad(&key, &format!("fewer than {all}"), guessing.to_string()))
            }
        }
    }

    fn n_blocks(&self) -> Result<usize, Error> {
        let n = self.required("block_count")?;
        if n > MAX_LAYERS {
            let expected = format!("at most {MAX_LAYERS} layers");
            return Err(self.metadata.bad(&self.key("block_count"), &expected, n.to_string()));
        }
        Ok(n as usize)
    }
}

/// How many layers there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layers {
    /// Those of the model.
    pub(super) n: usize,
    /// Those behind them.
    pub(super) guessing: usize,
    /// What was done to the tensors of those with a state.
    pub(super) states: Restoring,
}

/// The config.json of a model with these tensors, which carry Hugging Face names already.
pub(super) fn config(
    hyper: &Hyper,
    tensors: &[Tensor],
    factors: &RopeFactors,
) -> Result<Json, Error> {
    let arch = hyper.arch;
    let mut out = Map::new();
    out.insert("architectures".into(), json!([arch.class]));
    out.insert("model_type".into(), json!(arch.model_type));
    sizes(hyper, tensors, &mut out)?;
    if arch.model_type == "bert" {
        encoder(hyper, &mut out)?;
        return Ok(Json::Object(out));
    }
    if arch.model_type == "mamba2" {
        hybrids::mamba2(hyper, tensors, &mut out)?;
        return Ok(Json::Object(out));
    }
    decoder(hyper, tensors, &mut out)?;
    experts(hyper, &mut out)?;
    twists(hyper, tensors, &mut out)?;
    if let Some(scaling) = rope_scaling(hyper, factors, &mut out)? {
        out.insert("rope_scaling".into(), scaling);
    }
    if arch.rope == RopeRows::Interleaved {
        out.insert("rope_interleaved".into(), json!(true));
    }
    Ok(Json::Object(out))
}

fn sizes(hyper: &Hyper, tensors: &[Tensor], out: &mut Map<String, Json>) -> Result<(), Error> {
    let heads = hyper.per_layer("attention.head_count")?;
    let heads = heads.ok_or_else(|| {
        hyper.metadata.missing(&hyper.key("attention.head_count"), "a number above zero")
    })?;
    out.insert("hidden_size".into(), json!(hyper.required("embedding_length")?));
    if let Some(width) = hyper.per_layer("feed_forward_length")? {
        out.insert("intermediate_size".into(), width);
    }
    let layers = hyper.layers()?;
    out.insert("num_hidden_layers".into(), json!(layers.n));
    out.insert("num_nextn_predict_layers".into(), json!(layers.guessing));
    out.insert("num_attention_heads".into(), heads);
    out.insert("vocab_size".into(), json!(vocab_size(hyper, tensors)?));
    let context = hyper.unsigned("context_length")?.unwrap_or(2048);
    out.insert("max_position_embeddings".into(), json!(context));
    for (theirs, ours) in [("bos_token_id", "bos"), ("eos_token_id", "eos")] {
        if let Some(id) = hyper.metadata.unsigned(&format!("tokenizer.ggml.{ours}_token_id"))? {
            out.insert(theirs.into(), json!(id));
        }
    }
    Ok(())
}

/// As many as there are rows of the embedding; they equal the tokens, except in broken files.
fn vocab_size(hyper: &Hyper, tensors: &[Tensor]) -> Result<u64, Error> {
    const NAMES: [&str; 5] = [
        "model.embed_tokens.weight",
        "model.embeddings.weight",
        "model.word_embeddings.weight",
        "model.wte.weight",
        "embeddings.word_embeddings.weight",
    ];
    let embedding = tensors.iter().find(|tensor| NAMES.contains(&tensor.name.as_str()));
    if let Some(&rows) = embedding.and_then(|tensor| tensor.shape.first()) {
        return Ok(rows as u64);
    }
    match hyper.metadata.texts("tokenizer.ggml.tokens")? {
        Some(tokens) => Ok(tokens.len as u64),
        None => hyper.required("vocab_size"),
    }
}

fn encoder(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    out.insert("hidden_act".into(), json!("gelu"));
    if let Some(eps) = hyper.f32("attention.layer_norm_epsilon")? {
        out.insert("layer_norm_eps".into(), number(eps));
    }
    Ok(())
}

fn decoder(hyper: &Hyper, tensors: &[Tensor], out: &mut Map<String, Json>) -> Result<(), Error> {
    let has = |name: &str| tensors.iter().any(|tensor| tensor.name == name);
    let key = hyper.key("attention.head_count");
    let heads = out["num_attention_heads"].as_u64().filter(|&n| n > 0);
    let hidden = hyper.required("embedding_length")?;
    let head_dim = match (hyper.unsigned("attention.key_length")?, heads) {
        (Some(dim), _) if dim > 0 => dim,
        (_, Some(heads)) => hidden / heads,
        _ => return Err(hyper.metadata.missing(&key, "one number for all layers")),
    };
    let kv_heads = hyper.per_layer("attention.head_count_kv")?;
    let kv_heads = kv_heads.unwrap_or_else(|| out["num_attention_heads"].clone());
    out.insert("num_key_value_heads".into(), kv_heads);
    out.insert("head_dim".into(), json!(head_dim));
    norm_eps(hyper, out)?;
    let theta = hyper.f32("rope.freq_base")?.unwrap_or(10_000.0);
    out.insert("rope_theta".into(), number(theta));
    if let Some(rotated) = hyper.unsigned("rope.dimension_count")?
        && rotated < head_dim
    {
        let part = rotated as f64 / head_dim as f64;
        out.insert("partial_rotary_factor".into(), json!(part));
    }
    let act = if hyper.arch.gains == Gains::OneMore {
        ("hidden_activation", "gelu_pytorch_tanh")
    } else {
        ("hidden_act", "silu")
    };
    out.insert(act.0.into(), json!(act.1));
    let layer = hyper.arch.layers();
    let attention_bias = has(&format!("{layer}.0.self_attn.q_proj.bias"));
    out.insert("attention_bias".into(), json!(attention_bias));
    out.insert("mlp_bias".into(), json!(has(&format!("{layer}.0.mlp.down_proj.bias"))));
    out.insert("tie_word_embeddings".into(), json!(!has("lm_head.weight")));
    for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
        // Zero means none here, as in llama.cpp.
        if let Some(cap) = hyper.f32(key)?.filter(|&cap| cap != 0.0) {
            out.insert(key.into(), number(cap));
        }
    }
    if let Some(window) = hyper.unsigned("attention.sliding_window")?.filter(|&n| n > 0) {
        out.insert("sliding_window".into(), json!(window));
    }
    Ok(())
}

/// Models have norms of one kind, whose key the converter writes.
pub(super) fn norm_eps(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    let rms = "attention.layer_norm_rms_epsilon";
    let (key, eps) = match hyper.f32("attention.layer_norm_epsilon")? {
        Some(eps) => ("layer_norm_eps", Some(eps)),
        None => ("rms_norm_eps", hyper.f32(rms)?),
    };
    let eps = eps.ok_or_else(|| hyper.metadata.missing(&hyper.key(rms), "a number"))?;
    out.insert(key.into(), number(eps));
    Ok(())
}

/// What single families have beside the usual.
fn twists(hyper: &Hyper, tensors: &[Tensor], out: &mut Map<String, Json>) -> Result<(), Error> {
    for (theirs, ours) in hyper.arch.factors {
        if let Some(factor) = hyper.f32(theirs)? {
            out.insert((*ours).into(), number(factor));
        }
    }
    if let Some(types) = layer_types(hyper)? {
        out.insert("layer_types".into(), types);
    }
    match hyper.arch.name {
        "olmo2" if out.contains_key("sliding_window") => {
            out.insert("model_type".into(), json!("olmo3"));
            out.insert("architectures".into(), json!(["Olmo3ForCausalLM"]));
        }
        "command-r" => {
            let name = "model.layers.0.self_attn.q_norm.weight";
            let is_normed = tensors.iter().any(|tensor| tensor.name == name);
            out.insert("use_qk_norm".into(), json!(is_normed));
        }
        "gemma2" => gemma::gemma2(hyper, out)?,
        "gemma3" => gemma::gemma3(hyper, out)?,
        "gemma3n" => gemma::gemma3n(hyper, tensors, out)?,
        "gemma4" => gemma::gemma4(hyper, tensors, out)?,
        "starcoder2" => {
            out.insert("hidden_act".into(), json!("gelu_pytorch_tanh"));
        }
        "lfm2" => convolutions(hyper, out)?,
        "qwen3next" | "qwen35" | "qwen35moe" => states::delta(hyper, out)?,
        "gpt2" => {
            out.insert("hidden_act".into(), json!("gelu_new"));
        }
        "granitehybrid" => hybrids::granite(hyper, tensors, out)?,
        "falcon-h1" => hybrids::falcon(hyper, tensors, out)?,
        "nemotron_h" | "nemotron_h_moe" => hybrids::nemotron(hyper, tensors, out)?,
        "kimi-linear" => hybrids::kimi(hyper, out)?,
        "bailingmoe2" => deepseek::bailing(hyper, tensors, out)?,
        "deepseek2" => deepseek::latent(hyper, out)?,
        "glm4moe" => {
            deepseek::mixture(hyper, out)?;
            let name = "model.layers.0.self_attn.q_norm.weight";
            let is_normed = tensors.iter().any(|tensor| tensor.name == name);
            out.insert("use_qk_norm".into(), json!(is_normed));
        }
        "lfm2moe" => {
            convolutions(hyper, out)?;
            let dense = hyper.unsigned("leading_dense_block_count")?.unwrap_or(0);
            out.insert("num_dense_layers".into(), json!(dense));
            out.insert("norm_topk_prob".into(), json!(true));
        }
        _ => {}
    }
    Ok(())
}

/// Which layers have heads of keys, where the file says so layer by layer; all that do have as many.
pub(super) fn have_heads(
    hyper: &Hyper,
    out: &mut Map<String, Json>,
) -> Result<Option<Vec<bool>>, Error> {
    let key = hyper.key("attention.head_count_kv");
    let kv_heads = out["num_key_value_heads"].clone();
    let Some(list) = kv_heads.as_array() else { return Ok(None) };
    let heads: Vec<u64> = list.iter().filter_map(Json::as_u64).collect();
    let all = heads.iter().filter(|n| **n > 0);
    let most = all.clone().max().ok_or_else(|| hyper.metadata.missing(&key, "some heads"))?;
    if all.clone().any(|n| n != most) {
        let found = kv_heads.to_string();
        return Err(hyper.metadata.bad(&key, "the same number for all layers", found));
    }
    out.insert("num_key_value_heads".into(), json!(most));
    Ok(Some(heads.iter().map(|n| *n > 0).collect()))
}

/// Layers without heads of keys are convolutions. The width of feed-forward layers is the final one.
fn convolutions(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    if let Some(have_heads) = have_heads(hyper, out)? {
        let kind = |has: &bool| if *has { "full_attention" } else { "conv" };
        out.insert("layer_types".into(), have_heads.iter().map(kind).collect());
    }
    out.insert("conv_L_cache".into(), json!(hyper.required("shortconv.l_cache")?));
    out.insert("conv_bias".into(), json!(false));
    out.insert("block_auto_adjust_ff_dim".into(), json!(false));
    Ok(())
}

/// Which layers slide, where the file says so layer by layer.
fn layer_types(hyper: &Hyper) -> Result<Option<Json>, Error> {
    let key = hyper.key("attention.sliding_window_pattern");
    let Some(Value::Array(_)) = hyper.metadata.get(&key) else { return Ok(None) };
    let Some(array) = hyper.metadata.numbers(&key)? else { return Ok(None) };
    let name = |value| match value {
        Value::Bool(true) => Ok("sliding_attention"),
        Value::Bool(false) => Ok("full_attention"),
        _ => Err(hyper.metadata.missing(&key, "a truth value per layer")),
    };
    Ok(Some(json!(array.numbers().map(name).collect::<Result<Vec<_>, _>>()?)))
}

/// The keys of a mixture of experts, in the words of the family.
fn experts(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    let Some(n) = hyper.unsigned("expert_count")?.filter(|&n| n > 0) else { return Ok(()) };
    let used = hyper.required("expert_used_count")?;
    out.insert("num_experts_per_tok".into(), json!(used));
    if hyper.arch.model_type == "llama" {
        out.insert("model_type".into(), json!("mixtral"));
        out.insert("architectures".into(), json!(["MixtralForCausalLM"]));
        out.insert("num_local_experts".into(), json!(n));
        return Ok(());
    }
    out.insert("num_experts".into(), json!(n));
    if let Some(width) = hyper.per_layer("expert_feed_forward_length")? {
        // Where all layers have experts, Hugging Face has no other width.
        let key = match hyper.arch.model_type {
            "gpt_oss" | "minimax_m2" => "intermediate_size",
            _ => "moe_intermediate_size",
        };
        out.insert(key.into(), width);
    }
    if let Some(width) = hyper.unsigned("expert_shared_feed_forward_length")? {
        out.insert("shared_expert_intermediate_size".into(), json!(width));
    }
    let norm = hyper.metadata.bool(&hyper.key("expert_weights_norm"))?;
    let usual = ["qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "kimi_linear"];
    let norm = norm.unwrap_or(usual.contains(&hyper.arch.model_type));
    out.insert("norm_topk_prob".into(), json!(norm));
    out.insert("decoder_sparse_step".into(), json!(1));
    out.insert("mlp_only_layers".into(), json!([]));
    Ok(())
}

fn rope_scaling(
    hyper: &Hyper,
    factors: &RopeFactors,
    out: &mut Map<String, Json>,
) -> Result<Option<Json>, Error> {
    if hyper.arch.name == "gemma4" {
        gemma::ropes(hyper, factors, out)?;
        return Ok(None);
    }
    let original = hyper.unsigned("rope.scaling.original_context_length")?;
    if let (Some(long), Some(short)) = (&factors.long, &factors.short) {
        // Hugging Face keeps the original length beside the scaling for this one type.
        if let Some(original) = original {
            out.insert("original_max_position_embeddings".into(), json!(original));
        }
        let mut scaling = json!({
            "rope_type": "longrope",
            "long_factor": numbers(long),
            "short_factor": numbers(short),
        });
        if let Some(factor) = hyper.f32("rope.scaling.attn_factor")? {
            scaling["attention_factor"] = number(factor);
        }
        return Ok(Some(scaling));
    }
    if let Some(freqs) = &factors.freqs {
        let theta = hyper.f32("rope.freq_base")?.unwrap_or(10_000.0);
        return Ok(Some(
            llama3_rule(freqs, theta)
                .unwrap_or_else(|| json!({"rope_type": "explicit", "factors": numbers(freqs)})),
        ));
    }
    let Some(factor) = hyper.f32("rope.scaling.factor")?.filter(|&f| f != 1.0 && f != 0.0) else {
        return Ok(None);
    };
    let key = hyper.key("rope.scaling.type");
    let mut scaling = match hyper.metadata.text(&key)?.unwrap_or("linear") {
        "none" => return Ok(None),
        ty @ ("linear" | "yarn") => json!({"rope_type": ty, "factor": number(factor)}),
        other => {
            return Err(hyper.metadata.bad(&key, "none, linear, yarn or longrope", other.into()));
        }
    };
    if scaling["rope_type"] == "yarn" {
        if hyper.arch.name == "deepseek2" {
            deepseek::mscale(hyper, &mut scaling)?;
        } else if let Some(all) = hyper.f32("rope.scaling.yarn_log_multiplier")? {
            scaling["mscale"] = json!(1.0);
            scaling["mscale_all_dim"] = number(all);
        }
        if let Some(beta) = hyper.f32("attention.temperature_scale")? {
            scaling["llama_4_scaling_beta"] = number(beta);
        }
        if let Some(original) = original {
            scaling["original_max_position_embeddings"] = json!(original);
        }
        if hyper.arch.model_type == "gpt_oss" {
            scaling["truncate"] = json!(false);
        }
        for (theirs, ours) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
            if let Some(x) = hyper.f32(&format!("rope.scaling.{ours}"))? {
                scaling[theirs] = number(x);
            }
        }
    }
    Ok(Some(scaling))
}

/// The parameters of Llama 3's rule that give these factors, if the usual ones do: every converter
/// uses 1 and 4 for the bounds, and a power of two for the original context.
fn llama3_rule(factors: &[f32], theta: f32) -> Option<Json> {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let factor = f64::from(*factors.last()?);
    if factor <= 1.0 {
        return None;
    }
    let rule = |pair: usize, original: f64| {
        let frequency = f64::from(theta).powf(-(pair as f64) / factors.len() as f64);
        let turns = original * frequency / std::f64::consts::TAU;
        let smooth = ((turns - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    let explains = |original: f64| {
        factors.iter().enumerate().all(|(pair, &stored)| {
            let stored = f64::from(stored);
            (rule(pair, original) - stored).abs() <= 1e-4 * stored.abs()
        })
    };
    let original = (10..=20).map(|bits| 1u32 << bits).find(|&n| explains(f64::from(n)))?;
    Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": original,
    }))
}

/// `x` with as few digits as name it among single-precision numbers: 1e-5, not 9.99999974e-6.
pub(super) fn number(x: f32) -> Json {
    let short: f64 = x.to_string().parse().unwrap_or(f64::from(x));
    Number::from_f64(short).map_or(Json::Null, Json::Number)
}

fn numbers(values: &[f32]) -> Json {
    values.iter().map(|&x| number(x)).collect()
}
