//! The questions of a verification, their answers, and what it means that two answers are the same.

use anyhow::{Context, Result, bail};
use engine::{BLOCK, Event, Handle, Request, Sampling, TokenId, TokenLogprob};
use serde::Serialize;
use text::Tokenizer;

/// What the prompts are cut from. Plain text, so that every tokenizer and every model takes it.
const TEXT: &str = "The lighthouse stood on a narrow tongue of rock, and every evening, a little \
before sunset, the keeper climbed its two hundred and eleven steps. First he trimmed the wick, then \
he wound the clockwork that turned the lens, and then he wrote the weather into a ledger: wind from \
the south-west, sea moderate, glass falling. fn main() { let keepers = vec![\"Anna\", \"Piet\"]; \
for (i, name) in keepers.iter().enumerate() { println!(\"{i}: {name}\"); } } In the year 1847 the \
old lamp was replaced by one that burned colza oil; it could be seen from nineteen miles away, and \
ships that had feared the reef for three centuries passed it by night. Q: What is 17 * 23? A: 391. \
Q: Name three rivers of Europe. A: Danube, Rhine, Loire. {\"station\": 4, \"pressure_hpa\": 1003.2, \
\"visibility_km\": [12, 9, 7.5]} When the storm came, nobody was surprised but the gulls.";

/// Prompts of different lengths: shorter than a cache block, a few blocks, and not a multiple.
const LENGTHS: [usize; 8] = [5, 23, 41, 64, 77, 97, 110, 131];

/// Tokens that admission does not count on, see `engine/src/cache/charge.rs`: two requests that are
/// let in together run out of blocks when their answers are longer than that.
const UNEXPECTED: usize = 256;
/// Tokens of a prompt whose expected answer ends with a block.
const TIGHT_PROMPT: usize = BLOCK + 1;

/// One request.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) prompt: Vec<TokenId>,
    pub(super) sampling: Sampling,
    pub(super) max_tokens: usize,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// Tokens with how likely they were, and the two likeliest.
    pub(super) tokens: Vec<(TokenId, TokenLogprob)>,
    /// Prompt tokens that came from the prefix cache.
    pub(super) cached: usize,
}

/// Where an answer first departs from what it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// The seed of the request; `None` for greedy ones.
    pub(super) seed: Option<u64>,
    /// Which token of the answer, counted from 0.
    pub(super) position: usize,
    /// The token alone on a fresh engine; `None` where that answer had ended.
    pub(super) expected: Option<TokenId>,
    /// The token now. The same where only its probability differs.
    pub(super) found: Option<TokenId>,
    /// How far the two likeliest tokens were apart there, in logits.
    pub(super) margin: Option<f32>,
}

/// What a device promises of the same request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Promise {
    /// The same bits.
    Bits,
    /// The same probabilities, their logarithms at most so far apart; another token only where that makes
    /// another one the best.
    Within(f32),
}

/// How an answer compares with another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Comparison {
    Same,
    /// As far as promised, which is not bit for bit: logarithms of probabilities are so far apart.
    Near(f32),
    Different(Difference),
}

/// Every prompt twice: greedily, and with a seed.
pub(super) fn questions(
    tokenizer: &Tokenizer,
    longest: usize,
    max_tokens: usize,
) -> Result<Vec<Question>> {
    let tokens = tokenizer.encode_raw(TEXT)?;
    if longest < 2 || tokens.len() < 2 {
        bail!("the context is too short for {max_tokens} tokens of answer: lower --tokens");
    }
    let prompts = LENGTHS.iter().enumerate().map(|(i, &length)| {
        // From different places, so that no prompt begins like another.
        let rotated = tokens.iter().cycle().skip(i * 17 % tokens.len());
        rotated.take(length.min(longest)).copied().collect::<Vec<_>>()
    });
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    let questions = prompts.enumerate().flat_map(|(i, prompt)| {
        let seeded = Sampling {
            temperature: 0.8,
            top_p: 0.95,
            seed: 1000 + i as u64,
            ..Sampling::default()
        };
        [greedy.clone(), seeded].map(|sampling| Question {
            prompt: prompt.clone(),
            sampling,
            max_tokens,
        })
    });
    Ok(questions.collect())
}

/// Two questions whose answers outgrow what was expected, and the cache blocks in which only one of
/// them finds room to the end.
pub(super) fn greedy_pair(questions: &[Question]) -> ([Question; 2], usize) {
    let few = [questions.len().saturating_sub(2), questions.len().saturating_sub(1)];
    let pair = few.map(|at| {
        let Question { prompt, sampling, .. } = &questions[at];
        // One of them a token off, so that they do not share their blocks.
        let from = prompt.iter().cycle().skip(at);
        Question {
            prompt: from.take(TIGHT_PROMPT).copied().collect(),
            sampling: sampling.clone(),
            max_tokens: UNEXPECTED + 6,
        }
    });
    (pair, 2 * (TIGHT_PROMPT + UNEXPECTED - 1).div_ceil(BLOCK))
}

/// An answer on its way.
pub(super) struct Pending(engine::Answer);

