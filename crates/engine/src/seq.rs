//! One request on its way through the engine.
//!
//! Not its cache: the book keeps that, under a key.

use std::collections::VecDeque;
use std::time::Duration;

use backend::TokenId;

use crate::cache::Piece;
use crate::line::Place;
use crate::sampler::{Draw, SampleError, Sampler};
use crate::{Event, Miss, Request, StopReason, TokenLogprob, Usage};

/// A request, and how far its answer has come. Survives being parked whole.
pub(crate) struct Seq {
    pub place: Place,
    /// The prompt in here is what [`Seq::tokens`] started with.
    pub request: Request,
    /// Prompt, then everything generated.
    pub tokens: Vec<TokenId>,
    pub n_prompt: usize,
    pub cached_tokens: usize,
    /// Tokens that were brought back from disk before it started.
    pub disk_tokens: usize,
    /// What is still to be brought back, before it gets any rows.
    pub on_disk: VecDeque<Piece>,
    /// What of a recurrent state has been brought back.
    pub restored: Vec<u8>,
    /// Tokens that were known when it came in, be it without a state to go on from.
    pub known: usize,
    pub miss: Option<Miss>,
    /// Tokens of the prompt that the receiver knows to be computed.
    told: usize,
    /// Up to here it computed its tokens itself, or had them when it came in. What comes after and
    /// is there all the same, others computed meanwhile.
    pub own: usize,
    pub times: Times,
}

/// When things happened to a request, by the engine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub submitted: Duration,
    /// Its first rows were planned.
    pub started: Option<Duration>,
    /// Its prompt was computed and its first token chosen.
    pub answering: Option<Duration>,
}

impl Seq {
    pub(crate) fn new(mut request: Request, arrival: u64, submitted: Duration) -> Seq {
        let tokens = std::mem::take(&mut request.prompt);
        Seq {
            place: Place::new(request.priority, arrival),
            request,
            n_prompt: tokens.len(),
            tokens,
            cached_tokens: 0,
            disk_tokens: 0,
            on_disk: VecDeque::new(),
            restored: Vec::new(),
            known: 0,
            miss: None,
            told: 0,
            own: 0,
            times: Times { submitted, ..Times::default() },
        }
    }

    /// Its time is over.
    pub(crate) fn is_late(&self, now: Duration) -> bool {
        let left = |timeout| now.saturating_sub(self.times.submitted) < timeout;
        !self.request.timeout.is_none_or(left)
    }

    pub(crate) fn send(&mut self, event: Event) {
        self.request.sink.send(event);
    }

    /// Tokens of the answer so far.
    pub(crate) fn n_generated(&self) -> usize {
        self.tokens.len() - self.n_prompt
    }

    /// Tells how far the prompt is. A parked request does not tell again what it told before.
    pub(crate) fn progress(&mut self, done: usize) {
        if self.n_generated() == 0 && done > self.told {
            self.told = done;
            self.send(Event::Progress { done, total: self.n_prompt });
        }
    }

    /// Chooses the next token, and those that can only follow it, appends and sends them, unless one
    /// ends the answer by itself. Says whether, and why, the answer is complete.
    pub(crate) fn advance(
        &mut self,
        logits: &[f32],
        longest: usize,
        sampler: &mut Sampler,
    ) -> Result<Option<StopReason>, SampleError> {
        let draw = Draw {
            sampling: &self.request.sampling,
            history: &self.tokens,
            n_prompt: self.n_prompt,
            constraint: self.request.constraint.as_deref_mut(),
            logprobs: self.request.logprobs,
        };
        let (mut id, mut logprob) = sampler.pick(draw, logits)?;
        loop {
            if let Some(reason) = self.take(id, logprob, longest) {
                return Ok(Some(reason));
            }
            // What the model thinks of a token that nothing can replace is of interest only to who
            // asked for it. The rows of those that are skipped so come with the next pass.
            let forced =
                self.request.constraint.as_mut().filter(|_| self.request.logprobs.is_none());
            let suppressed = &self.request.sampling.suppressed;
            match forced.and_then(|constraint| constraint.forced()) {
                Some(next) if !suppressed.forbids(&self.tokens, self.n_prompt, next) => {
                    (id, logprob) = (next, None);
                }
                // What is forced and suppressed leaves nothing, and the next draw says so.
                Some(_) | None => return Ok(None),
            }
        }
    }

    /// Appends a token and sends it, unless it ends the answer by itself.
    fn take(
        &mut self,
        id: TokenId,
        logprob: Option<TokenLogprob>,
        longest: usize,
    ) -> Option<StopReason> {
        self.tokens.push(id);
        if self.request.stop_tokens.contains(&id) {
            return Some(StopReason::StopToken(id));
        }
        if let Some(constraint) = &mut self.request.constraint {
            constraint.push(id);
        }
        self.send(Event::Token { id, logprob });
        self.limit(longest)
    }

    /// The limit this sequence has reached.
    pub(crate) fn limit(&self, longest: usize) -> Option<StopReason> {
        if self.n_generated() >= self.request.max_tokens {
            Some(StopReason::Length)
        } else if self.tokens.len() >= longest {
            Some(StopReason::Context)
        } else {
            None
        }
    }

    pub(crate) fn usage(&self, now: Duration) -> Usage {
        let ms = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
        let started = self.times.started.unwrap_or(now);
        let answering = self.times.answering.unwrap_or(now);
        Usage {
            prompt_tokens: self.n_prompt,
            cached_tokens: self.cached_tokens,
            disk_tokens: self.disk_tokens,
            miss: self.miss,
            completion_tokens: self.n_generated(),
            queue_ms: ms(self.times.submitted, started),
            prefill_ms: ms(started, answering),
            decode_ms: ms(answering, now),
        }
    }
}
