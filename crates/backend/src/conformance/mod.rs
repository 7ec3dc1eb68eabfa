//! What makes a device right: it agrees with the reference, op by op, on random data.
//!
//! [`check`] compares with a tolerance and is for every device. [`check_rounded`] is for devices that keep
//! what they compute in 16 bits: how much may come of that follows from what each op does (`rounding.rs`).
//! [`check_invariance`] and
//! [`check_equal`] compare byte for byte and are for devices that promise that a row's arithmetic
//! depends neither on its neighbours nor on threads or instruction sets. All panic at the first
//! disagreement and say where it is; they are called from tests. Speed is not looked at here.

mod attention;
mod data;
mod layer_inputs;
mod passes;
mod recurrent;
mod rounding;
mod rows;
mod streams;

use weights::Float;

use crate::Backend;
use data::Rows;
use rounding::Rounding;

/// How far a device may be from the reference: `|got - want| <= tolerance * (|want| + rms)`, where
/// `rms` is the root mean square of the reference's row, and 0.01 at least: rows of next to nothing, as
/// the tails of activations are, may be zero as well.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// For ops that multiply with packed weights: linear layers and experts.
    pub linear: f32,
    /// For all other ops.
    pub other: f32,
}

impl Tolerance {
    /// A device that computes in f32 throughout.
    pub const EXACT: Tolerance = Tolerance { linear: 2e-5, other: 1e-5 };
    /// A device that quantises activations to eight bits in front of packed weights.
    pub const INT8: Tolerance = Tolerance { linear: 0.15, other: 1e-5 };
}

/// Compares every op of `device` with the reference.
pub fn check<B: Backend>(device: &B, tolerance: Tolerance) {
    rows::check(device, tolerance);
    attention::check(device, tolerance);
    recurrent::check(device, tolerance);
    layer_inputs::check(device, tolerance);
    streams::check(device, tolerance);
}

/// Compares every op of `device`, which rounds to `float` whatever it writes, with the reference on numbers
/// that `float` can hold. Moving blocks and keeping states, where nothing is rounded, is left to [`check`].
pub fn check_rounded<B: Backend>(device: &B, float: Float) {
    let rounding = Rounding::to(float);
    rows::check_rounded(device, &rounding);
    attention::check_rounded(device, &rounding);
    recurrent::check_rounded(device, &rounding);
    layer_inputs::check_rounded(device, &rounding);
    streams::check_rounded(device, &rounding);
}

/// Checks that a row gives the same bits alone, in a batch, and in chunks of any size.
pub fn check_invariance<B: Backend>(device: &B) {
    rows::check_invariance(device);
    attention::check_invariance(device);
    recurrent::check_invariance(device);
    layer_inputs::check_invariance(device);
    streams::check_invariance(device);
}

/// Checks that two devices, or two settings of one, give the same bits in every op.
pub fn check_equal<A: Backend, B: Backend>(a: &A, b: &B) {
    rows::check_equal(a, b);
    attention::check_equal(a, b);
    recurrent::check_equal(a, b);
    layer_inputs::check_equal(a, b);
    streams::check_equal(a, b);
}

fn assert_close(what: &str, got: &Rows, want: &Rows, tolerance: f32) {
    assert_eq!((got.rows, got.cols), (want.rows, want.cols), "{what}: shape");
    for r in 0..want.rows {
        let (got, want) = (got.row(r), want.row(r));
        let mean_square = want.iter().map(|x| x * x).sum::<f32>() / want.len() as f32;
        let rms = mean_square.sqrt().max(1e-2);
        for (c, (got, want)) in got.iter().zip(want).enumerate() {
            let limit = tolerance * (want.abs() + rms);
            let off = (got - want).abs();
            // Written so that a NaN fails.
            assert!(off <= limit, "{what}: row {r} column {c}: {got}, not {want} within {limit}");
        }
    }
}

fn assert_same_bits(what: &str, got: &Rows, want: &Rows) {
    assert_eq!((got.rows, got.cols), (want.rows, want.cols), "{what}: shape");
    for r in 0..want.rows {
        for (c, (got, want)) in got.row(r).iter().zip(want.row(r)).enumerate() {
            let same = got.to_bits() == want.to_bits();
            assert!(same, "{what}: row {r} column {c}: {got:e} is not bit for bit {want:e}");
        }
    }
}
