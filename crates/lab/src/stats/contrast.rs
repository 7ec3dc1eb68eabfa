//! Whether one engine is faster than another, or whether that cannot be told.
//!
//! Values are compared as logarithms of ratios. Within a block both were measured under the same
//! conditions, so blocks are pairs. What the same engine differs from itself by, measured as if it were
//! two, is the floor: a difference counts only beyond it.

use serde::Serialize;

use super::{RESAMPLES, interval, mean, quantile_of_sorted, tail};
use crate::rng::Rng;

/// A difference of less than this is called none, where the interval is that narrow.
const NEGLIGIBLE: f64 = 0.05;

/// How two compare.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Contrast {
    /// How many times the first is the second: a geometric mean.
    pub ratio: f64,
    /// Where that lies, with 95 % confidence.
    pub ci: [f64; 2],
    /// How far from 1 the same engine twice was, on average; 0 where nobody tried.
    pub floor: f64,
    /// How many values there were of each, at least.
    pub n: usize,
}

/// What may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval is within 5 % of equality.
    Same,
    /// The whole interval is on the better side of the floor.
    Faster,
    /// The whole interval is on the worse side of it.
    Slower,
    /// Nothing of this: more runs are needed.
    Unclear,
}

impl Contrast {
    /// What may be said, where `higher` says whether a larger value is better.
    pub fn verdict(&self, higher: bool) -> Verdict {
        if self.n < 3 {
            return Verdict::Unclear;
        }
        let floor = self.floor.ln_1p();
        let [low, high] = self.ci.map(f64::ln);
        let (above, below) = (low > floor, high < -floor);
        let negligible = NEGLIGIBLE.ln_1p().max(floor);
        match (above, below) {
            (true, _) if higher => Verdict::Faster,
            (_, true) if !higher => Verdict::Faster,
            (true, _) | (_, true) => Verdict::Slower,
            _ if low > -negligible && high < negligible => Verdict::Same,
            _ => Verdict::Unclear,
        }
    }
}

/// Of values that were measured in pairs. `None`: there is no pair of positive numbers.
pub fn of_pairs(pairs: &[(f64, f64)], floor: f64) -> Option<Contrast> {
    let logs: Vec<f64> = pairs.iter().filter_map(|&(a, b)| log_ratio(a, b)).collect();
    if logs.is_empty() {
        return None;
    }
    let ci = interval(&logs, mean).map(f64::exp);
    Some(Contrast { ratio: mean(&logs).exp(), ci, floor, n: logs.len() })
}

/// Of values that were measured at different times. `None`: one side has no positive number.
pub fn of_two(a: &[f64], b: &[f64], floor: f64) -> Option<Contrast> {
    let logs = |values: &[f64]| -> Vec<f64> {
        values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect()
    };
    let (a, b) = (logs(a), logs(b));
    let n = a.len().min(b.len());
    if n == 0 {
        return None;
    }
    let ratio = (mean(&a) - mean(&b)).exp();
    if n == 1 {
        return Some(Contrast { ratio, ci: [ratio, ratio], floor, n });
    }
    let mut rng = Rng::of(n as u64, "two samples");
    let mut draw = |values: &[f64]| {
        (0..values.len()).map(|_| values[rng.below(values.len())]).sum::<f64>()
            / values.len() as f64
    };
    let mut found: Vec<f64> = (0..RESAMPLES).map(|_| draw(&a) - draw(&b)).collect();
    found.sort_by(f64::total_cmp);
    let tail = tail(n);
    let ci = [tail, 1.0 - tail].map(|p| quantile_of_sorted(&found, p).exp());
    Some(Contrast { ratio, ci, floor, n })
}

/// The floor: how far from 1 the ratio of the same engine twice was, as root mean square over cells.
/// Each of `cells` has the pairs of one cell. 0 where there are none.
pub fn floor(cells: &[Vec<(f64, f64)>]) -> f64 {
    let squares: Vec<f64> = cells
        .iter()
        .filter_map(|pairs| {
            let logs: Vec<f64> = pairs.iter().filter_map(|&(a, b)| log_ratio(a, b)).collect();
            (!logs.is_empty()).then(|| mean(&logs).powi(2))
        })
        .collect();
    if squares.is_empty() { 0.0 } else { mean(&squares).sqrt().exp_m1() }
}

