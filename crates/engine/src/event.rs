//! What comes out of the engine: the events of an answer.
//!
//! Not refusals: those come before there is an answer.

use std::time::Duration;

use backend::TokenId;

/// One thing that happened to a request. After [`Event::Done`] or [`Event::Failed`] nothing follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request left the queue and its first rows are planned.
    Started {
        /// Prompt tokens that were found in the prefix cache.
        cached_tokens: usize,
        /// How many of these were brought back from disk.
        disk_tokens: usize,
        /// Why no more were. `None`: everything that could be known was.
        miss: Option<Miss>,
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
    /// The answer could not be completed.
    Failed(Failure),
}

/// Why an answer could not be completed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// [`crate::Request::timeout`] has passed.
    #[error("it took longer than the {} ms it was given", limit.as_millis())]
    TimedOut {
        /// The time it was given.
        limit: Duration,
    },
    /// The engine was told to stop without finishing what it had accepted.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The device failed, and with it everything that ran.
    #[error("{0}")]
    Device(String),
    /// The model's output gave no token: it is not a number, or nothing of it is allowed.
    #[error("{0}")]
    Output(String),
    /// A bug of ours.
    #[error("internal error: {0}")]
    Internal(String),
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
    /// How many of these were brought back from disk.
    pub disk_tokens: usize,
    /// Why no more of them did. `None`: everything that could be known of it was.
    pub miss: Option<Miss>,
    /// Tokens generated, the stop token included.
    pub completion_tokens: usize,
    /// Milliseconds from submission until the first rows were planned.
    pub queue_ms: f64,
    /// Milliseconds from there until the whole prompt was computed and the first token chosen.
    pub prefill_ms: f64,
    /// Milliseconds from there until the last token.
    pub decode_ms: f64,
}

/// Why a prompt, or the rest of it, was not in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It is shorter than anything that is cached.
    TooShort,
    /// Nothing starts like it.
    Cold,
    /// Others start like it, and go on differently.
    Diverged {
        /// The first block that is different, counted from 0.
        block: usize,
    },
    /// It was known, and dropped to make room.
    Evicted {
        /// The first block that is missing, counted from 0.
        block: usize,
    },
    /// It is there, but no recurrent state to go on from.
    NoState {
        /// The first block that has to be computed again, counted from 0.
        block: usize,
    },
    /// It is there, but not what layers that see only a window need to go on.
    NoWindow {
        /// The first block that has to be computed again, counted from 0.
        block: usize,
    },
    /// Another request is computing it at this moment.
    InProgress {
        /// The first block that is not there yet, counted from 0.
        block: usize,
    },
}

impl Miss {
    /// One word, for labels.
    pub fn name(self) -> &'static str {
        match self {
            Miss::TooShort => "too_short",
            Miss::Cold => "cold",
            Miss::Diverged { .. } => "diverged",
            Miss::Evicted { .. } => "evicted",
            Miss::NoState { .. } => "no_state",
            Miss::NoWindow { .. } => "no_window",
            Miss::InProgress { .. } => "in_progress",
        }
    }
}
