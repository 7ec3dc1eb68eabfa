//! Sums over positions: perplexity, and the distance between two distributions. In f64.

use std::fmt;
use std::slice::ChunksExact;

use backend::TokenId;

/// How well a text was predicted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    n: usize,
    /// Sum of negative log probabilities, in nats.
    nats: f64,
}

/// How far distributions are from those they should be.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// KL divergence at every position, in nats.
    kl: Vec<f64>,
    same_top: usize,
}

impl Score {
    /// Positions in a row: the logits of each, and the tokens that really followed. After the last
    /// position none may be known.
    pub(super) fn add_rows(&mut self, logits: ChunksExact<'_, f32>, next: &[TokenId]) {
        for (row, &next) in logits.zip(next) {
            self.add(row, next);
        }
    }

    /// One position: its logits, and the token that really followed.
    fn add(&mut self, logits: &[f32], next: TokenId) {
        self.n += 1;
        self.nats += log_sum_exp(logits) - f64::from(logits[next as usize]);
    }
}

impl Comparison {
    /// One position: the logits that are right, and those that are judged. Adds KL(right || judged).
    pub(super) fn add(&mut self, right: &[f32], judged: &[f32]) {
        let (norm_right, norm_judged) = (log_sum_exp(right), log_sum_exp(judged));
        let mut kl = 0.0;
        for (&p, &q) in right.iter().zip(judged) {
            let (p, q) = (f64::from(p) - norm_right, f64::from(q) - norm_judged);
            kl += p.exp() * (p - q);
        }
        self.kl.push(kl);
        self.same_top += usize::from(top(right) == top(judged));
    }
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    max + sum.ln()
}

fn top(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)))
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = self.nats / self.n as f64;
        write!(f, "perplexity {:.4} ({mean:.5} nats per token, {} tokens)", mean.exp(), self.n)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.kl.len();
        let mean = self.kl.iter().sum::<f64>() / n as f64;
        let [p99, worst] = [0.99, 1.0].map(|share| quantile(&self.kl, share));
        let agree = 100.0 * self.same_top as f64 / n as f64;
        write!(
            f,
            "mean KL {mean:.3e} nats (99 % of positions at most {p99:.3e}, worst {worst:.3e})"
        )?;
        write!(f, ", top-1 agreement {agree:.2} %, {n} positions")
    }
}

/// The smallest of `values` that at least `share` of them do not exceed; 0 if there are none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sure_guess_among_four_equals_costs_ln_4() {
        let mut score = Score::default();
        score.add(&[1.0; 4], 2);
        assert!((score.nats - 4f64.ln()).abs() < 1e-12);
        score.add(&[0.0, 1000.0, 0.0, 0.0], 1);
        assert!((score.nats - 4f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn divergence_of_known_distributions() {
        let mut comparison = Comparison::default();
        comparison.add(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!(comparison.kl[0].abs() < 1e-12, "a constant changes nothing");
        // p = (3/4, 1/4), q = (1/4, 3/4): KL = 1/2 ln 3.
        comparison.add(&[3f32.ln(), 0.0], &[0.0, 3f32.ln()]);
        assert!((comparison.kl[1] - 0.5 * 3f64.ln()).abs() < 1e-6);
        assert_eq!((comparison.kl.len(), comparison.same_top), (2, 1));
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), 198.0);
        assert_eq!(quantile(&values, 1.0), 200.0);
        assert_eq!(quantile(&[3.0], 0.99), 3.0);
    }
}
