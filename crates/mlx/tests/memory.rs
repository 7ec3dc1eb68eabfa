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

/// More than any machine can address.
#[test]
fn no_room_is_an_error_with_numbers() {
    let mlx = mlx();
    let shape = Attention {
        heads: 256,
        kv_heads: 256,
        head_dim: 512,
        values: Values::Own(512),
        scale: 1.0,
        window: None,
        growth: None,
        soft_cap: None,
    };
    let n_blocks = (1 << 26) - 1;
    let pages = mlx.pages(&shape, KvFormat::F16, n_blocks);
    let error = mlx.check().unwrap_err().to_string();
    assert!(error.contains("no room for keys and values of 1073741808 MiB beside"), "{error}");
    assert!(mlx.check().is_ok(), "said once");
    drop(pages);
    let conv = Recurrence::ShortConv(ShortConv { cols: 1 << 20, taps: 4 });
    let states = mlx.states(&conv, 1 << 30);
    let error = mlx.check().unwrap_err().to_string();
    assert!(error.contains("no room for states of"), "{error}");
    drop(states);
    // It can still be used.
    mlx.pages(&shape, KvFormat::F16, 1);
    mlx.vector(&[1.0, 2.0]);
    assert!(mlx.check().is_ok());
    assert!(mlx.memory().active > 0);
}
