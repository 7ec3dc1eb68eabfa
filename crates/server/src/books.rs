//! What a choice cost, and what an answer of several cost together. Times are the engine's stamps,
//! so that a slow reader does not make the model look slow.

use std::time::Instant;

use engine::Miss;

use crate::event::{Timings, Usage};

/// What one choice cost so far.
pub(crate) struct Books {
    prompt_tokens: usize,
    cached_tokens: usize,
    disk_tokens: usize,
    miss: Option<Miss>,
    completion_tokens: usize,
    reasoning_tokens: usize,
    arrived: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last: Option<Instant>,
}

impl Books {
    pub(crate) fn new(prompt_tokens: usize, arrived: Instant) -> Books {
        Books {
            prompt_tokens,
            cached_tokens: 0,
            disk_tokens: 0,
            miss: None,
            completion_tokens: 0,
            reasoning_tokens: 0,
            arrived,
            started: None,
            first_token: None,
            last: None,
        }
    }

    pub(crate) fn start(
        &mut self,
        at: Instant,
        cached_tokens: usize,
        disk_tokens: usize,
        miss: Option<Miss>,
    ) {
        self.started = Some(at);
        self.cached_tokens = cached_tokens;
        self.disk_tokens = disk_tokens;
        self.miss = miss;
    }

    pub(crate) fn token(&mut self, at: Instant) {
        self.close(at, self.completion_tokens + 1);
    }

    /// The latest token was part of a thought.
    pub(crate) fn thought(&mut self) {
        self.reasoning_tokens += 1;
    }

    /// The last word on how many tokens there were: a stop token is one, but was never sent.
    pub(crate) fn close(&mut self, at: Instant, completion_tokens: usize) {
        self.completion_tokens = completion_tokens;
        self.first_token.get_or_insert(at);
        self.last = Some(at);
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    pub(crate) fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Tokens generated so far.
    pub(crate) fn completion_tokens(&self) -> usize {
        self.completion_tokens
    }

    /// When the latest token came.
    pub(crate) fn last_token(&self) -> Option<Instant> {
        self.last
    }

    pub(crate) fn queue_ms(&self) -> f64 {
        between(Some(self.arrived), self.started)
    }

    pub(crate) fn prompt_ms(&self) -> f64 {
        between(self.started, self.first_token)
    }

    pub(crate) fn predicted_ms(&self) -> f64 {
        between(self.first_token, self.last)
    }
}

/// The cost of an answer with `n` choices of each prompt.
pub(crate) fn usage(choices: &[&Books], n: usize) -> Usage {
    let sum = |count: fn(&Books) -> usize| choices.iter().map(|books| count(books)).sum();
    let of_prompts = || choices.iter().step_by(n.max(1));
    let longest = |ms: fn(&Books) -> f64| choices.iter().map(|books| ms(books)).fold(0.0, f64::max);
    let computed = sum(|books| books.prompt_tokens.saturating_sub(books.cached_tokens));
    let after_first = sum(|books| books.completion_tokens.saturating_sub(1));
    let (prompt_ms, predicted_ms) = (longest(Books::prompt_ms), longest(Books::predicted_ms));
    Usage {
        prompt_tokens: of_prompts().map(|books| books.prompt_tokens).sum(),
        cached_tokens: of_prompts().map(|books| books.cached_tokens).sum(),
        disk_tokens: of_prompts().map(|books| books.disk_tokens).sum(),
        miss: choices.first().and_then(|books| books.miss),
        completion_tokens: sum(|books| books.completion_tokens),
        reasoning_tokens: sum(|books| books.reasoning_tokens),
        timings: Timings {
            queue_ms: longest(Books::queue_ms),
            prompt_ms,
            predicted_ms,
            prompt_per_second: rate(computed, prompt_ms),
            predicted_per_second: rate(after_first, predicted_ms),
        },
    }
}

fn between(from: Option<Instant>, to: Option<Instant>) -> f64 {
    match (from, to) {
        (Some(from), Some(to)) => to.saturating_duration_since(from).as_secs_f64() * 1000.0,
        _ => 0.0,
    }
}

fn rate(n: usize, ms: f64) -> f64 {
    if ms > 0.0 { n as f64 * 1000.0 / ms } else { 0.0 }
}
