//! Dense families that are llama with a twist, or none at all.

use super::check;

#[test]
fn arcee_without_a_gate() {
    check("arcee");
}

#[test]
fn cohere_side_by_side_with_a_gain_per_head() {
    check("cohere");
}

#[test]
fn cohere2_rotating_within_windows_alone() {
    check("cohere2");
}

#[test]
fn ernie4_5_rotating_neighbours() {
    check("ernie4_5");
}

#[test]
fn exaone4_with_windows_and_without() {
    check("exaone4");
    check("exaone4/full");
}

#[test]
fn gemma_with_gains_that_lack_the_one() {
    check("gemma");
}

#[test]
fn glm_with_norms_before_and_around() {
    check("glm");
    check("glm4");
}

#[test]
fn granite_with_every_factor() {
    check("granite");
}

#[test]
fn helium_rotating_neighbours() {
    check("helium");
}

#[test]
fn hunyuan_normed_after_the_rotation() {
    check("hunyuan_v1_dense");
    check("hunyuan_v1_dense/alpha");
}

#[test]
fn internlm3_with_biases() {
    check("internlm3");
}

#[test]
fn ministral_with_windows_by_layer() {
    check("ministral");
}

#[test]
fn ministral3_with_growing_queries() {
    check("ministral3");
    check("ministral3/flat");
}

#[test]
fn nemotron_with_layer_norms_that_lack_the_one() {
    check("nemotron");
}

#[test]
fn olmo2_with_norms_behind_and_over_all_heads() {
    check("olmo2");
}

#[test]
fn olmo3_scaling_full_layers_alone() {
    check("olmo3");
    check("olmo3/yarn");
}

#[test]
fn phi_with_a_bias_on_its_head() {
    check("phi");
}

#[test]
fn seed_oss_with_biases_in_front() {
    check("seed_oss");
}

#[test]
fn smollm3_rotating_in_some_layers() {
    check("smollm3");
    check("smollm3/windows");
}

#[test]
fn stablelm_one_after_the_other_and_side_by_side() {
    check("stablelm");
    check("stablelm_parallel");
}

#[test]
fn starcoder2_with_windows_and_without() {
    check("starcoder2");
    check("starcoder2/full");
}

/// Windows in mlx-lm's rotating caches, settings per layer, a wrapper, families that transformers
/// does not have.
#[test]
fn as_mlx_converts_them() {
    for case in [
        "cohere2_affine4",
        "exaone4_affine4",
        "granite_affine4",
        "hunyuan_v1_dense_affine4",
        "mimo_affine4",
        "minicpm_affine4",
        "mistral3_affine4",
        "olmo3_affine4",
        "starcoder2_affine4",
    ] {
        crate::packings::check(case);
    }
}
