//! Families with multi-head latent attention.

use super::check;
use crate::packings;

#[test]
fn youtu_with_biases_and_either_order_of_rotary_pairs() {
    check("youtu");
    check("youtu/halves");
}

#[test]
fn yarn_makes_the_scores_of_latent_attention_larger() {
    check("youtu/yarn");
}

#[test]
fn deepseek_v2_with_experts_out_of_groups_and_without() {
    check("deepseek_v2");
    check("deepseek_v2/greedy");
}

#[test]
fn deepseek_v3_with_corrected_sigmoids_in_groups_and_without() {
    check("deepseek_v3");
    check("deepseek_v3/plain");
}

#[test]
fn glm4_moe_lite_with_a_dense_layer() {
    check("glm4_moe_lite");
}

#[test]
fn minicpm3_with_its_factors() {
    check("minicpm3");
}

/// The projection from latents as two stacks of packed matrices.
#[test]
fn latents_as_mlx_converts_them() {
    packings::check("deepseek_v3_affine4");
    packings::check("glm4_moe_lite_affine4");
}
