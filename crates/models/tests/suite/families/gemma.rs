//! Gemma 3n and 4.

use hearth_models::recipe;
use serde_json::json;

use super::check;
use crate::common::{fixtures, json as read_json};
use crate::packings;

#[test]
fn gemma4_with_shared_keys_and_values_and_inputs_per_layer() {
    check("gemma4");
}

#[test]
fn gemma4_with_keys_that_are_values() {
    check("gemma4_unified");
}

#[test]
fn gemma4_with_experts_beside_every_feed_forward_layer() {
    check("gemma4_experts");
}

/// Older configs say once for all full layers what newer ones say layer by layer.
#[test]
fn heads_of_full_layers_are_found_in_both_forms_of_config() {
    for (case, kv_heads) in [("gemma4", None), ("gemma4_unified", Some(1))] {
        let newer = read_json(&fixtures().join(case).join("config.json"));
        let mut older = newer.clone();
        let keys = older.as_object_mut().expect("an object");
        assert!(keys.remove("per_layer_config").is_some(), "{case}");
        keys.insert("global_head_dim".into(), json!(24));
        keys.insert("num_global_key_value_heads".into(), json!(kv_heads));
        let (newer, older) = (recipe(&newer).expect(case), recipe(&older).expect(case));
        assert_eq!(newer, older, "{case}");
    }
}

/// In stacks of another name.
#[test]
fn gemma4_with_experts_as_mlx_converts_it() {
    packings::check("gemma4_experts_affine4");
}

#[test]
fn a_gemma4_that_makes_no_sense_names_the_key() {
    let config = read_json(&fixtures().join("gemma4/config.json"));
    let check = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config.as_object_mut().expect("an object").insert(key.into(), value);
        let error = recipe(&config).expect_err(key).to_string();
        assert!(error.contains(key), "{error}");
    };
    check("num_kv_shared_layers", json!(4));
    check("num_kv_shared_layers", json!(3));
    check("use_bidirectional_attention", json!("all"));
    check("per_layer_config", json!({"1": {"head_dim": 0}}));
    check("vocab_size_per_layer_input", json!("many"));
}

#[test]
fn gemma3n_with_several_streams_and_few_activations() {
    check("gemma3n");
}

/// A wrapper's names, tables and projections of four bits.
#[test]
fn gemma3n_as_mlx_converts_it() {
    packings::check("gemma3n_affine4");
}

#[test]
fn a_gemma3n_that_makes_no_sense_names_the_key() {
    let config = read_json(&fixtures().join("gemma3n/config.json"));
    let check = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config.as_object_mut().expect("an object").insert(key.into(), value);
        let error = recipe(&config).expect_err(key).to_string();
        assert!(error.contains(key), "{error}");
    };
    check("altup_active_idx", json!(4));
    check("activation_sparsity_pattern", json!([0.5, 0.5, 0.5, 1.0]));
    check("activation_sparsity_pattern", json!([0.5]));
    check("activation_sparsity_scale", json!([0.5]));
    check("activation_sparsity_scale", json!([0.5, 0.5, 0.5, "all"]));
    check("activation_sparsity_scale", json!(0.5));
    check("intermediate_size", json!([24, 24]));
    check("hidden_size_per_layer_input", json!(0));
    check("num_kv_shared_layers", json!(4));
}
