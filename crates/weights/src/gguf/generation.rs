//! Writes the Hugging Face generation_config.json that a GGUF file's metadata stands for: what ends a
//! text, how the model's authors sample, and what must never come.
//!
//! What of it is applied is the reader's business.

use serde_json::{Map, Value as Json, json};

use crate::Error;

use super::config::number;
use super::metadata::Metadata;

/// The generation_config.json of a file, whose texts end with `stops`. What has no name in Transformers has
/// the one that llama.cpp gives it.
pub(super) fn generation_config(metadata: &Metadata, stops: &[u64]) -> Result<Json, Error> {
    let mut out = Map::new();
    for (theirs, ours) in [("bos_token_id", "bos"), ("pad_token_id", "padding")] {
        if let Some(id) = metadata.unsigned(&format!("tokenizer.ggml.{ours}_token_id"))? {
            out.insert(theirs.into(), json!(id));
        }
    }
    match stops {
        [] => {}
        [id] => {
            out.insert("eos_token_id".into(), json!(id));
        }
        ids => {
            out.insert("eos_token_id".into(), json!(ids));
        }
    }
    for (theirs, ours) in [
        ("temperature", "temp"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("repetition_penalty", "penalty_repeat"),
        ("xtc_probability", "xtc_probability"),
        ("xtc_threshold", "xtc_threshold"),
    ] {
        if let Some(x) = metadata.f32(&format!("general.sampling.{ours}"))? {
            out.insert(theirs.into(), number(x));
        }
    }
    for name in ["top_k", "penalty_last_n", "mirostat"] {
        let key = format!("general.sampling.{name}");
        // The penalty has -1 for all tokens.
        if metadata.f32(&key)? != Some(-1.0)
            && let Some(n) = metadata.unsigned(&key)?
        {
            out.insert(name.into(), json!(n));
        }
    }
    if let Some(temperature) = out.get("temperature").and_then(Json::as_f64) {
        out.insert("do_sample".into(), json!(temperature > 0.0));
    }
    let key = "tokenizer.ggml.suppress_tokens";
    if let Some(array) = metadata.numbers(key)? {
        let ids: Option<Vec<u64>> = array.numbers().map(|id| id.as_unsigned()).collect();
        let ids = ids.ok_or_else(|| metadata.bad(key, "ids of tokens", "other numbers".into()))?;
        out.insert("suppress_tokens".into(), json!(ids));
    }
    Ok(Json::Object(out))
}
