//! Every MLX packing computes the logits that mlx-lm computes. The goldens come from
//! `tools/goldens/mlx_models.py`.

use hearth_models::recipe;
use weights::Checkpoint;

use crate::common::{Golden, fixtures, floats, tokens};

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
