//! Answers in Ollama's form: lines of JSON, or all of them put together.

use serde_json::{Value, json};
use text::LocalTime;

use crate::answer::Head;
use crate::endpoint::{Wire, Writer};
use crate::event::{CallPart, Event, FinishReason, Usage};
use crate::frames::Frames;

/// Whose answer it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Generate,
}

impl Kind {
    /// A line with more text.
    pub(super) fn line(self, model: &str, created_at: &str, text: &str) -> Value {
        let mut line = json!({"model": model, "created_at": created_at});
        match self {
            Kind::Chat => line["message"] = json!({"role": "assistant", "content": text}),
            Kind::Generate => line["response"] = text.into(),
        }
        line["done"] = false.into();
        line
    }

    /// What a line says beside text.
    fn add(self, line: &mut Value, name: &str, value: Value) {
        match self {
            Kind::Chat => line["message"][name] = value,
            Kind::Generate => line[name] = value,
        }
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
    calls: Vec<Value>,
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

    fn line(&self, head: &Head, text: &str) -> Value {
        self.kind.line(&self.model, &created_at(head.created), text)
    }

    /// Calls come when they are complete: their arguments are objects here.
    fn call(&mut self, part: CallPart) -> Option<Value> {
        match part {
            CallPart::Begun { id, name } => self.call = Some((id, name, String::new())),
            CallPart::Arguments(more) => {
                if let Some((_, _, arguments)) = &mut self.call {
                    *arguments += &more;
                }
            }
            CallPart::Ended => {
                let (id, name, arguments) = self.call.take()?;
                let arguments: Value = serde_json::from_str(&arguments).unwrap_or(json!({}));
                let index = self.calls.len();
                let function = json!({"index": index, "name": name, "arguments": arguments});
                let call = json!({"id": id, "function": function});
                self.calls.push(call.clone());
                return Some(call);
            }
        }
        None
    }

    fn ended(&self, mut line: Value) -> Value {
        line["done"] = true.into();
        line["done_reason"] = self.reason.into();
        let timings = &self.usage.timings;
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let total = timings.queue_ms + timings.prompt_ms + timings.predicted_ms;
        line["total_duration"] = ns(total).into();
        line["load_duration"] = ns(timings.queue_ms).into();
        line["prompt_eval_count"] = self.usage.prompt_tokens.into();
        line["prompt_eval_duration"] = ns(timings.prompt_ms).into();
        line["eval_count"] = self.usage.completion_tokens.into();
        line["eval_duration"] = ns(timings.predicted_ms).into();
        line
    }
}

impl Writer for LinesWriter {
    const WIRE: Wire = Wire::Lines;

    fn keep_alive(&mut self, head: &Head, out: &mut Frames) {
        out.line(&self.line(head, ""));
    }

    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames) {
        match event {
            Event::Started { .. } | Event::Progress { .. } => {}
            Event::Text { text, .. } => {
                if !text.is_empty() {
                    self.text += &text;
                    out.line(&self.line(head, &text));
                }
            }
            Event::Reasoning { text, .. } => {
                self.thinking += &text;
                let mut line = self.line(head, "");
                self.kind.add(&mut line, "thinking", text.into());
                out.line(&line);
            }
            Event::Call { part, .. } => {
                if let Some(call) = self.call(part) {
                    let mut line = self.line(head, "");
                    self.kind.add(&mut line, "tool_calls", json!([call]));
                    out.line(&line);
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
                out.line(&self.ended(self.line(head, "")));
            }
            Event::Failed(error) => out.line(&json!({"error": error.message})),
        }
    }

    fn reply(mut self, head: &Head, events: Vec<Event>) -> Value {
        let mut unseen = Frames::default();
        for event in events {
            self.frames(head, event, &mut unseen);
        }
        let mut line = self.line(head, &self.text);
        if !self.thinking.is_empty() {
            self.kind.add(&mut line, "thinking", self.thinking.as_str().into());
        }
        if !self.calls.is_empty() {
            self.kind.add(&mut line, "tool_calls", self.calls.clone().into());
        }
        self.ended(line)
    }
}
