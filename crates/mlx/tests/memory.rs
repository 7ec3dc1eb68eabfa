//! What MLX has no memory for is an error with numbers, and the device goes on. Needs MLX: `HEARTH_MLX`
//! names its C library.

#![cfg(feature = "installed-mlx")]

use backend::ops::{AttentionOps, Memory, RecurrentOps};
use backend::{Attention, KvFormat, Recurrence, ShortConv, Values};
use hearth_mlx::{Mlx, Options};

fn mlx() -> Mlx {
    let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
    let options = Options { library: Some(library.into()), ..Options::default() };
    Mlx::open(&options).expect("the library that HEARTH_MLX names")
}

/// More than MLX can count. It says nothing itself where the processor has no memory, so that cannot be
/// tried here.
#[test]
fn no_room_is_an_error_with_numbers() {
    let mlx = mlx();
    let shape = Attention {
        heads: 1,
        kv_heads: 1,
        head_dim: 8,
        values: Values::Own(8),
        scale: 1.0,
        window: None,
        growth: None,
        soft_cap: None,
    };
    mlx.pages(&shape, KvFormat::F16, 1 << 26);
    let error = mlx.check().unwrap_err().to_string();
    let expected = "no room for keys and values of 65536 MiB beside";
    assert!(error.contains(expected) && error.contains("2147483648"), "{error}");
    assert!(mlx.check().is_ok(), "said once");
    let conv = Recurrence::ShortConv(ShortConv { cols: 8, taps: 2 });
    mlx.states(&conv, 1 << 31);
    let error = mlx.check().unwrap_err().to_string();
    assert!(error.contains("no room for states of 65536 MiB beside"), "{error}");
    // It can still be used.
    mlx.pages(&shape, KvFormat::F16, 1);
    mlx.vector(&[1.0, 2.0]);
    assert!(mlx.check().is_ok());
}
