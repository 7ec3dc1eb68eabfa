//! JSON that chat and completions have in common: the envelope around choices, usage, finish words.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::error::error_body;
use super::fields::StreamUsage;
use crate::answer::Head;
use crate::endpoint::rounded;
use crate::error::ApiError;
use crate::event::{CallPart, Event, FinishReason, Scored, Usage};
use crate::frames::Frames;

/// What names the build that answered.
const FINGERPRINT: &str = concat!("hearth-", env!("CARGO_PKG_VERSION"));

/// The two names under which an endpoint sends.
#[derive(Clone, Copy)]
pub(super) struct Envelope {
    /// Start of the answer's id.
    pub(super) prefix: &'static str,
    /// `object` of what is sent.
    pub(super) object: &'static str,
}

/// An answer, or a chunk of one. There is a chunk for nearly every token, so it goes into the stream as it is,
/// without a tree of values first.
#[derive(Serialize)]
struct Wrapped<'a, C, U> {
    id: Id<'a>,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: C,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<U>,
}

/// The answer's name behind an endpoint's prefix.
struct Id<'a>(&'static str, &'a str);

impl Serialize for Id<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", self.0, self.1))
    }
}

impl Envelope {
    fn wrap<C, U>(self, head: &Head, choices: C, usage: Option<U>) -> Wrapped<'_, C, U> {
        Wrapped {
            id: Id(self.prefix, &head.id),
            object: self.object,
            created: head.created,
            model: &head.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage,
        }
    }

    /// A chunk that holds this of one choice.
    pub(super) fn chunk(
        self,
        head: &Head,
        choice: impl Serialize,
        asked: StreamUsage,
        out: &mut Frames,
    ) {
        // Nothing yet, for those who will be told in the last one.
        let usage = (asked == StreamUsage::LastChunk).then_some(());
        out.data(&self.wrap(head, [choice], usage));
    }

    /// A whole answer.
    pub(super) fn reply(self, head: &Head, choices: Vec<Value>, usage: &Usage) -> Value {
        json!(self.wrap(head, choices, Some(usage_json(head, usage))))
    }

    /// The end of a good stream.
    pub(super) fn finish(self, head: &Head, usage: &Usage, asked: StreamUsage, out: &mut Frames) {
        if asked == StreamUsage::LastChunk {
            out.data(&self.reply(head, Vec::new(), usage));
        }
        out.word("[DONE]");
    }
}

/// The end of a broken stream.
pub(super) fn fail(error: &ApiError, out: &mut Frames) {
    out.data(&error_body(error));
    out.word("[DONE]");
}

/// OpenAI's usage, and what one needs to judge or repeat the answer: timings and the seed.
fn usage_json(head: &Head, usage: &Usage) -> Value {
    let timings = &usage.timings;
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "disk_tokens": usage.disk_tokens,
            "cache_miss": usage.miss.map(engine::Miss::name),
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "seed": head.seed.cast_signed(),
        "timings": {
            "queue_ms": rounded(timings.queue_ms),
            "prompt_ms": rounded(timings.prompt_ms),
            "predicted_ms": rounded(timings.predicted_ms),
            "prompt_per_second": rounded(timings.prompt_per_second),
            "predicted_per_second": rounded(timings.predicted_per_second),
        },
    })
}

/// A finished answer, choice by choice.
pub(super) struct Whole {
    pub(super) choices: Vec<WholeChoice>,
    pub(super) usage: Usage,
}

/// All of one choice.
#[derive(Default)]
pub(super) struct WholeChoice {
    pub(super) reasoning: String,
    pub(super) calls: Vec<WholeCall>,
    pub(super) text: String,
    pub(super) logprobs: Vec<Scored>,
    pub(super) reason: Option<FinishReason>,
}

/// A call of a tool.
pub(super) struct WholeCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, cut off where the answer was.
    pub(super) arguments: String,
}

impl WholeChoice {
    fn call(&mut self, call: usize, part: CallPart) {
        match part {
            CallPart::Begun { id, name } => {
                self.calls.push(WholeCall { id, name, arguments: String::new() });
            }
            CallPart::Arguments(more) => self.calls[call].arguments += &more,
            CallPart::Ended => {}
        }
    }
}

/// Puts the events of a finished answer together.
pub(super) fn gather(head: &Head, events: Vec<Event>) -> Whole {
    let mut whole = Whole {
        choices: std::iter::repeat_with(WholeChoice::default).take(head.n_choices).collect(),
        usage: Usage::default(),
    };
    for event in events {
        match event {
            Event::Text { choice, text, logprobs } => {
                whole.choices[choice].text += &text;
                whole.choices[choice].logprobs.extend(logprobs);
            }
            Event::Reasoning { choice, text } => whole.choices[choice].reasoning += &text,
            Event::Call { choice, call, part } => whole.choices[choice].call(call, part),
            Event::Done { choice, reason } => whole.choices[choice].reason = Some(reason),
            Event::Finished(usage) => whole.usage = usage,
            Event::Started { .. } | Event::Progress { .. } | Event::Failed(_) => {}
        }
    }
    whole
}
