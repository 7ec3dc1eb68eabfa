//! Random numbers that are the same in every process: of prompts, orders, arrival times, resampling.
//!
//! SplitMix64 (Steele, Lea and Flood 2014). Not for secrets.

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The stream of a seed and of whatever names the place where it is used.
    pub fn of(seed: u64, place: &str) -> Rng {
        // FNV-1a, so that a place has its own stream whatever else is drawn.
        let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut rng = Rng(seed ^ hash);
        rng.bits();
        rng
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        // The bias of the product is below n / 2^64.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From the standard normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// From the exponential distribution of mean 1: the gaps of arrivals that know nothing of each other.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// One of them. Nothing of an empty list.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }

    /// Puts them in random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_and_the_place_decide() {
        let draw = |seed, place| Rng::of(seed, place).bits();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        // The first numbers of the published generator for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.bits(), 6_457_827_717_110_365_317);
        assert_eq!(rng.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut rng = Rng::new(7);
        let n = 20_000;
        let normal: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let mean = normal.iter().sum::<f64>() / f64::from(n);
        let variance = normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let gaps = (0..n).map(|_| rng.exponential()).sum::<f64>() / f64::from(n);
        assert!((gaps - 1.0).abs() < 0.03, "{gaps}");
        let mut order: Vec<usize> = (0..10).collect();
        rng.shuffle(&mut order);
        order.sort_unstable();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }
}
