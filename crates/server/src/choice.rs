//! One choice as it grows: bytes to characters, characters to thoughts, calls and text, stop strings,
//! and which tokens' log probabilities belong to which piece of text. Knows nothing of the engine's
//! timing or of JSON.

use std::collections::VecDeque;

use engine::{TokenId, TokenLogprob};
use text::{Detokenizer, End, Part, Specials, Splitter, Start, StopMatcher, Tokenizer};

use crate::event::{CallPart, FinishReason, Piece, Scored};
use crate::request::Calls;

/// Reading state of one choice.
pub(crate) struct Choice<'a> {
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer<'a>,
    /// Plain completions have none: all is text.
    splitter: Option<Splitter>,
    stops: StopMatcher,
    calls: CallCount,
    /// Bytes decoded.
    decoded: usize,
    /// Where the latest text ended, in bytes decoded.
    text_end: usize,
    /// Tokens that may still turn out to be text, with the bytes decoded before and after them.
    unread: VecDeque<(usize, usize, Scored)>,
    /// Characters of text, and of those the ones that left through the stop matcher.
    said: usize,
    sent: usize,
    /// Tokens of text that has not left yet, with the count of characters of text after them.
    waiting: VecDeque<(usize, Scored)>,
}

/// The calls of a choice.
struct CallCount {
    limit: Calls,
    begun: usize,
    ended: usize,
    /// The latest thing that was said is a complete call.
    is_last: bool,
}

/// Something that became certain.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// Text that may be shown, and the tokens that end in the text shown so far and were not
    /// reported before.
    Text(String, Vec<Scored>),
    Reasoning(String),
    Call(usize, CallPart),
}

/// What one more token brought.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) said: Vec<Said>,
    /// The token is part of a thought.
    pub(crate) thought: bool,
    /// Nothing more comes, for this reason.
    pub(crate) ended: Option<FinishReason>,
}