fn log_ratio(a: f64, b: f64) -> Option<f64> {
    (a > 0.0 && b > 0.0).then(|| (a / b).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of two engines over blocks. The machine drifts by 4 % from block to block, which both
    /// feel, and every run is off by `noise` for itself.
    fn blocks(seed: u64, n: usize, slower: f64, noise: f64) -> Vec<(f64, f64)> {
        let mut rng = Rng::new(seed);
        (0..n)
            .map(|_| {
                let drift = 100.0 * (0.04 * rng.normal()).exp();
                let mut one = |times: f64| drift * times * (noise * rng.normal()).exp();
                (one(1.0 - slower), one(1.0))
            })
            .collect()
    }

    fn verdicts(slower: f64, n: usize) -> Vec<Verdict> {
        (0..200)
            .map(|seed| {
                let null: Vec<_> =
                    (0..6).map(|cell| blocks(9000 + seed * 10 + cell, n, 0.0, 0.01)).collect();
                let pairs = blocks(seed, n, slower, 0.01);
                of_pairs(&pairs, floor(&null)).unwrap().verdict(true)
            })
            .collect()
    }

    fn share(verdicts: &[Verdict], of: Verdict) -> f64 {
        verdicts.iter().filter(|verdict| **verdict == of).count() as f64 / verdicts.len() as f64
    }

    #[test]
    fn five_percent_are_seen_with_five_runs() {
        let verdicts = verdicts(0.05, 5);
        assert!(share(&verdicts, Verdict::Slower) > 0.9, "{verdicts:?}");
        assert_eq!(share(&verdicts, Verdict::Faster), 0.0);
    }

    #[test]
    fn the_same_engine_is_not_faster_than_itself() {
        let verdicts = verdicts(0.0, 5);
        let wrong = share(&verdicts, Verdict::Faster) + share(&verdicts, Verdict::Slower);
        assert!(wrong < 0.04, "{wrong}");
        assert!(share(&verdicts, Verdict::Same) > 0.8);
    }

    #[test]
    fn what_is_noisy_or_few_is_unclear() {
        let wild = blocks(1, 5, 0.05, 0.3);
        assert_eq!(of_pairs(&wild, 0.01).unwrap().verdict(true), Verdict::Unclear);
        let few = of_pairs(&[(1.0, 2.0), (1.0, 2.0)], 0.0).unwrap();
        assert_eq!(few.verdict(true), Verdict::Unclear);
        assert_eq!(of_pairs(&[(0.0, 1.0)], 0.0), None);
    }

    #[test]
    fn lower_is_better_for_times() {
        let pairs: Vec<(f64, f64)> = (0..5).map(|i| (80.0 + f64::from(i), 100.0)).collect();
        let contrast = of_pairs(&pairs, 0.0).unwrap();
        assert_eq!(contrast.verdict(false), Verdict::Faster);
        assert_eq!(contrast.verdict(true), Verdict::Slower);
        assert!((0.8..0.85).contains(&contrast.ratio));
    }

    #[test]
    fn the_floor_hides_smaller_differences() {
        let pairs = blocks(5, 8, 0.05, 0.002);
        assert_eq!(of_pairs(&pairs, 0.0).unwrap().verdict(true), Verdict::Slower);
        assert_ne!(of_pairs(&pairs, 0.06).unwrap().verdict(true), Verdict::Slower);
    }

    #[test]
    fn runs_of_different_days_compare_too() {
        let a: Vec<f64> = blocks(1, 9, 0.3, 0.01).iter().map(|pair| pair.0).collect();
        let b: Vec<f64> = blocks(2, 9, 0.3, 0.01).iter().map(|pair| pair.1).collect();
        let contrast = of_two(&a, &b, 0.0).unwrap();
        assert_eq!(contrast.verdict(true), Verdict::Slower);
        assert_eq!(contrast, of_two(&a, &b, 0.0).unwrap());
        assert_eq!(of_two(&a, &[], 0.0), None);
    }
}
