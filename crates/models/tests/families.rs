//! Every family computes the logits that transformers computes, and however the prompt is cut the
//! bytes are the same. The goldens come from `tools/goldens/families.py`.

mod common;

use std::path::Path;

use backend::{Backend, TokenId, reference::Reference};
use common::{Runner, fixtures, floats, json};
use hearth_models::{ModelSpec, recipe, recipe_for_context};
use weights::Checkpoint;

/// Largest difference to transformers in f32 with keys and values rounded to f16 as ours are, in
/// standard deviations of the logits. Nearly all of it comes from a handful of keys and values per
/// model that lie on the border of two f16 numbers and fall to the other side. Breaking any one term
/// of a model moves its logits by more than 0.1 (the generating script checks that).
const TOLERANCE: f32 = 3e-3;

/// Root mean square of the same differences.
const TOLERANCE_RMS: f32 = 3e-4;

/// The largest difference to transformers in plain f32: what keys and values in f16 cost.
const TOLERANCE_F32: f32 = 1.5e-2;

fn check(case: &str) {
    let folder = fixtures().join(case);
    let config = json(&folder.join("config.json"));
    check_spec(case, &recipe(&config).expect(case));
}

/// `case` is `<weights>` or `<weights>/<variant>`.
fn check_spec(case: &str, spec: &ModelSpec) {
    let weights = fixtures().join(case.split('/').next().unwrap_or(case));
    let checkpoint = Checkpoint::open(&weights).expect(case);
    let tokens = tokens(&weights);
    let device = Reference;
    let ours = check_device(case, &device, spec, &checkpoint, &tokens);
    let f32_only = floats(&fixtures().join(case).join("logits.f32"));
    let (worst, _) = distance(&ours, &f32_only);
    assert!(worst < TOLERANCE_F32, "{case}: {worst} deviations from plain f32");
}

fn tokens(folder: &Path) -> Vec<TokenId> {
    let ids = json(&folder.join("input.json"));
    ids.as_array()
        .expect("a list")
        .iter()
        .map(|id| id.as_u64().expect("an id") as TokenId)
        .collect()
}

/// Compares with the golden, then cuts the prompt.
fn check_device<B: Backend>(
    case: &str,
    device: &B,
    spec: &ModelSpec,
    checkpoint: &Checkpoint,
    tokens: &[TokenId],
) -> Vec<f32> {
    let mut runner = Runner::new(device, spec, checkpoint);
    let whole = runner.logits(tokens, tokens.len());
    let golden = floats(&fixtures().join(case).join("logits_kv16.f32"));
    let (worst, rms) = distance(&whole, &golden);
    assert!(worst < TOLERANCE, "{case}: the worst logit is {worst} deviations off (rms {rms})");
    assert!(rms < TOLERANCE_RMS, "{case}: logits are {rms} deviations off (worst {worst})");
    for chunk in [1, 7, 32] {
        let cut = runner.logits(tokens, chunk);
        assert!(cut == whole, "{case}: chunks of {chunk} change the logits");
    }
    whole
}

/// Largest and root mean square difference, in standard deviations of `golden`.
fn distance(ours: &[f32], golden: &[f32]) -> (f32, f32) {
    assert_eq!(ours.len(), golden.len());
    let n = golden.len() as f32;
    let mean = golden.iter().sum::<f32>() / n;
    let std = (golden.iter().map(|g| (g - mean).powi(2)).sum::<f32>() / n).sqrt();
    let differences = ours.iter().zip(golden).map(|(a, b)| (a - b).abs());
    let worst = differences.clone().fold(0.0, |w: f32, d| if d > w || d.is_nan() { d } else { w });
    let rms = (differences.map(|d| d * d).sum::<f32>() / n).sqrt();
    (worst / std, rms / std)
}

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
