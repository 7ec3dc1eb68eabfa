//! The filters: from logits to the tokens that may still win, in a fixed order.
//!
//! No randomness but the one number XTC is given, and no choice: that is the sampler's.

use std::cmp::Ordering;

use backend::TokenId;

use super::{Sampling, Xtc};

/// A token that may still win.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub id: TokenId,
    /// Logit over temperature, the best being zero.
    pub logit: f32,
}

/// The better first; lower ids first among equals.
pub(super) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Changes the logits of tokens that were seen before, that the request favours, or that the model's
/// makers suppress.
///
/// The repetition penalty looks at prompt and answer, or at the last so many tokens of both;
/// presence and frequency look at the answer alone.
pub(super) fn adjust(
    sampling: &Sampling,
    history: &[TokenId],
    n_prompt: usize,
    logits: &mut [f32],
    counts: &mut Vec<u32>,
) {
    for &(id, bias) in &sampling.logit_bias {
        logits[id as usize] += bias;
    }
    counts.resize(logits.len(), 0);
    if sampling.repetition_penalty != 1.0 {
        let n = sampling.repetition_window.unwrap_or(history.len());
        let window = &history[history.len().saturating_sub(n)..];
        for_each_distinct(window, counts, |id, _| {
            let logit = &mut logits[id];
            let factor = sampling.repetition_penalty;
            *logit = if *logit < 0.0 { *logit * factor } else { *logit / factor };
        });
    }
    if sampling.presence_penalty != 0.0 || sampling.frequency_penalty != 0.0 {
        for_each_distinct(&history[n_prompt..], counts, |id, n| {
            logits[id] -= sampling.presence_penalty + sampling.frequency_penalty * n as f32;
        });
    }
    sampling.suppressed.mask(history, n_prompt, logits);
}

/// Visits every distinct token with how often it occurs. `counts` is all zero before and after.
fn for_each_distinct(tokens: &[TokenId], counts: &mut [u32], mut visit: impl FnMut(usize, u32)) {
    for &token in tokens {
        counts[token as usize] += 1;
    }
    for &token in tokens {
        match std::mem::take(&mut counts[token as usize]) {
            0 => {}
            n => visit(token as usize, n),
        }
    }
}

/// Leaves in `out` the tokens that pass temperature, top-k, top-p, min-p and XTC. `xtc_draw` is a
/// number in `0..1`. The logits hold no NaN, and `best` is the largest, a finite one.
pub(super) fn filter(
    sampling: &Sampling,
    logits: &[f32],
    best: f32,
    xtc_draw: f64,
    out: &mut Vec<Candidate>,
) {
    // Taking the best off first keeps a small temperature from overflowing.
    let tempered = logits
        .iter()
        .zip(0..)
        .filter(|(logit, _)| **logit > f32::NEG_INFINITY)
        .map(|(logit, id)| Candidate { id, logit: (logit - best) / sampling.temperature });
    if sampling.top_k > 0 {
        top_k(tempered, sampling.top_k, out);
    } else {
        out.clear();
        out.extend(tempered);
    }
    if sampling.top_p < 1.0 {
        top_p(out, f64::from(sampling.top_p));
    }
    if sampling.min_p > 0.0 {
        let least = libm::log(f64::from(sampling.min_p));
        out.retain(|candidate| f64::from(candidate.logit) >= least);
    }
    if let Some(cut) = &sampling.xtc
        && xtc_draw < f64::from(cut.probability)
    {
        xtc(out, cut);
    }
}

/// The `k` best, best first. Looks at each token once and sorts few: it keeps a buffer of the
/// best so far and throws half of it away when it is full.
pub(super) fn top_k(
    candidates: impl Iterator<Item = Candidate>,
    k: usize,
    out: &mut Vec<Candidate>,
) {
    out.clear();
    let room = k.saturating_mul(2).max(64);
    let mut worst: Option<Candidate> = None;
    for candidate in candidates {
        if worst.is_some_and(|worst| by_rank(&candidate, &worst).is_gt()) {
            continue;
        }
        out.push(candidate);
        if out.len() >= room {
            out.select_nth_unstable_by(k - 1, by_rank);
            out.truncate(k);
            worst = out.last().copied();
        }
    }
    out.sort_unstable_by(by_rank);
    out.truncate(k);
}

/// Keeps the fewest best tokens whose probabilities add up to `p`, at least one. In other words, a
/// token stays if those better than it have less than `p` together.
fn top_p(candidates: &mut Vec<Candidate>, p: f64) {
    let all: f64 = candidates.iter().map(weight).sum();
    let mut n = 64;
    let mut head = Vec::new();
    loop {
        // Mostly a few tokens are enough. If not, take more; to start over costs little beside it.
        top_k(candidates.iter().copied(), n, &mut head);
        let mut before = 0.0;
        let stays = head.iter().take_while(|candidate| {
            let stays = before < p * all;
            before += weight(candidate);
            stays
        });
        let n_stay = stays.count().max(1);
        if n_stay < head.len() || head.len() == candidates.len() {
            head.truncate(n_stay);
            *candidates = head;
            return;
        }
        n *= 16;
    }
}

/// Excludes the top choices: of the tokens at or above the threshold, only the least likely stays.
/// The others stay as they are.
fn xtc(candidates: &mut Vec<Candidate>, cut: &Xtc) {
    let all: f64 = candidates.iter().map(weight).sum();
    let least = f64::from(cut.threshold) * all;
    let above = candidates.iter().filter(|candidate| weight(candidate) >= least);
    let Some(last) = above.max_by(|a, b| by_rank(a, b)).copied() else { return };
    candidates.retain(|candidate| by_rank(candidate, &last).is_ge());
}

/// Probability up to a common factor.
fn weight(candidate: &Candidate) -> f64 {
    libm::exp(f64::from(candidate.logit))
}
