//! What goes into the engine: requests, and the two ends they bring along.
//!
//! Tokens only. Text, stop strings and message formats are not the engine's business.

use std::time::Duration;

use backend::TokenId;

use crate::{Event, Sampling};

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
    /// Lower is served earlier, as in vLLM; equals in order of arrival.
    pub priority: i32,
    /// How long the request may take, waiting and running together. After that it ends with
    /// [`crate::Failure::TimedOut`]. `None`: as long as it likes.
    pub timeout: Option<Duration>,
    /// Tokens at the start of the prompt, a system prompt say, that others will start with too:
    /// once computed they stay cached longer than the rest. Zero pins nothing.
    pub pin: usize,
    /// Places in the prompt, as tokens before them, where others are likely to go on differently: the
    /// end of the last message say, if the next turn repeats what stands before it. A model with
    /// recurrent states keeps one there, since it can go on from nowhere else.
    pub marks: Vec<usize>,
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

/// What may come next. Advances token by token, and is a function of the tokens pushed and of nothing
/// else.
pub trait Constraint: Send {
    /// Sets the logit of every token that may not come next to minus infinity.
    fn mask(&mut self, logits: &mut [f32]);
    /// The token that was chosen.
    fn push(&mut self, token: TokenId);
    /// The only token that may come next, where that is known: one for which [`Constraint::mask`]
    /// would leave nothing else. It is taken without a pass of the model.
    fn forced(&mut self) -> Option<TokenId> {
        None
    }
}
