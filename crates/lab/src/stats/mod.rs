//! What several runs say together: summaries with intervals, marks on outliers, and verdicts.
//!
//! Every random choice is seeded, so the same numbers give the same answers.

mod contrast;

pub use contrast::{Contrast, Verdict, floor, of_pairs, of_two};

use serde::Serialize;

use crate::rng::Rng;

/// Resamples of a bootstrap.
pub const RESAMPLES: usize = 10_000;
/// Beyond this a modified z-score marks an outlier (Iglewicz and Hoaglin 1993).
const OUTLIER: f64 = 3.5;

/// Several values of one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The values, in the order in which they were measured.
    pub values: Vec<f64>,
    /// In the middle.
    pub median: f64,
    /// On average.
    pub mean: f64,
    /// Standard deviation of the sample (n - 1); 0 of a single value.
    pub sd: f64,
    /// Where the median lies, with 95 % confidence.
    pub ci: [f64; 2],
    /// Which of the values are outliers. They are marked and stay in.
    pub outliers: Vec<bool>,
}

impl Summary {
    /// Of values, of which there is at least one. `None` if there is none.
    pub fn of(values: Vec<f64>) -> Option<Summary> {
        if values.is_empty() {
            return None;
        }
        let ci = interval(&values, median);
        let mut outliers = outliers(&values);
        outliers.truncate(values.len());
        let (median, mean, sd) = (median(&values), mean(&values), sd(&values));
        Some(Summary { median, mean, sd, ci, outliers, values })
    }

    /// Smallest value.
    pub fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Largest value.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// The share `p` of values is below it, interpolated between neighbours (type 7 of Hyndman and Fan
/// 1996). Not a number for no values.
pub fn quantile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, p)
}

fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    sorted[low] + part * (sorted[(low + 1).min(last)] - sorted[low])
}

/// The value in the middle.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The average.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation of a sample (n - 1); 0 of a single value.
pub fn sd(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Which values are far from the others: |0.6745 (x - median) / MAD| > 3.5 (Iglewicz and Hoaglin 1993).
pub fn outliers(values: &[f64]) -> Vec<bool> {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let mad = median(&distances);
    // Values that are all but equal have no outliers: a clock's last digit is none.
    let least = 1e-9 * middle.abs();
    distances.iter().map(|distance| 0.6745 * distance > OUTLIER * mad.max(least)).collect()
}

/// Where `statistic` lies, with 95 % confidence: a percentile bootstrap whose percentiles are moved
/// outwards, since that of few values is too narrow (Hesterberg 2015, "expanded percentile").
pub fn interval(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> [f64; 2] {
    let n = values.len();
    if n < 2 {
        let only = values.first().copied().unwrap_or(f64::NAN);
        return [only, only];
    }
    let mut rng = Rng::of(n as u64, "bootstrap");
    let mut sample = vec![0.0; n];
    let mut found: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.fill_with(|| values[rng.below(n)]);
            statistic(&sample)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let tail = tail(n);
    [quantile_of_sorted(&found, tail), quantile_of_sorted(&found, 1.0 - tail)]
}

/// The share of resamples that lies outside on each side, for `n` values.
fn tail(n: usize) -> f64 {
    let df = (n - 1) as f64;
    let t = T_975.get(n - 2).copied().unwrap_or(1.96 + 2.4 / df);
    let z = t * (n as f64 / df).sqrt();
    1.0 - normal_cdf(z)
}

/// 97.5 % of Student's distribution are below it, for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The share of the standard normal distribution below `z`, which is not negative (Abramowitz and Stegun
/// 26.2.17; off by less than 1e-7).
fn normal_cdf(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    1.0 - sum * (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_textbooks_say() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!((median(&values), mean(&values)), (4.5, 5.0));
        assert!((sd(&values) - 2.138_089_935).abs() < 1e-8);
        // numpy.quantile([1, 2, 3, 4], [0.1, 0.95])
        assert!((quantile(&[4.0, 1.0, 3.0, 2.0], 0.1) - 1.3).abs() < 1e-12);
        assert!((quantile(&[4.0, 1.0, 3.0, 2.0], 0.95) - 3.85).abs() < 1e-12);
        // scipy.stats.norm.cdf
        for (z, p) in
            [(0.0, 0.5), (1.0, 0.841_344_746), (1.96, 0.975_002_105), (3.1, 0.999_032_397)]
        {
            assert!((normal_cdf(z) - p).abs() < 1e-7, "{z}");
        }
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn outliers_are_marked_and_stay() {
        let summary = Summary::of(vec![10.0, 10.1, 9.9, 10.05, 14.0]).unwrap();
        assert_eq!(summary.outliers, [false, false, false, false, true]);
        assert_eq!(summary.max(), 14.0);
        assert_eq!(outliers(&[5.0, 5.0, 5.0]), [false; 3]);
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn intervals_hold_what_they_promise() {
        // Of 300 samples of 8 normal values with mean 0, about 95 % of the intervals contain it.
        let mut rng = Rng::new(3);
        let hits = (0..300)
            .filter(|_| {
                let values: Vec<f64> = (0..8).map(|_| rng.normal()).collect();
                let [low, high] = interval(&values, mean);
                low <= 0.0 && 0.0 <= high
            })
            .count();
        assert!((276..=297).contains(&hits), "{hits}");
        assert_eq!(interval(&[3.0], mean), [3.0, 3.0]);
    }
}
