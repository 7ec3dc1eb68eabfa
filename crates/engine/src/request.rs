//! What goes into the engine and what comes out of it: requests, events, refusals.
//!
//! Tokens only. Text, stop strings and message formats are not the engine's business.

use backend::TokenId;

use crate::Sampling;

/// Numbers the accepted requests of one engine, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One answer to be made.
pub struct Request {
    /// What the model reads first. Not empty.
    pub prompt: Vec<TokenId>,
    /// Tokens to generate at most, a stop token included. Zero only reads the prompt.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Tokens that end the answer. The one that did is counted, but not sent as a token.
    pub stop_tokens: Vec<TokenId>,
    /// `Some(k)`: every token comes with its log probability and those of the `k` likeliest
    /// tokens, at most [`MAX_ALTERNATIVES`].
    pub logprobs: Option<usize>,
    /// What may come next, for instance a grammar. `None` allows everything.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Where the events go.
    pub sink: Box<dyn Sink>,
}

/// The most alternatives [`Request::logprobs`] may ask for.
pub const MAX_ALTERNATIVES: usize = 20;

/// The receiving end of an answer, as the engine sees it.
pub trait Sink: Send {
    /// Takes an event. Must not block: it runs on the engine's thread.
    fn send(&mut self, event: Event);
    /// Nobody listens any more, so the request is cancelled at the next step.
    fn is_closed(&self) -> bool;
}

/// What may come next. Advances token by token.
pub trait Constraint: Send {
    /// Sets the logit of every token that may not come next to minus infinity.
    fn mask(&mut self, logits: &mut [f32]);
    /// The token that was chosen.
    fn push(&mut self, token: TokenId);
}

/// One thing that happened to a request. After [`Event::Done`] or [`Event::Failed`] nothing follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request left the queue and its first rows are planned.
    Started {
        /// Prompt tokens that were found in the prefix cache.
        cached_tokens: usize,
    },
    /// A part of the prompt has been computed.
    Progress {
        /// Prompt tokens whose state is known by now, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// A token of the answer. Stop tokens are not sent.
    Token {
        /// The token.
        id: TokenId,
        /// Its log probability, if the request asked for it.
        logprob: Option<TokenLogprob>,
    },
    /// The answer is complete.
    Done {
        /// Why it ended.
        reason: StopReason,
        /// What it took.
        usage: Usage,
    },
    /// The answer could not be completed. The text says why.
    Failed(String),
}

/// How likely a token was, by the model's own logits before any filter.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the probability of the chosen token.
    pub logprob: f32,
    /// The likeliest tokens with theirs, likeliest first, lower ids first among equals.
    pub top: Vec<(TokenId, f32)>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model chose one of the request's stop tokens, this one.
    StopToken(TokenId),
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    Context,
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them came from the prefix cache.
    pub cached_tokens: usize,
    /// Tokens generated, the stop token included.
    pub completion_tokens: usize,
    /// Milliseconds from submission until the first rows were planned.
    pub queue_ms: f64,
    /// Milliseconds from there until the whole prompt was computed and the first token chosen.
    pub prefill_ms: f64,
    /// Milliseconds from there until the last token.
    pub decode_ms: f64,
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Too many requests are waiting.
    #[error("{limit} requests are waiting already; try again later or raise the queue limit")]
    QueueFull {
        /// Requests that may wait.
        limit: usize,
    },
    /// The prompt leaves no room for an answer.
    #[error("the prompt has {prompt} tokens, but prompt and answer must fit in {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of prompt and answer together, at most.
        context: usize,
    },
    /// The cache could not hold the prompt even if nobody else used it.
    #[error(
        "the prompt needs {needs_blocks} cache blocks, but there are {blocks}; give the cache more memory"
    )]
    TooLarge {
        /// Blocks for the prompt and one token.
        needs_blocks: usize,
        /// Blocks that exist.
        blocks: usize,
    },
    /// The prompt has no token.
    #[error("the prompt is empty")]
    Empty,
    /// A token id, in the prompt or in the logit bias, that the model does not have.
    #[error("token {id} does not exist; the vocabulary has {vocab} tokens")]
    BadToken {
        /// The id.
        id: TokenId,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A field that is out of its range.
    #[error("{field} must be {range}")]
    OutOfRange {
        /// Name of the field.
        field: &'static str,
        /// Values it may have, in words.
        range: &'static str,
    },
    /// The engine finishes what it has and takes nothing new.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The engine's thread is gone, which is a bug of ours.
    #[error("the engine has stopped after an internal error; restart the server")]
    Dead,
}

/// What every request must fit into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// Cache blocks that exist.
    pub blocks: usize,
}

impl Bounds {
    /// Whether `request` can be answered at all, however long it waits.
    pub fn check(&self, request: &Request) -> Result<(), Refused> {
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(Refused::Empty);
        }
        if prompt >= self.context {
            return Err(Refused::TooLong { prompt, context: self.context });
        }
        // The last token of an answer is never fed back, so one more than the prompt needs no row.
        let needs_blocks = prompt.div_ceil(backend::BLOCK);
        if needs_blocks > self.blocks {
            return Err(Refused::TooLarge { needs_blocks, blocks: self.blocks });
        }
        if request.logprobs.is_some_and(|k| k > MAX_ALTERNATIVES) {
            return Err(Refused::OutOfRange { field: "logprobs", range: "at most 20" });
        }
        request.sampling.check()?;
        let biased = request.sampling.logit_bias.iter().map(|(id, _)| id);
        let mut ids = request.prompt.iter().chain(biased);
        match ids.find(|id| **id as usize >= self.vocab) {
            Some(&id) => Err(Refused::BadToken { id, vocab: self.vocab }),
            None => Ok(()),
        }
    }

    /// Tokens of prompt and answer that one sequence can reach here: the context, or all blocks
    /// and the one token that is chosen but never run.
    pub(crate) fn longest(&self) -> usize {
        self.context.min(self.blocks * backend::BLOCK + 1)
    }
}
