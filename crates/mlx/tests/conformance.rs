//! What MLX computes is what the reference computes. Needs MLX: `HEARTH_MLX` names its C library.

#![cfg(feature = "installed-mlx")]

use backend::conformance::{Tolerance, check, check_rounded};
use hearth_mlx::{Mlx, Options, Precision};
use weights::Float;

fn mlx(precision: Precision) -> Mlx {
    let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
    let options = Options {
        library: Some(library.into()),
        precision,
        cache_bytes: Some(1 << 28),
        ..Options::default()
    };
    Mlx::open(&options).expect("the library that HEARTH_MLX names")
}

#[test]
fn in_f32_every_op_agrees_with_the_reference() {
    check(&mlx(Precision::F32), Tolerance { linear: 2e-5, other: 2e-5 });
}

#[test]
fn in_f16_every_op_is_as_near_as_its_roundings_say() {
    check_rounded(&mlx(Precision::F16), Float::F16);
}

#[test]
fn in_bf16_every_op_is_as_near_as_its_roundings_say() {
    check_rounded(&mlx(Precision::Bf16), Float::Bf16);
}
