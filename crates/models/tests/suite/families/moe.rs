//! Mixtures of experts.

use super::check;
use crate::packings;

#[test]
fn gpt_oss_with_sinks_and_transposed_experts() {
    check("gpt_oss");
    check("gpt_oss/even");
}

/// As its makers published it; `tools/goldens/gpt_oss_blocks.py`.
#[test]
fn gpt_oss_with_blocks_of_mxfp4() {
    check("gpt_oss_mxfp4");
}

#[test]
fn glm4_moe_with_groups_and_a_dense_layer() {
    check("glm4_moe");
    check("glm4_moe/free");
}

#[test]
fn mixtral_with_a_window() {
    check("mixtral");
}

#[test]
fn granitemoe_with_every_factor() {
    check("granitemoe");
}

#[test]
fn ernie4_5_moe_with_corrections() {
    check("ernie4_5_moe");
}

#[test]
fn minimax_m2_with_norms_over_all_heads() {
    check("minimax_m2");
}

#[test]
fn olmoe_with_and_without_an_even_sum() {
    check("olmoe");
    check("olmoe/even");
}

#[test]
fn hunyuan_v1_moe_with_numbers_per_layer() {
    check("hunyuan_v1_moe");
}

/// Transformers does not know these.
#[test]
fn bailing_moe_with_corrected_sigmoids_in_groups_and_with_a_softmax() {
    packings::check("ling_affine4");
    packings::check("bailing_softmax_affine4");
}

#[test]
fn bailing_moe_with_a_head_of_columns_of_length_one() {
    packings::check("bailing_norm_head_affine4");
}
