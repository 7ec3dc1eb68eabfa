//! Picks a token.
//!
//! The choice is a pure function of the logits, the tokens so far, the request's settings and its
//! seed. It does not depend on other requests, on earlier calls, or on the platform's mathematics
//! library. So the same seed gives the same text however the work was scheduled.

mod filters;
mod logprobs;
mod noise;
mod suppressed;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use backend::TokenId;

use crate::{Constraint, Refused, TokenLogprob};
use filters::Candidate;
use noise::Noise;
pub use suppressed::Suppressed;

/// How the tokens of an answer are chosen. The default always takes the likeliest.
///
/// Applied in this order: [`Constraint`], logit bias, repetition penalty, presence and frequency
/// penalty, [`Suppressed`], temperature, top-k, top-p, min-p, XTC. What is left is sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this. Zero takes the likeliest token, the lowest id among equals.
    pub temperature: f32,
    /// Only the so many likeliest tokens stay. Zero is off.
    pub top_k: usize,
    /// Only the fewest likeliest tokens stay whose probabilities add up to this. One is off.
    pub top_p: f32,
    /// Only tokens stay that have at least this times the probability of the likeliest. Zero is off.
    pub min_p: f32,
    /// Exclude top choices.
    pub xtc: Option<Xtc>,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or answer. One is
    /// off.
    pub repetition_penalty: f32,
    /// How many of the last tokens the repetition penalty looks at. `None`: all.
    pub repetition_window: Option<usize>,
    /// Taken off the logit of every token that the answer has.
    pub presence_penalty: f32,
    /// Taken off the logit of a token once for every time the answer has it.
    pub frequency_penalty: f32,
    /// Added to logits.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// What the makers of the model want never to be chosen.
    pub suppressed: Arc<Suppressed>,
    /// Two requests that are equal in everything give the same answer.
    pub seed: u64,
}

/// Excludes top choices: sometimes, of all tokens that are likely enough, only the least likely is
/// left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// How often, `0..=1`.
    pub probability: f32,
    /// What likely enough is, `0..=1`. Above a half there is never more than one such token, so
    /// nothing happens.
    pub threshold: f32,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            xtc: None,
            repetition_penalty: 1.0,
            repetition_window: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            suppressed: Arc::default(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether every number is in its range. What a dialect allows may be less.
    pub fn check(&self) -> Result<(), Refused> {
        let unit = |x: f32| (0.0..=1.0).contains(&x);
        let xtc = self.xtc.unwrap_or(Xtc { probability: 0.0, threshold: 0.0 });
        let checks = [
            (self.temperature.is_finite() && self.temperature >= 0.0, "temperature", "at least 0"),
            (unit(self.top_p) && self.top_p > 0.0, "top_p", "above 0 and at most 1"),
            (unit(self.min_p), "min_p", "from 0 to 1"),
            (unit(xtc.probability), "xtc_probability", "from 0 to 1"),
            (unit(xtc.threshold), "xtc_threshold", "from 0 to 1"),
            (
                self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0,
                "repetition_penalty",
                "above 0",
            ),
            (self.presence_penalty.is_finite(), "presence_penalty", "a finite number"),
            (self.frequency_penalty.is_finite(), "frequency_penalty", "a finite number"),
            (
                self.logit_bias.iter().all(|(_, bias)| !bias.is_nan() && *bias < f32::INFINITY),
                "logit_bias",
                "numbers, none of them plus infinity",
            ),
        ];
        match checks.into_iter().find(|(ok, ..)| !ok) {
            Some((_, field, range)) => Err(Refused::OutOfRange { field, range }),
            None => Ok(()),
        }
    }

    fn adjusts(&self) -> bool {
        !self.logit_bias.is_empty()
            || !self.suppressed.is_empty()
            || self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }
}

/// One choice to be made.
pub(crate) struct Draw<'a> {
    pub sampling: &'a Sampling,
    /// Prompt and answer so far. Its length is the position of the token to choose.
    pub history: &'a [TokenId],
    /// How many of them are the prompt.
    pub n_prompt: usize,
    pub constraint: Option<&'a mut (dyn Constraint + 'static)>,
    /// `Some(k)`: with log probabilities of the choice and `k` alternatives.
    pub logprobs: Option<usize>,
}

