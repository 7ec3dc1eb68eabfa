//! The text of one choice as it grows: bytes to characters, stop strings, and which tokens' log
//! probabilities belong to which piece of text. Knows nothing of the engine's timing or of JSON.

use std::collections::VecDeque;

use engine::{TokenId, TokenLogprob};
use text::{Detokenizer, Specials, Start, StopMatcher, Tokenizer};

use crate::event::{Piece, Scored};

/// Text state of one choice.
pub(crate) struct Choice<'a> {
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer<'a>,
    stops: StopMatcher,
    /// Characters decoded, and of those the ones that left through the stop matcher.
    decoded: usize,
    sent: usize,
    /// Tokens whose text has not left yet, with the count of characters decoded after them.
    waiting: VecDeque<(usize, Scored)>,
}

/// What one more token brought.
pub(crate) struct Pushed {
    /// Text that may be shown.
    pub(crate) text: String,
    /// Tokens that end in the text shown so far and were not reported before.
    pub(crate) logprobs: Vec<Scored>,
    /// A stop string is complete; nothing more comes.
    pub(crate) stopped: bool,
}

impl Pushed {
    /// Text that no token stands for.
    pub(crate) fn plain(text: String) -> Pushed {
        Pushed { text, logprobs: Vec::new(), stopped: false }
    }
}

impl<'a> Choice<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer, start: Start, stop: &[String]) -> Choice<'a> {
        let detokenizer = Detokenizer::new(tokenizer, Specials::Skip, start);
        let stops = StopMatcher::new(stop.to_vec());
        Choice { tokenizer, detokenizer, stops, decoded: 0, sent: 0, waiting: VecDeque::new() }
    }

    /// One more token.
    pub(crate) fn push(&mut self, id: TokenId, logprob: Option<TokenLogprob>) -> Pushed {
        let offset = self.decoded;
        let text = self.detokenizer.push(id);
        self.decoded += text.chars().count();
        if let Some(scores) = logprob {
            let top = scores.top.iter().map(|&(id, logprob)| self.piece(id, logprob)).collect();
            let token = self.piece(id, scores.logprob);
            self.waiting.push_back((self.decoded, Scored { token, top, offset }));
        }
        let pushed = self.stops.push(&text);
        self.release(pushed.text, pushed.stopped)
    }

    /// No more tokens: what was held back comes out.
    pub(crate) fn finish(&mut self) -> Pushed {
        let rest = self.detokenizer.finish();
        self.decoded += rest.chars().count();
        let pushed = self.stops.push(&rest);
        if pushed.stopped {
            return self.release(pushed.text, true);
        }
        let text = pushed.text + &self.stops.finish();
        let mut last = self.release(text, false);
        last.logprobs.extend(self.waiting.drain(..).map(|(_, scored)| scored));
        last
    }

    fn release(&mut self, text: String, stopped: bool) -> Pushed {
        self.sent += text.chars().count();
        let sent = self.sent;
        let mut logprobs = Vec::new();
        while let Some((_, scored)) = self.waiting.pop_front_if(|(end, scored)| {
            // Of a stop string's first token some characters may be shown; then it is reported.
            if stopped { scored.offset < sent } else { *end <= sent && !text.is_empty() }
        }) {
            logprobs.push(scored);
        }
        Pushed { text, logprobs, stopped }
    }

    fn piece(&self, id: TokenId, logprob: f32) -> Piece {
        Piece { bytes: self.tokenizer.token_bytes(id).unwrap_or_default(), logprob }
    }
}
