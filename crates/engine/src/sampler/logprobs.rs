//! Log probabilities by the model's own logits.
//!
//! Not what sampling goes by: no filter, no penalty, no temperature.

use backend::TokenId;

use super::filters::{Candidate, top_k};
use crate::TokenLogprob;

/// Log-softmax of `logits` at `chosen`, and at the `k` likeliest tokens.
pub(super) fn logprobs(logits: &[f32], best: f32, chosen: TokenId, k: usize) -> TokenLogprob {
    let best = f64::from(best);
    let sum: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit) - best)).sum();
    let log_sum = best + libm::log(sum);
    let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
    let mut top = Vec::new();
    if k > 0 {
        let all = logits.iter().zip(0..).map(|(logit, id)| Candidate { id, logit: *logit });
        top_k(all, k, &mut top);
    }
    TokenLogprob {
        logprob: logprob(logits[chosen as usize]),
        top: top.into_iter().map(|c| (c.id, logprob(c.logit))).collect(),
    }
}
