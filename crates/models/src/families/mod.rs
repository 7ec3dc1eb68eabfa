//! One file per model family, one line here.
//!
//! A family maps a config to a [`ModelSpec`] and does nothing else: no weights, no device.

// What the family files are written with.
use backend::{ExpertForm, Experts, Gating, NormCenter, NormGain, NormOrder, NormSpan, Rope};
use serde_json::{Value, json};

use crate::config::{Config, wrong};
use crate::recipe::{AttentionMixer, Bias, ModelSpec};
use crate::trunk::{Trunk, View};
use crate::{Error, nearest};

macro_rules! families {
    ($($family:ident: $($model_type:literal),+;)+) => {
        $(mod $family;)+

        /// Every `model_type` this build can run.
        pub const SUPPORTED: &[&str] = &[$($($model_type),+),+];

        /// Families by the name of their recipe, each with its `model_type`s.
        pub const FAMILIES: &[(&str, &[&str])] =
            &[$((stringify!($family), &[$($model_type),+])),+];

        /// What a tiny config of this `model_type` has beside the usual keys.
        pub(crate) fn tiny(model_type: &str) -> Option<Value> {
            match model_type {
                $($($model_type)|+ => Some($family::tiny()),)+
                _ => None,
            }
        }

        fn cook(
            model_type: &str,
            config: &Config,
            context: Option<usize>,
        ) -> Result<ModelSpec, Error> {
            match model_type {
                $($($model_type)|+ => $family::recipe(config, context),)+
                other => Err(Error::UnknownFamily {
                    found: other.chars().take(60).collect(),
                    nearest: nearest::names(other, SUPPORTED),
                }),
            }
        }
    };
}

mod state_space;

families! {
    arcee: "arcee";
    bailing_moe: "bailing_moe", "bailing_moe_v2";
    cohere: "cohere";
    cohere2: "cohere2";
    deepseek_v2: "deepseek_v2";
    deepseek_v3: "deepseek_v3", "kimi_k2", "joyai_llm_flash";
    ernie4_5: "ernie4_5";
    ernie4_5_moe: "ernie4_5_moe";
    exaone4: "exaone4";
    falcon_h1: "falcon_h1";
    gemma: "gemma";
    gemma2: "gemma2";
    gemma3: "gemma3", "gemma3_text";
    gemma3n: "gemma3n", "gemma3n_text";
    gemma4: "gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text";
    glm: "glm";
    glm4: "glm4";
    glm4_moe: "glm4_moe";
    glm4_moe_lite: "glm4_moe_lite";
    gpt2: "gpt2";
    gpt_oss: "gpt_oss";
    granite: "granite";
    granitemoe: "granitemoe";
    granitemoehybrid: "granitemoehybrid";
    helium: "helium";
    hunyuan_v1_dense: "hunyuan_v1_dense";
    hunyuan_v1_moe: "hunyuan_v1_moe";
    internlm3: "internlm3";
    kimi_linear: "kimi_linear";
    lfm2: "lfm2";
    lfm2_moe: "lfm2_moe";
    llama: "llama", "xverse", "iquestcoder";
    mamba2: "mamba2";
    mimo: "mimo";
    minicpm: "minicpm";
    minicpm3: "minicpm3";
    minimax_m2: "minimax_m2";
    ministral3: "ministral3";
    mistral: "mistral", "mistral3", "ministral";
    mixtral: "mixtral";
    nemotron: "nemotron";
    nemotron_h: "nemotron_h";
    olmo2: "olmo2";
    olmo3: "olmo3";
    olmoe: "olmoe";
    phi: "phi";
    phi3: "phi3";
    qwen2: "qwen2";
    qwen2_moe: "qwen2_moe";
    qwen3: "qwen3";
    qwen3_5: "qwen3_5", "qwen3_5_text";
    qwen3_5_moe: "qwen3_5_moe", "qwen3_5_moe_text";
    qwen3_moe: "qwen3_moe";
    qwen3_next: "qwen3_next";
    seed_oss: "seed_oss";
    smollm3: "smollm3";
    stablelm: "stablelm";
    starcoder2: "starcoder2";
    youtu: "youtu", "youtu_llm";
}

/// The recipe of a Hugging Face `config.json`, for contexts of up to `max_positions`.
///
/// # Errors
/// An unknown `model_type`, with the nearest known ones; or a key that is missing or cannot be run.
pub fn recipe(config: &Value) -> Result<ModelSpec, Error> {
    let config = Config::new(config);
    cook(config.model_type()?, &config, None)
}

/// Like [`recipe`], for serving `context` positions at most. It differs for rotations that have a
/// short and a long form (longrope).
///
/// # Errors
/// As [`recipe`]; also where the rotation cannot reach that far.
pub fn recipe_for_context(config: &Value, context: usize) -> Result<ModelSpec, Error> {
    let config = Config::new(config);
    cook(config.model_type()?, &config, Some(context))
}

/// How many experts there are, and how many of them a row meets, by the names that configs have for
/// both.
fn expert_counts(c: &Config) -> Result<[usize; 2], Error> {
    let known = |keys: &[&'static str]| {
        keys.iter().copied().find(|key| c.get(key).is_some()).unwrap_or(keys[0])
    };
    let n_key = known(&["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"]);
    let k_key = known(&[
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_k",
    ]);
    let (n, top_k) = (c.need_count(n_key)?, c.need_count(k_key)?);
    if top_k > n {
        let problem = format!("is {top_k}, but there are {n} experts");
        return Err(Error::config(k_key, problem));
    }
    Ok([n, top_k])
}

/// `attention_bias`: whether all four projections of attention have biases.
fn attention_bias(c: &Config) -> Result<Bias, Error> {
    bias_switch(c, "attention_bias")
}

/// Refuses whatever `key` says beside `known`, which is what saying nothing means.
fn only(c: &Config, key: &str, known: &[Value]) -> Result<(), Error> {
    let same = |a: &Value, b: &Value| a == b || (a.is_number() && a.as_f64() == b.as_f64());
    match c.get(key).filter(|value| !known.iter().any(|known| same(known, value))) {
        None => Ok(()),
        Some(other) => {
            let known: Vec<String> = known.iter().map(Value::to_string).collect();
            Err(wrong(key, &known.join(" or "), other))
        }
    }
}

fn bias_switch(c: &Config, key: &str) -> Result<Bias, Error> {
    Ok(if c.is_on(key)? { Bias::Stored } else { Bias::Absent })
}
