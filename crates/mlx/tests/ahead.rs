//! Whether the device begins while a pass is planned or when its result is read changes no bit. Needs
//! MLX: `HEARTH_MLX` names its C library.

#![cfg(feature = "installed-mlx")]

use backend::ops::{DenseOps, Input, Memory, Output, RowNorm};
use backend::{Activation, Batch, NormGain, Span};
use hearth_mlx::{Begin, Mlx, Options};
use weights::{Float, Matrix, Packing};

const HIDDEN: usize = 64;
const INNER: usize = 160;
const LAYERS: usize = 12;
const ROWS: usize = 5;

/// Numbers of about this size that only depend on `seed`.
fn numbers(seed: u32, n: usize, size: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 - 0.5
    };
    (0..n).map(|_| 2.0 * size * next()).collect()
}

fn matrix(seed: u32, rows: usize, cols: usize) -> Matrix {
    let data = numbers(seed, rows * cols, 0.2).iter().flat_map(|x| x.to_le_bytes()).collect();
    let (packing, none) = (Packing::Plain(Float::F32), Vec::new());
    let (scales, biases) = (none.clone().into(), none.into());
    let data: Vec<u8> = data;
    Matrix { name: "w".into(), rows, cols, packing, data: data.into(), scales, biases }
}

/// What a stack of feed-forward layers makes of a few tokens, twice: more sums than are counted before
/// the device begins again.
fn passes(begin: Begin) -> [Vec<u32>; 2] {
    let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
    let options = Options { library: Some(library.into()), begin, ..Options::default() };
    let b = Mlx::open(&options).expect("the library that HEARTH_MLX names");
    let embed = b.weight(&[matrix(1, 32, HIDDEN)]);
    let gain = b.vector(&numbers(2, HIDDEN, 1.0));
    let layers: Vec<_> = (0..LAYERS as u32)
        .map(|i| {
            let up = b.weight(&[matrix(10 + i, 2 * INNER, HIDDEN)]);
            (up, b.weight(&[matrix(100 + i, HIDDEN, INNER)]))
        })
        .collect();
    let (mut x, mut inner) = (b.buf(ROWS * HIDDEN), b.buf(ROWS * INNER));
    let mut staged = b.staged(ROWS);
    [0, 7].map(|first| {
        let tokens = (0..ROWS as u32).map(|i| first + i).collect();
        let batch = Batch { tokens, spans: vec![Span::new(0..ROWS, 0, vec![0])], want: vec![] };
        b.stage(&batch, &mut staged);
        b.embed(&embed, &staged, 1.0, &mut x);
        for (up, down) in &layers {
            let norm = RowNorm::rms(&gain, NormGain::Stored, 1e-5);
            let gated = Output::Gated(Activation::Silu, &mut inner);
            b.linear(Input::Normed { x: &x, norm }, up, None, gated);
            b.linear(Input::Rows(&inner), down, None, Output::Onto(&mut x));
        }
        let mut out = Vec::new();
        b.read(&x, ROWS * HIDDEN, &mut out).expect("the device works");
        out.into_iter().map(f32::to_bits).collect()
    })
}

#[test]
fn when_it_begins_changes_no_bit() {
    let [first, second] = passes(Begin::WhenRead);
    assert_ne!(first, second, "other tokens give other numbers");
    assert_eq!(passes(Begin::WhilePlanning), [first, second]);
}
