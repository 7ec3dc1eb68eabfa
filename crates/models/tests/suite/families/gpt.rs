//! Families with a table of positions.

use super::check;
use crate::packings;

#[test]
fn gpt2_with_a_row_for_each_input() {
    check("gpt2");
    check("gpt2/unscaled");
}

/// MLX has turned the matrices over.
#[test]
fn gpt2_as_mlx_converts_it() {
    packings::check("gpt2_affine4");
}
