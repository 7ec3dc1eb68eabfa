//! What is measured on the answers of one model, whether it is loaded at the moment or not.
//!
//! Not the engine's own counters: those are read from its [`engine::Stats`] when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::histogram::Histogram;
use super::recent::Recent;
use crate::books::Books;
use crate::event::FinishReason;

/// Bounds in seconds, as vLLM has them, so that its dashboards show what they expect.
const FIRST_TOKEN: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const PHASE: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// Largest bound for counts of tokens; vLLM goes up to the context, which is not known before a
/// model is loaded.
const MOST_TOKENS: u64 = 1_000_000;

/// Measurements of one model's answers. A choice counts as an answer.
pub(crate) struct Meters {
    pub(crate) first_token: Histogram,
    /// Between two tokens of an answer.
    pub(crate) between_tokens: Histogram,
    /// An answer's mean of the same.
    pub(crate) per_token: Histogram,
    pub(crate) whole: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) prefill: Histogram,
    pub(crate) decode: Histogram,
    /// Prefill and decode together.
    pub(crate) inference: Histogram,
    pub(crate) prompt: Histogram,
    pub(crate) generation: Histogram,
    /// Tokens of the prompts that were started, and how many of them were cached.
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) cached_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) endings: Endings,
    pub(crate) recent: Recent,
}

/// How answers ended.
#[derive(Default)]
pub(crate) struct Endings {
    pub(crate) stop: AtomicU64,
    pub(crate) length: AtomicU64,
    /// The reader left.
    pub(crate) left: AtomicU64,
    /// Somebody cancelled it by name.
    pub(crate) cancelled: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Meters {
    pub(crate) fn new() -> Meters {
        let tokens = || Histogram::new(one_two_five(MOST_TOKENS));
        Meters {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(PER_TOKEN),
            per_token: Histogram::new(PER_TOKEN),
            whole: Histogram::new(PHASE),
            queue: Histogram::new(PHASE),
            prefill: Histogram::new(PHASE),
            decode: Histogram::new(PHASE),
            inference: Histogram::new(PHASE),
            prompt: tokens(),
            generation: tokens(),
            prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            endings: Endings::default(),
            recent: Recent::default(),
        }
    }

    /// The engine began with an answer.
    pub(crate) fn started(&self, prompt: usize, cached: usize) {
        self.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
        self.cached_tokens.fetch_add(cached as u64, Ordering::Relaxed);
    }

    /// A token came, so long after the one before it, or after the request for the first one.
    pub(crate) fn token(&self, gap: Gap) {
        self.generated_tokens.fetch_add(1, Ordering::Relaxed);
        self.recent.generated(1);
        match gap {
            Gap::First(wait) => self.first_token.observe(wait.as_secs_f64()),
            Gap::Next(wait) => self.between_tokens.observe(wait.as_secs_f64()),
        }
    }

    /// An answer is complete.
    pub(crate) fn done(&self, reason: FinishReason, books: &Books) {
        let ending = match reason {
            FinishReason::Length => &self.endings.length,
            // As in vLLM, whose engine does not look into the text either.
            FinishReason::Stop | FinishReason::StopString(_) | FinishReason::ToolCalls => {
                &self.endings.stop
            }
        };
        ending.fetch_add(1, Ordering::Relaxed);
        let [queue, prefill, decode] =
            [books.queue_ms(), books.prompt_ms(), books.predicted_ms()].map(|ms| ms / 1000.0);
        self.queue.observe(queue);
        self.prefill.observe(prefill);
        self.decode.observe(decode);
        self.inference.observe(prefill + decode);
        self.whole.observe(queue + prefill + decode);
        self.prompt.observe(books.prompt_tokens() as f64);
        self.generation.observe(books.completion_tokens() as f64);
        if books.completion_tokens() > 1 {
            self.per_token.observe(decode / (books.completion_tokens() - 1) as f64);
        }
    }
}

/// How long a token took.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gap {
    First(Duration),
    Next(Duration),
}

/// 1, 2, 5, 10, 20, 50 and so on.
fn one_two_five(most: u64) -> Vec<f64> {
    let tens = std::iter::successors(Some(1), |ten: &u64| ten.checked_mul(10));
    let all = tens.flat_map(|ten| [1, 2, 5].map(|n| ten.saturating_mul(n)));
    all.take_while(|&bound| bound <= most).map(|bound| bound as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the documentation of vLLM's function of this name.
    #[test]
    fn bounds_of_token_counts() {
        assert_eq!(one_two_five(100), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }
}