/// Why no token could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SampleError {
    #[error("the model's output is not a number; its weights may be damaged")]
    NotANumber,
    #[error("no token is allowed to come next")]
    NothingAllowed,
}

/// Room to work in. Nothing of it survives a call.
#[derive(Default)]
pub(crate) struct Sampler {
    adjusted: Vec<f32>,
    /// All zero between calls.
    counts: Vec<u32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// Chooses the next token from `logits`, one per token of the vocabulary.
    pub(crate) fn pick(
        &mut self,
        draw: Draw<'_>,
        logits: &[f32],
    ) -> Result<(TokenId, Option<TokenLogprob>), SampleError> {
        let Draw { sampling, history, n_prompt, constraint, logprobs } = draw;
        let best = argmax(logits)?;
        let token = if constraint.is_none() && !sampling.adjusts() {
            self.draw(sampling, history.len(), logits, best)
        } else {
            let mut adjusted = std::mem::take(&mut self.adjusted);
            adjusted.clear();
            adjusted.extend_from_slice(logits);
            if let Some(constraint) = constraint {
                constraint.mask(&mut adjusted);
            }
            filters::adjust(sampling, history, n_prompt, &mut adjusted, &mut self.counts);
            let best = argmax(&adjusted)?;
            let token = self.draw(sampling, history.len(), &adjusted, best);
            self.adjusted = adjusted;
            token
        };
        let best = logits[best as usize];
        Ok((token, logprobs.map(|k| logprobs::logprobs(logits, best, token, k))))
    }

    /// Filters, then takes the best of the noisy logits: with Gumbel noise, that is a sample from
    /// their softmax.
    fn draw(
        &mut self,
        sampling: &Sampling,
        position: usize,
        logits: &[f32],
        best: TokenId,
    ) -> TokenId {
        if sampling.temperature == 0.0 {
            return best;
        }
        let noise = Noise::new(sampling.seed, position);
        let best_logit = logits[best as usize];
        filters::filter(sampling, logits, best_logit, noise.xtc(), &mut self.candidates);
        let mut winner = (f64::NEG_INFINITY, best);
        for &Candidate { id, logit } in &self.candidates {
            let logit = f64::from(logit);
            let Some(noise) = noise.gumbel(id, winner.0 - logit) else { continue };
            let score = logit + noise;
            if score > winner.0 || (score == winner.0 && id < winner.1) {
                winner = (score, id);
            }
        }
        winner.1
    }
}

/// Logits whose greatest is looked for together.
const BLOCK: usize = 1024;

/// The lowest id of the largest logit.
///
/// By blocks, whose maximum the compiler finds with vectors: a vocabulary is long, and this runs
/// between two passes, when nothing else does.
fn argmax(logits: &[f32]) -> Result<TokenId, SampleError> {
    let mut best = f32::NEG_INFINITY;
    let mut block_of_best = None;
    for (i, block) in logits.chunks(BLOCK).enumerate() {
        let (max, finite) = maximum(block);
        if !finite {
            return Err(SampleError::NotANumber);
        }
        if max > best {
            (best, block_of_best) = (max, Some(i * BLOCK));
        }
    }
    let first = block_of_best.ok_or(SampleError::NothingAllowed)?;
    let offset = logits[first..].iter().position(|logit| *logit == best);
    Ok((first + offset.unwrap_or(0)) as TokenId)
}

/// The greatest number, and whether there is neither a NaN nor plus infinity.
fn maximum(x: &[f32]) -> (f32, bool) {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut bad = [false; 16];
    let mut look = |x: &[f32]| {
        for ((lane, bad), x) in lanes.iter_mut().zip(&mut bad).zip(x) {
            *lane = if *x > *lane { *x } else { *lane };
            *bad |= x.is_nan() | (*x == f32::INFINITY);
        }
    };
    let (chunks, rest) = x.as_chunks::<16>();
    chunks.iter().for_each(|chunk| look(chunk));
    look(rest);
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, |max, x| if x > max { x } else { max });
    (max, !bad.contains(&true))
}
