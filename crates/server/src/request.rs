//! What a client wants generated, in no dialect's words. Every field has been checked for type and
//! range; what depends on the model (context, vocabulary) is checked by the service.

use std::time::Duration;

use engine::TokenId;
use serde_json::{Map, Value};
use text::Message;
pub use text::grammar::{Format, Strictness};

use crate::pool::Stay;

/// One request: a conversation, or plain prompts to go on from.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// Id or alias of a model; `default` is always one.
    pub model: String,
    /// What to answer.
    pub input: Input,
    /// Answers to each prompt; number `i` is sampled with `seed + i`.
    pub n: usize,
    /// Most tokens of each answer; `None` goes on to the end of the context.
    pub max_tokens: Option<usize>,
    /// Settings that replace the model's own.
    pub sampling: Overrides,
    /// `None` draws one, which the answer reports.
    pub seed: Option<u64>,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// What the model's end-of-text tokens do.
    pub end: EndOfText,
    /// Lower is served earlier; 0 is what most requests have.
    pub priority: i32,
    /// How long it may take from its arrival on; `None` is as long as it likes.
    pub timeout: Option<Duration>,
    /// How long its model is to stay in memory afterwards.
    pub stay: Stay,
    /// `Some(k)` asks for the log probability of each token and of the `k` likeliest.
    pub logprobs: Option<usize>,
    /// What the answer must look like. Enforced token by token, or the request is refused.
    pub format: Format,
    /// The field that says so, for errors in it.
    pub format_path: &'static str,
}

/// Whether the model calls a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It does not, and sees none.
    Never,
    /// It calls one or more.
    Required,
    /// It calls the tool of this name.
    Named(String),
}

/// How many calls one answer may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Any number.
    #[default]
    Several,
    /// One.
    AtMostOne,
}

/// What there is to answer.
#[derive(Clone, Debug)]
pub enum Input {
    /// Messages, which the model's template turns into a prompt.
    Chat(Conversation),
    /// Prompts as they are.
    Plain {
        /// At least one.
        prompts: Vec<Prompt>,
        /// Whether the answer repeats its prompt.
        echo: Echo,
    },
}

/// Messages and what else the template sees.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// In order, as the client sent them.
    pub messages: Vec<Message>,
    /// Tool definitions as the client wrote them. Those that the model may not call are left out.
    pub tools: Vec<Value>,
    /// Whether it must call one of them.
    pub tool_choice: ToolChoice,
    /// How many calls an answer may hold.
    pub calls: Calls,
    /// Tokens that the model may think with; `None` leaves it to the model.
    pub thinking_budget: Option<usize>,
    /// How the answer begins, if the client has begun it; what is answered goes on from there.
    pub begun: Option<String>,
    /// Further template variables, such as `enable_thinking`.
    pub kwargs: Map<String, Value>,
}

/// A prompt that no template touches.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// To be tokenised.
    Text(String),
    /// Tokenised by the client.
    Tokens(Vec<TokenId>),
}

/// Whether an answer begins with its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// Only what is new.
    Nothing,
    /// The prompt, then what is new.
    Prompt,
}

/// What the model's end-of-text tokens do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfText {
    /// They end the answer.
    Stops,
    /// They are tokens like others, for measurements that need a fixed length.
    Ignored,
}

/// Sampling settings of a request. `None` leaves the model's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// 0 takes the likeliest token.
    pub temperature: Option<f32>,
    /// Share of probability kept.
    pub top_p: Option<f32>,
    /// Tokens kept; 0 keeps all.
    pub top_k: Option<usize>,
    /// Tokens less likely than this share of the best are dropped.
    pub min_p: Option<f32>,
    /// Chance that XTC acts on a token.
    pub xtc_probability: Option<f32>,
    /// Tokens above this probability, but the last of them, are what XTC removes.
    pub xtc_threshold: Option<f32>,
    /// Divides the logits of tokens seen before; 1 is off.
    pub repetition_penalty: Option<f32>,
    /// Subtracted once from tokens generated before.
    pub presence_penalty: Option<f32>,
    /// Subtracted per time a token was generated before.
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
}
