//! Models with recurrent layers or latents, through the whole command: all is as it is for others, prompts that
//! come from the cache included.

#![allow(dead_code, reason = "the common part has more than this file needs")]

mod common;

use common::{Home, write_model_of};
use serde_json::Value;

#[test]
fn a_hybrid_keeps_the_promise() {
    for model_type in ["qwen3_next", "qwen3_5_text", "kimi_linear"] {
        let info = verified(model_type);
        let number = |key: &str| info["memory"][key].as_u64().unwrap();
        // Two for each of 16 requests, and some to be kept.
        assert!(number("states") > 0 && number("n_states") > 32, "{info}");
    }
}

/// Keys whose first columns are the values, beside experts.
#[test]
fn latents_keep_the_promise() {
    verified("deepseek_v3");
}

/// What `info` says about a tiny model, for which `verify` finds everything equal.
fn verified(model_type: &str) -> Value {
    let home = Home::new();
    let folder = home.path().join("model");
    let mut config = models::tiny::config(model_type).unwrap();
    // As many tokens as the tokenizer has, and more.
    config["vocab_size"] = 4096.into();
    write_model_of(config, &folder);
    let model = folder.display().to_string();
    let json = |args: &[&str]| -> Value {
        let out = home.run(args, &[("HF_HUB_OFFLINE", "1")]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {said}");
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let found = json(&["verify", &model, "--json", "--quick", "--threads", "2"]);
    assert_eq!(found["equal"], true, "{found}");
    let arms = found["arms"].as_array().unwrap();
    assert!(arms.iter().all(|arm| arm["verdict"] == "equal"), "{found}");
    json(&["info", &model, "--json"])
}
