//! What an answer is made of, in no dialect's words: the neutral side of every writer.

use crate::error::ApiError;

/// One thing that happened to an answer. Choices are numbered from 0 over all prompts of a
/// request; events of several choices come interleaved.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The engine began with a choice.
    Started {
        /// Which choice.
        choice: usize,
        /// Prompt tokens whose work was already done.
        cached_tokens: usize,
    },
    /// The prompt of a choice is being computed.
    Progress {
        /// Which choice.
        choice: usize,
        /// Prompt tokens done, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// More of a choice's text: whole characters, free of stop strings.
    Text {
        /// Which choice.
        choice: usize,
        /// The new text. Empty only where tokens without text of their own must be reported.
        text: String,
        /// The tokens that end in this text, if the request asked for them.
        logprobs: Vec<Scored>,
    },
    /// More of what the model thinks before it answers. Stop strings have no effect on it.
    Reasoning {
        /// Which choice.
        choice: usize,
        /// The new text, never empty.
        text: String,
    },
    /// More of a call that the model makes.
    Call {
        /// Which choice.
        choice: usize,
        /// Which of its calls, from 0. A call has ended before the next one begins.
        call: usize,
        /// What is new about it.
        part: CallPart,
    },
    /// A choice is complete.
    Done {
        /// Which choice.
        choice: usize,
        /// Why it ended.
        reason: FinishReason,
    },
    /// All choices are complete. The last event of a good answer.
    Finished(Usage),
    /// The answer broke. The last event of a bad one.
    Failed(ApiError),
}

/// A call of a tool as it grows. A call that is cut off by the length has no [`CallPart::Ended`].
#[derive(Clone, Debug, PartialEq)]
pub enum CallPart {
    /// It is certain to be a call.
    Begun {
        /// What its result will refer to.
        id: String,
        /// Which tool is called.
        name: String,
    },
    /// More JSON text. All of a call's together are one JSON object.
    Arguments(String),
    /// It is complete.
    Ended,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model said it is done.
    Stop,
    /// The request's stop string of this number came.
    StopString(usize),
    /// `max_tokens` or the context is used up.
    Length,
    /// The model said it is done, and has called tools.
    ToolCalls,
}

impl FinishReason {
    /// One word for it, the same in logs and in OpenAI's dialect.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop | FinishReason::StopString(_) => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
        }
    }
}

/// One sampled token and how likely the model held it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token that was taken.
    pub token: Piece,
    /// The most likely ones at its place, best first.
    pub top: Vec<Piece>,
    /// Where the token begins in the choice's text, in characters.
    pub offset: usize,
}

/// A token as bytes, which need not be whole characters.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// What it adds to the text.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability under the model, before any sampling setting.
    pub logprob: f32,
}

/// What an answer cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of all prompts; a prompt with several choices counts once.
    pub prompt_tokens: usize,
    /// Those of them that were reused. Of a prompt with several choices, the first one's.
    pub cached_tokens: usize,
    /// Those of the reused ones that were brought back from disk.
    pub disk_tokens: usize,
    /// Why no more of the first prompt was, if more could have been.
    pub miss: Option<engine::Miss>,
    /// Tokens generated over all choices, end-of-text included.
    pub completion_tokens: usize,
    /// Those of them that the model thought with.
    pub reasoning_tokens: usize,
    /// Where the time went.
    pub timings: Timings,
}

/// Where the time of an answer went, in milliseconds. Of several choices, the longest of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// From arrival until the engine began.
    pub queue_ms: f64,
    /// From there until the first token.
    pub prompt_ms: f64,
    /// From the first token until the last.
    pub predicted_ms: f64,
    /// Prompt tokens computed, that is without cached ones, over `prompt_ms`.
    pub prompt_per_second: f64,
    /// Tokens after the first ones over `predicted_ms`; 0 where there are none.
    pub predicted_per_second: f64,
}
