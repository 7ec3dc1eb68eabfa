//! Randomness without state: a draw is a function of its coordinates.
//!
//! Not for secrets: the numbers are well mixed, and anybody who has the seed can compute them.

use backend::TokenId;

/// All draws for one position of one answer.
#[derive(Clone, Copy)]
pub(super) struct Noise {
    key: u64,
}

/// Draws that are not about a token count down from here, far from all token ids.
const XTC: u64 = u64::MAX;

impl Noise {
    pub(super) fn new(seed: u64, position: usize) -> Noise {
        let position = (position as u64).wrapping_add(0x51_7c_c1_b7_27_22_0a_95);
        Noise { key: mix(mix(seed ^ 0x2545_f491_4f6c_dd1d).wrapping_add(mix(position))) }
    }

    /// Gumbel noise of `token`, unless it is certainly below `at_least`.
    ///
    /// The bound costs no logarithm: a uniform number with `n` leading ones is below
    /// `1 - 2^-(n + 1)`, and noise from there is below `(n + 1) * ln 2`. Nearly every token of a
    /// vocabulary is out of the race by that.
    pub(super) fn gumbel(self, token: TokenId, at_least: f64) -> Option<f64> {
        let bits = self.bits(u64::from(token));
        let bound = f64::from(bits.leading_ones() + 2) * std::f64::consts::LN_2;
        (bound >= at_least).then(|| -libm::log(-libm::log(unit(bits))))
    }

    /// The number in `0..1` that decides whether XTC cuts here.
    pub(super) fn xtc(self) -> f64 {
        unit(self.bits(XTC))
    }

    fn bits(self, coordinate: u64) -> u64 {
        mix(self.key.wrapping_add(coordinate.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// Strictly between 0 and 1, in 2^52 equal steps.
fn unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// A bijection in which every bit of the input moves about half the bits of the output:
/// alternating xor-shifts and multiplications by odd numbers.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 29)).wrapping_mul(0xa076_1d64_78bd_642f);
    x = (x ^ (x >> 32)).wrapping_mul(0xe703_7ed1_a0b4_28db);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_never_drops_what_could_win() {
        for position in 0..200 {
            let noise = Noise::new(5, position);
            for token in 0..500 {
                let value = noise.gumbel(token, f64::NEG_INFINITY).unwrap();
                assert_eq!(noise.gumbel(token, value), Some(value));
            }
        }
        for bits in [0, 1, u64::MAX, u64::MAX << 12, u64::MAX << 11, 1 << 63] {
            let bound = f64::from(bits.leading_ones() + 2) * std::f64::consts::LN_2;
            let value = -libm::log(-libm::log(unit(bits)));
            assert!(value.is_finite() && value < bound, "{bits:x}: {value} {bound}");
        }
    }

    #[test]
    fn every_coordinate_matters_and_bits_are_even() {
        let mut n_ones = [0u32; 64];
        let mut seen = std::collections::HashSet::new();
        for seed in 0..20 {
            for position in 0..20 {
                for token in 0..20 {
                    let bits = Noise::new(seed, position).bits(token);
                    assert!(seen.insert(bits));
                    for (bit, n) in n_ones.iter_mut().enumerate() {
                        *n += (bits >> bit & 1) as u32;
                    }
                }
            }
        }
        // 8000 fair coins: five standard deviations are 224.
        assert!(n_ones.iter().all(|n| n.abs_diff(4000) < 224), "{n_ones:?}");
    }
}
