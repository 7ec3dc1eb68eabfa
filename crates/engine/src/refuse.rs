//! What the engine refuses before it accepts anything: what cannot fit, and what comes at a bad time.
//!
//! Not failures: those happen to answers that were accepted.

use std::time::Duration;

use backend::TokenId;

use crate::{MAX_ALTERNATIVES, Request};

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Too many requests are waiting.
    #[error(
        "{running} requests run and {waiting} wait, and {limit} may wait; try again in {} s or raise \
         the queue limit", retry_after.as_secs_f64().ceil()
    )]
    QueueFull {
        /// Requests that run.
        running: usize,
        /// Requests that wait.
        waiting: usize,
        /// Requests that may wait.
        limit: usize,
        /// When a place should become free, going by the answers so far.
        retry_after: Duration,
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
    /// A token id, in the prompt, in the logit bias or among the suppressed, that the model does not have.
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
        let biased = request.sampling.logit_bias.iter().map(|(id, _)| *id);
        let suppressed = request.sampling.suppressed.tokens();
        let mut ids = request.prompt.iter().copied().chain(biased).chain(suppressed);
        match ids.find(|id| *id as usize >= self.vocab) {
            Some(id) => Err(Refused::BadToken { id, vocab: self.vocab }),
            None => Ok(()),
        }
    }

    /// Tokens of prompt and answer that one sequence can reach here: the context, or all blocks
    /// and the one token that is chosen but never run.
    pub(crate) fn longest(&self) -> usize {
        self.context.min(self.blocks * backend::BLOCK + 1)
    }
}
