//! The families that came first.

use hearth_models::{recipe, recipe_for_context};

use super::{check, check_spec};
use crate::common::{fixtures, json};

#[test]
fn llama_with_every_bias() {
    check("llama");
}

#[test]
fn llama_with_a_tied_head() {
    check("llama_tied");
}

#[test]
fn rope_stretched_evenly() {
    check("llama/linear");
}

#[test]
fn rope_stretched_as_in_llama_3() {
    check("llama/llama3");
}

#[test]
fn rope_stretched_by_yarn() {
    check("llama/yarn");
    check("llama/yarn_mscale");
}

#[test]
fn mistral_within_its_window_and_without() {
    check("mistral");
    check("mistral/full");
}

#[test]
fn qwen2_with_windows_in_the_upper_layers() {
    check("qwen2");
    check("qwen2/full");
}

#[test]
fn qwen2_moe_with_a_shared_expert_and_a_dense_layer() {
    check("qwen2_moe");
}

#[test]
fn qwen3_with_head_norms() {
    check("qwen3");
}

#[test]
fn qwen3_moe_with_dense_layers_between() {
    check("qwen3_moe");
}

#[test]
fn qwen3_next_with_projections_by_head_and_a_dense_layer() {
    check("qwen3_next");
    check("qwen3_next/half");
}

#[test]
fn qwen3_5_with_projections_by_kind() {
    check("qwen3_5");
}

#[test]
fn qwen3_5_moe_with_three_taps() {
    check("qwen3_5_moe");
}

#[test]
fn gemma2_with_soft_caps() {
    check("gemma2");
}

#[test]
fn gemma3_with_a_rotation_per_layer_type() {
    check("gemma3");
    check("gemma3/capped");
}

#[test]
fn phi3_with_fused_projections_and_a_partial_rotation() {
    check("phi3");
    check("phi3/window");
}

#[test]
fn longrope_chooses_its_list_by_the_context() {
    check("phi3/long");
    let config = json(&fixtures().join("phi3/short/config.json"));
    check_spec("phi3/short", &recipe_for_context(&config, 128).expect("a recipe"));
    assert_ne!(recipe_for_context(&config, 129).ok(), recipe_for_context(&config, 128).ok());
    assert_eq!(recipe_for_context(&config, 129).ok(), recipe(&config).ok());
}