impl Question {
    /// Hands it to an engine.
    pub(super) fn submit(&self, engine: &Handle) -> Result<Pending> {
        let (sink, answer) = engine::answer();
        engine.submit(Request {
            prompt: self.prompt.clone(),
            max_tokens: self.max_tokens,
            sampling: self.sampling.clone(),
            stop_tokens: Vec::new(),
            logprobs: Some(2),
            constraint: None,
            priority: 0,
            timeout: None,
            pin: 0,
            marks: Vec::new(),
            sink: Box::new(sink),
        })?;
        Ok(Pending(answer))
    }

    /// Hands it to an engine and waits.
    pub(super) fn ask(&self, engine: &Handle) -> Result<Answer> {
        self.submit(engine)?.wait()
    }
}

impl Pending {
    /// The whole answer.
    pub(super) fn wait(self) -> Result<Answer> {
        let mut tokens = Vec::new();
        for event in self.0 {
            match event {
                Event::Token { id, logprob } => {
                    let logprob = logprob.context("a token came without its probability")?;
                    tokens.push((id, logprob));
                }
                Event::Done { usage, .. } => {
                    return Ok(Answer { tokens, cached: usage.cached_tokens });
                }
                Event::Failed(failure) => bail!(failure),
                Event::Started { .. } | Event::Progress { .. } => {}
            }
        }
        bail!("the engine stopped")
    }
}

impl Answer {
    /// Whether this is what was promised, if that is `expected`.
    pub(super) fn compare(
        &self,
        expected: &Answer,
        question: &Question,
        promise: Promise,
    ) -> Comparison {
        let longest = self.tokens.len().max(expected.tokens.len());
        let mut worst = 0.0f32;
        for at in 0..longest {
            let (is, was) = (self.tokens.get(at), expected.tokens.get(at));
            if is.map(bits) == was.map(bits) {
                continue;
            }
            let broken = || Comparison::Different(self.difference(expected, question, at));
            let (Promise::Within(most), Some(is), Some(was)) = (promise, is, was) else {
                return broken();
            };
            worst = worst.max(apart(is, was));
            if worst > most {
                return broken();
            }
            if is.0 != was.0 {
                // Greedily, another token has to be one of the likeliest there.
                let was_likely = was.1.top.iter().any(|(id, _)| *id == is.0);
                if question.sampling.temperature <= 0.0 && !was_likely {
                    return broken();
                }
                // From here on the two answer something else.
                break;
            }
        }
        if worst > 0.0 { Comparison::Near(worst) } else { Comparison::Same }
    }

    /// What there is to say of where this departs from `expected`.
    fn difference(&self, expected: &Answer, question: &Question, position: usize) -> Difference {
        let (was, is) = (expected.tokens.get(position), self.tokens.get(position));
        let margin = was.or(is).and_then(|(_, logprob)| match &logprob.top[..] {
            [(_, first), (_, second), ..] => Some(first - second),
            _ => None,
        });
        let id = |token: Option<&(TokenId, TokenLogprob)>| token.map(|(id, _)| *id);
        let Sampling { temperature, seed, .. } = question.sampling;
        Difference {
            prompt: question.prompt.len(),
            seed: (temperature > 0.0).then_some(seed),
            position,
            expected: id(was),
            found: id(is),
            margin,
        }
    }
}

/// How far apart the probabilities are that two answers have at the same place, of the tokens that both
/// name. Where they name none alike, they have nothing in common.
fn apart(a: &(TokenId, TokenLogprob), b: &(TokenId, TokenLogprob)) -> f32 {
    let named = |(id, logprob): &(TokenId, TokenLogprob)| {
        let mut named = logprob.top.clone();
        named.push((*id, logprob.logprob));
        named
    };
    let (a, b) = (named(a), named(b));
    let offs = a.iter().filter_map(|(id, logprob)| {
        let (_, other) = b.iter().find(|(other, _)| other == id)?;
        Some((logprob - other).abs())
    });
    // Not a number is as far as can be.
    let far = |off: f32| if off.is_nan() { f32::INFINITY } else { off };
    offs.map(far).reduce(f32::max).unwrap_or(f32::INFINITY)
}

/// A token and its probabilities as bits: what is compared.
fn bits((id, logprob): &(TokenId, TokenLogprob)) -> (TokenId, u32, Vec<(TokenId, u32)>) {
    let top = logprob.top.iter().map(|(id, value)| (*id, value.to_bits())).collect();
    (*id, logprob.logprob.to_bits(), top)
}

impl Difference {
    /// In words.
    pub(super) fn told(&self, tokenizer: &Tokenizer) -> String {
        let Difference { prompt, seed, position, expected, found, margin } = self;
        let how = seed.map_or_else(|| "greedy".to_owned(), |seed| format!("seed {seed}"));
        let named = |id: &Option<TokenId>| match id {
            Some(id) => format!("{id} {:?}", tokenizer.token(*id).unwrap_or_default()),
            None => "the end".to_owned(),
        };
        let margin = margin.map_or_else(String::new, |margin| {
            format!("; the two likeliest tokens there are {margin:.4} apart")
        });
        let what = if expected == found {
            format!("the same token, {}, with another probability", named(found))
        } else {
            format!("{} instead of {}", named(found), named(expected))
        };
        format!("prompt of {prompt} tokens ({how}), token {position} of the answer: {what}{margin}")
    }
}
