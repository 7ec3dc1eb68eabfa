//! How far an op may be from the reference where everything it writes is rounded to few bits. Not the ops:
//! how many roundings each is worth says the file that compares it.
//!
//! One rounding makes of `x` at most `x (1 + u)`, where `u` is the unit roundoff: 2^-11 in f16, 2^-8 in
//! bf16. What an op is given can be held exactly, so its error is its own. It is measured in units of `u`
//! times the largest number of a row, and counted:
//!
//! - roundings one after the other, of results up to as large as the row's largest number: one each;
//! - a sum of `k` terms: every partial sum is rounded, so that errors of up to `u` times what the sum is
//!   like come together `k` times. They are as often up as down. Uniform ones have a standard deviation of
//!   `u / sqrt(3)`, `k` of them one of `u sqrt(k / 3)`; four of these are allowed. The worst that could
//!   be, `k u`, says nothing where `k u` is more than one, as it is in bf16 from 256 terms on (Higham and
//!   Mary, *Sharper probabilistic backward error analysis for basic linear algebra kernels with random
//!   data*, 2020, have this argument in full);
//! - what goes into a product of two results or through a steep function: what comes of that, as the op
//!   has it.

use weights::{Float, Packing};

use super::data::{Rng, Rows};

/// Standard deviations that are allowed where errors come together at random.
const DEVIATIONS: f32 = 4.0;

/// What becomes of a packed weight before it is summed, as much as that many terms: scale and bias are
/// rounded to fit, scale times code, that plus the bias, and the product with an activation. Scale and
/// product are up to twice as large as the group's largest weight, and that is up to twice as large as most:
/// `2^2 (2^2 + 1 + 2^2 + 1 + 1)`.
const UNPACKING: usize = 44;

/// Rows of fewer columns may have nothing but small numbers, left of larger ones.
const ENOUGH: usize = 32;

/// Numbers that a device keeps in few bits.
pub(super) struct Rounding {
    float: Float,
    unit: f32,
}

impl Rounding {
    pub(super) fn to(float: Float) -> Rounding {
        let bits = match float {
            Float::F32 => 24,
            Float::F16 => 11,
            Float::Bf16 => 8,
        };
        Rounding { float, unit: 1.0 / (1u32 << bits) as f32 }
    }

    /// Draws numbers that can be held.
    pub(super) fn rng(&self, seed: u64) -> Rng {
        Rng::within(self.float, seed)
    }

    /// Panics where a number of `got` is further from `want` than so many roundings explain.
    pub(super) fn assert_near(&self, what: &str, got: &Rows, want: &Rows, roundings: f32) {
        let limits: Vec<f32> = sizes(want).into_iter().map(|size| size * roundings).collect();
        self.assert_within(what, got, want, &limits);
    }

    /// Panics where a number of `got` is further from `want` than its row's limit, in units of `u`.
    pub(super) fn assert_within(&self, what: &str, got: &Rows, want: &Rows, limits: &[f32]) {
        assert_eq!((got.rows, got.cols), (want.rows, want.cols), "{what}: shape");
        for (r, limit) in limits.iter().map(|limit| limit * self.unit).enumerate() {
            for (c, (got, want)) in got.row(r).iter().zip(want.row(r)).enumerate() {
                let off = (got - want).abs();
                // Written so that a NaN fails.
                assert!(
                    off <= limit,
                    "{what}: row {r} column {c}: {got}, not {want} within {limit} ({:?})",
                    self.float
                );
            }
        }
    }
}

/// What the roundings of each row are measured by.
pub(super) fn sizes(rows: &Rows) -> Vec<f32> {
    let mean_square = rows.data.iter().map(|x| x * x).sum::<f32>() / rows.data.len() as f32;
    let usual = if rows.cols < ENOUGH { mean_square.sqrt() } else { 0.0 };
    let largest = |row: &[f32]| row.iter().fold(usual.max(1e-2), |most, x| most.max(x.abs()));
    (0..rows.rows).map(|r| largest(rows.row(r))).collect()
}

/// Roundings that a product is worth, of rows that took `before` each, with a weight of so many `terms` a
/// row.
pub(super) fn of_product(packing: Packing, terms: usize, before: usize) -> f32 {
    let within = match packing {
        // Whoever does it sums in f32.
        Packing::Plain(_) => 0,
        // Not every device does here.
        _ => terms + UNPACKING,
    };
    1.0 + DEVIATIONS * ((within + before) as f32 / 3.0).sqrt()
}