impl<'a> Choice<'a> {
    /// A splitter comes with the control tokens that it must see, and how many calls are wanted.
    pub(crate) fn new(
        tokenizer: &'a Tokenizer,
        start: Start,
        stop: &[String],
        splitter: Option<(Splitter, Vec<TokenId>, Calls)>,
    ) -> Choice<'a> {
        let (splitter, markers, limit) = match splitter {
            Some((splitter, markers, limit)) => (Some(splitter), markers, limit),
            None => (None, Vec::new(), Calls::Several),
        };
        Choice {
            tokenizer,
            detokenizer: Detokenizer::new(tokenizer, Specials::Skip, start).showing(markers),
            splitter,
            stops: StopMatcher::new(stop.to_vec()),
            calls: CallCount { limit, begun: 0, ended: 0, is_last: false },
            decoded: 0,
            text_end: 0,
            unread: VecDeque::new(),
            said: 0,
            sent: 0,
            waiting: VecDeque::new(),
        }
    }

    /// One more token.
    pub(crate) fn push(&mut self, id: TokenId, logprob: Option<TokenLogprob>) -> Pushed {
        let start = self.decoded;
        let text = self.detokenizer.push(id);
        self.decoded += text.len();
        if let Some(scores) = logprob {
            let top = scores.top.iter().map(|&(id, logprob)| self.piece(id, logprob)).collect();
            let token = self.piece(id, scores.logprob);
            self.unread.push_back((start, self.decoded, Scored { token, top, offset: 0 }));
        }
        let before = self.is_thinking();
        let parts = self.split(text, start);
        let (said, ended) = self.say(parts);
        Pushed { said, thought: before || self.is_thinking(), ended }
    }

    /// No more tokens: what was held back comes out.
    pub(crate) fn finish(&mut self, end: End) -> Pushed {
        let rest = self.detokenizer.finish();
        let at = self.decoded;
        self.decoded += rest.len();
        let mut parts = self.split(rest, at);
        parts.extend(
            self.splitter.as_mut().map(|splitter| splitter.finish(end)).unwrap_or_default(),
        );
        let (mut said, ended) = self.say(parts);
        let ended = ended.unwrap_or_else(|| {
            let text = self.stops.finish();
            let mut last = self.release(text, false);
            self.read_until(usize::MAX);
            last.1.extend(self.waiting.drain(..).map(|(_, scored)| scored));
            add_text(&mut said, last);
            self.reason(end)
        });
        Pushed { said, thought: false, ended: Some(ended) }
    }

    fn reason(&self, end: End) -> FinishReason {
        match end {
            End::Model if self.calls.begun > 0 => FinishReason::ToolCalls,
            End::Model => FinishReason::Stop,
            // Only its end-of-text is missing.
            End::Cut if self.calls.is_last => FinishReason::ToolCalls,
            End::Cut => FinishReason::Length,
        }
    }

    fn is_thinking(&self) -> bool {
        self.splitter.as_ref().is_some_and(Splitter::is_thinking)
    }

    fn split(&mut self, text: String, at: usize) -> Vec<Part> {
        match &mut self.splitter {
            Some(splitter) => splitter.push(&text),
            None if text.is_empty() => Vec::new(),
            None => vec![Part::Text { at, text }],
        }
    }

    fn say(&mut self, parts: Vec<Part>) -> (Vec<Said>, Option<FinishReason>) {
        let mut said = Vec::new();
        for part in parts {
            self.calls.is_last = part == Part::Ended;
            match part {
                Part::Text { at, text } => {
                    self.read(at, &text);
                    let pushed = self.stops.push(&text);
                    let released = self.release(pushed.text, pushed.stopped);
                    add_text(&mut said, released);
                    if pushed.stopped {
                        let reason = self.stops.found().map(FinishReason::StopString);
                        return (said, reason.or(Some(FinishReason::Stop)));
                    }
                }
                Part::Reasoning(text) => said.push(Said::Reasoning(text)),
                Part::Begun { id, name } => {
                    // What a stop string might have begun with has not gone on.
                    let text = self.stops.finish();
                    let released = self.release(text, false);
                    add_text(&mut said, released);
                    said.push(Said::Call(self.calls.begun, CallPart::Begun { id, name }));
                    self.calls.begun += 1;
                }
                Part::Arguments(text) => {
                    said.push(Said::Call(self.calls.begun - 1, CallPart::Arguments(text)));
                }
                Part::Ended => {
                    said.push(Said::Call(self.calls.begun - 1, CallPart::Ended));
                    self.calls.ended += 1;
                    if self.calls.limit == Calls::AtMostOne {
                        return (said, Some(FinishReason::ToolCalls));
                    }
                }
            }
        }
        (said, None)
    }

    /// The bytes decoded from `at` on turn out to be this text.
    fn read(&mut self, at: usize, text: &str) {
        self.read_until(at);
        let end = at + text.len();
        while let Some((start, stop, mut scored)) =
            self.unread.pop_front_if(|(_, stop, _)| *stop <= end)
        {
            let chars = |place: usize| text[..place.saturating_sub(at)].chars().count();
            scored.offset = self.said + chars(start);
            self.waiting.push_back((self.said + chars(stop), scored));
        }
        self.said += text.chars().count();
        self.text_end = end;
    }

    /// What was decoded before `at`, and not read so far, is no text. Tokens of it are, if they began
    /// in text.
    fn read_until(&mut self, at: usize) {
        let is_before = |&mut (start, stop, _): &mut (usize, usize, Scored)| {
            stop < at || (stop == at && start < stop)
        };
        while let Some((start, stop, mut scored)) = self.unread.pop_front_if(is_before) {
            if start < self.text_end || (start == stop && start == self.text_end) {
                scored.offset = self.said;
                self.waiting.push_back((self.said, scored));
            }
        }
    }

    fn release(&mut self, text: String, stopped: bool) -> (String, Vec<Scored>) {
        self.sent += text.chars().count();
        let sent = self.sent;
        let mut logprobs = Vec::new();
        while let Some((_, scored)) = self.waiting.pop_front_if(|(end, scored)| {
            // Of a stop string's first token some characters may be shown; then it is reported.
            if stopped { scored.offset < sent } else { *end <= sent && !text.is_empty() }
        }) {
            logprobs.push(scored);
        }
        (text, logprobs)
    }

    fn piece(&self, id: TokenId, logprob: f32) -> Piece {
        Piece { bytes: self.tokenizer.token_bytes(id).unwrap_or_default(), logprob }
    }
}

fn add_text(said: &mut Vec<Said>, (text, logprobs): (String, Vec<Scored>)) {
    if !text.is_empty() || !logprobs.is_empty() {
        said.push(Said::Text(text, logprobs));
    }
}
