//! Answers in Ollama's form: lines of JSON, or all of them put together.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use text::LocalTime;

use crate::answer::Head;
use crate::arguments;
use crate::endpoint::{Wire, Writer};
use crate::event::{CallPart, Event, FinishReason, Usage};
use crate::frames::Frames;

/// Whose answer it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Generate,
}

/// What a line says, or all of an answer.
#[derive(Clone, Default, Serialize)]
pub(super) struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// Of a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Of anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Clone, Serialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Clone, Serialize)]
struct Function {
    index: usize,
    name: String,
    arguments: Box<RawValue>,
}

/// A line, or the only one.
#[derive(Serialize)]
pub(super) struct Line {
    model: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Said>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    text: Option<Said>,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_reason: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
}

/// What an answer cost; times in nanoseconds.
#[derive(Serialize)]
struct Counts {
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
    prompt_eval_duration: u64,
    eval_count: usize,
    eval_duration: u64,
}

impl Kind {
    fn text(self, text: String) -> Said {
        match self {
            Kind::Chat => Said { role: Some("assistant"), content: Some(text), ..Said::default() },
            Kind::Generate => Said { response: Some(text), ..Said::default() },
        }
    }

    fn line(self, model: &str, unix_seconds: u64, said: Said) -> Line {
        let (message, text) = match self {
            Kind::Chat => (Some(said), None),
            Kind::Generate => (None, Some(said)),
        };
        Line {
            model: model.to_owned(),
            created_at: created_at(unix_seconds),
            message,
            text,
            done: false,
            done_reason: None,
            counts: None,
        }
    }

    /// The only line where nothing is generated, for this reason.
    pub(super) fn nothing(self, model: &str, unix_seconds: u64, reason: &'static str) -> Line {
        let line = self.line(model, unix_seconds, self.text(String::new()));
        Line { done: true, done_reason: Some(reason), ..line }
    }
}

/// A time as RFC 3339 has it.
pub(super) fn created_at(unix_seconds: u64) -> String {
    let seconds = i64::try_from(unix_seconds).unwrap_or(0);
    LocalTime::from_unix(seconds, 0).strftime("%Y-%m-%dT%H:%M:%SZ")
}

/// Writes lines, or one object.
pub(super) struct LinesWriter {
    kind: Kind,
    /// The model as the client calls it.
    model: String,
    text: String,
    thinking: String,
    calls: Vec<Call>,
    /// The call that is being made: its id, its name and its arguments so far.
    call: Option<(String, String, String)>,
    reason: &'static str,
    usage: Usage,
}

impl LinesWriter {
    pub(super) fn new(kind: Kind, model: String) -> LinesWriter {
        LinesWriter {
            kind,
            model,
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            call: None,
            reason: "stop",
            usage: Usage::default(),
        }
    }

    fn line(&self, head: &Head, said: Said) -> Line {
        self.kind.line(&self.model, head.created, said)
    }

    fn nothing(&self) -> Said {
        self.kind.text(String::new())
    }

    /// Calls come when they are complete: their arguments are objects here.
    fn call(&mut self, part: CallPart) -> Option<Call> {
        match part {
            CallPart::Begun { id, name } => self.call = Some((id, name, String::new())),
            CallPart::Arguments(more) => {
                if let Some((_, _, arguments)) = &mut self.call {
                    *arguments += &more;
                }
            }
            CallPart::Ended => {
                let (id, name, arguments) = self.call.take()?;
                let (index, arguments) = (self.calls.len(), arguments::object(&arguments));
                let call = Call { id, function: Function { index, name, arguments } };
                self.calls.push(call.clone());
                return Some(call);
            }
        }
        None
    }

    fn ended(&self, line: Line) -> Line {
        let timings = &self.usage.timings;
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let counts = Counts {
            total_duration: ns(timings.queue_ms + timings.prompt_ms + timings.predicted_ms),
            load_duration: ns(timings.queue_ms),
            prompt_eval_count: self.usage.prompt_tokens,
            prompt_eval_duration: ns(timings.prompt_ms),
            eval_count: self.usage.completion_tokens,
            eval_duration: ns(timings.predicted_ms),
        };
        Line { done: true, done_reason: Some(self.reason), counts: Some(counts), ..line }
    }
}

impl Writer for LinesWriter {
    const WIRE: Wire = Wire::Lines;

    type Reply = Line;

    fn keep_alive(&mut self, head: &Head, out: &mut Frames) {
        out.line(&self.line(head, self.nothing()));
    }

    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames) {
        match event {
            Event::Started { .. } | Event::Progress { .. } => {}
            Event::Text { text, .. } => {
                if !text.is_empty() {
                    self.text += &text;
                    out.line(&self.line(head, self.kind.text(text)));
                }
            }
            Event::Reasoning { text, .. } => {
                self.thinking += &text;
                out.line(&self.line(head, Said { thinking: text, ..self.nothing() }));
            }
            Event::Call { part, .. } => {
                if let Some(call) = self.call(part) {
                    out.line(&self.line(head, Said { tool_calls: vec![call], ..self.nothing() }));
                }
            }
            Event::Done { reason, .. } => {
                self.reason = match reason {
                    FinishReason::Length => "length",
                    _ => "stop",
                };
            }
            Event::Finished(usage) => {
                self.usage = usage;
                out.line(&self.ended(self.line(head, self.nothing())));
            }
            Event::Failed(error) => out.line(&json!({"error": error.message})),
        }
    }

    fn reply(mut self, head: &Head, events: Vec<Event>) -> Line {
        let mut unseen = Frames::default();
        for event in events {
            self.frames(head, event, &mut unseen);
        }
        let text = self.kind.text(std::mem::take(&mut self.text));
        let (thinking, tool_calls) = (self.thinking.clone(), self.calls.clone());
        self.ended(self.line(head, Said { thinking, tool_calls, ..text }))
    }
}
