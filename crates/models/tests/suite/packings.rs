//! Every MLX packing computes the logits that mlx-lm computes. The goldens come from
//! `tools/goldens/mlx_models.py`.

use backend::reference::Reference;
use hearth_models::{recipe, tiny};
use weights::{Checkpoint, Dtype, Tensor};

use crate::common::{Golden, Runner, fixtures, floats, tokens};

#[track_caller]
pub(crate) fn check(case: &str) {
    let root = fixtures().join("mlx");
    let folder = root.join(case);
    let checkpoint = Checkpoint::open(&folder).expect(case);
    assert!(checkpoint.warnings().is_empty(), "{case}: {:?}", checkpoint.warnings());
    let golden = Golden {
        name: case,
        spec: &recipe(&checkpoint.config).expect(case),
        checkpoint: &checkpoint,
        tokens: tokens(&root.join("input.json")),
        logits: floats(&folder.join("logits_kv16.f32")),
    };
    golden.check_all();
}

/// Whoever packs a head whose columns are to be of length one divides it before.
#[test]
fn a_packed_head_is_not_divided_again() {
    let mut config = tiny::config("bailing_moe").expect("a tiny one");
    let spec = recipe(&config).expect("a recipe");
    config["quantization"] = serde_json::json!({"group_size": 64, "bits": 4});
    let (rows, groups) = (spec.vocab, spec.hidden / 64);
    let words: Vec<u8> = (0..rows * spec.hidden / 2).map(|i| (i * 37 + i / 5) as u8).collect();
    let part = |end: &str| format!("lm_head.{end}");
    let mut tensors = tiny::tensors(&spec, 3);
    tensors.retain(|tensor| tensor.name != part("weight"));
    let shape = [rows, spec.hidden / 8];
    tensors.push(Tensor::new(part("weight"), &shape, Dtype::U32, words));
    for (end, value) in [("scales", 0.25), ("biases", -2.0)] {
        tensors.push(Tensor::from_f32(part(end), &[rows, groups], &vec![value; rows * groups]));
    }
    let said = |norm_head: bool| {
        let mut config = config.clone();
        config["norm_head"] = norm_head.into();
        let spec = recipe(&config).expect("a recipe");
        let checkpoint = Checkpoint::from_tensors(config, tensors.clone());
        Runner::new(&Reference, &spec, &checkpoint).logits(&[1, 5, 3, 200], 4)
    };
    assert!(said(true) == said(false));
}

#[test]
fn affine_groups_of_every_width() {
    for case in ["affine2", "affine3", "affine4", "affine5", "affine6", "affine8"] {
        check(case);
    }
}

#[test]
fn small_floats() {
    for case in ["mxfp4", "mxfp8", "nvfp4"] {
        check(case);
    }
}

#[test]
fn settings_per_layer() {
    check("mixed");
}

/// Gains that hold the one, taps on the other axis, projections by kind and by head.
#[test]
fn hybrids_as_mlx_converts_them() {
    check("hybrid_affine4");
    check("hybrid_next_mxfp4");
}

/// The names of a wrapper, tables and projections of four bits, layers that store no keys.
#[test]
fn gemma4_as_mlx_converts_it() {
    check("gemma4_affine4");
}

#[test]
fn stacked_experts() {
    check("moe_affine4");
    check("moe_nvfp4_modes");
}

/// Experts under `experts` rather than `switch_mlp`, with biases and settings of their own.
#[test]
fn experts_of_gpt_oss() {
    check("gpt_oss_affine4");
    check("gpt_oss_mxfp4");
}

#[test]
fn experts_by_corrected_sigmoids() {
    check("glm_affine4");
    check("minimax_affine4");
}
