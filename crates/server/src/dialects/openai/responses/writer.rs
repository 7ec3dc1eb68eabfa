//! Answers of `/v1/responses`: a list of items, whole or as the events that build it. Both come from
//! one state machine, so that they cannot differ. An item is complete before the next one begins.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use text::digits::{self, exact};

use super::tools::{Kind, Spelling, Spellings};
use crate::answer::Head;
use crate::app::App;
use crate::endpoint::Writer;
use crate::error::ApiError;
use crate::event::{CallPart, Event, FinishReason, Usage};
use crate::frames::Frames;
use crate::kept::Answered;

/// What an answer shows beside what the model said.
pub(super) struct Shown {
    /// Fields of the request.
    pub(super) echoed: Map<String, Value>,
    /// What calls are called.
    pub(super) spellings: Spellings,
}

/// Builds an answer from events.
pub(super) struct ResponsesWriter {
    shown: Shown,
    /// Where it is kept, and with what it answers.
    keep: Option<(App, Vec<Value>)>,
    sequence: u64,
    begun: bool,
    items: Vec<Item>,
    /// The last item may still grow.
    open: bool,
    state: State,
    usage: Option<Usage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::InProgress => "in_progress",
            State::Completed => "completed",
            State::Incomplete => "incomplete",
            State::Failed => "failed",
        }
    }
}

/// One item of the output.
struct Item {
    kind: ItemKind,
    state: State,
}

enum ItemKind {
    Reasoning(String),
    Message(String),
    /// `arguments` is JSON text.
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl ResponsesWriter {
    pub(super) fn new(shown: Shown, keep: Option<(App, Vec<Value>)>) -> ResponsesWriter {
        ResponsesWriter {
            shown,
            keep,
            sequence: 0,
            begun: false,
            items: Vec::new(),
            open: false,
            state: State::InProgress,
            usage: None,
        }
    }

    /// The answer as far as it is known.
    fn response(&self, head: &Head, error: Option<&ApiError>) -> Value {
        let output: Vec<Value> = (0..self.items.len()).map(|at| self.item(head, at)).collect();
        let incomplete = self.state == State::Incomplete;
        let mut response = json!({
            "id": name(head),
            "object": "response",
            "created_at": head.created,
            "status": self.state.name(),
            "error": error.map(|error| json!({"code": "server_error", "message": error.message})),
            "incomplete_details": incomplete.then(|| json!({"reason": "max_output_tokens"})),
            "model": head.model,
            "output": output,
            "usage": self.usage.as_ref().map(usage),
        });
        for (key, value) in &self.shown.echoed {
            response[key] = value.clone();
        }
        response
    }

    /// How the client calls a tool.
    fn spelling(&self, name: &str) -> (Kind, Option<&str>, String) {
        match self.shown.spellings.get(name) {
            Some(Spelling { kind, namespace, name }) => (*kind, namespace.as_deref(), name.clone()),
            None => (Kind::Function, None, name.to_owned()),
        }
    }

    fn item_id(&self, head: &Head, at: usize) -> String {
        let prefix = match &self.items[at].kind {
            ItemKind::Reasoning(_) => "rs",
            ItemKind::Message(_) => "msg",
            ItemKind::Call { name, .. } => match self.spelling(name).0 {
                Kind::Function => "fc",
                Kind::Custom => "ctc",
            },
        };
        format!("{prefix}_{}_{at}", head.id)
    }

    fn item(&self, head: &Head, at: usize) -> Value {
        let Item { kind, state } = &self.items[at];
        let id = self.item_id(head, at);
        let status = state.name();
        match kind {
            ItemKind::Reasoning(text) => json!({"type": "reasoning", "id": id, "status": status,
                "summary": [], "content": self.parts(at, text)}),
            ItemKind::Message(text) => json!({"type": "message", "id": id, "status": status,
                "role": "assistant", "content": self.parts(at, text)}),
            ItemKind::Call { id: call_id, name, arguments } => {
                let (kind, namespace, name) = self.spelling(name);
                let mut item =
                    json!({"id": id, "status": status, "call_id": call_id, "name": name});
                match kind {
                    Kind::Function => {
                        item["type"] = "function_call".into();
                        item["arguments"] = arguments.as_str().into();
                    }
                    Kind::Custom => {
                        item["type"] = "custom_tool_call".into();
                        item["input"] = custom_input(arguments).into();
                    }
                }
                if let Some(namespace) = namespace {
                    item["namespace"] = namespace.into();
                }
                item
            }
        }
    }

    /// The parts of an item: none before its first text.
    fn parts(&self, at: usize, text: &str) -> Vec<Value> {
        let begun = self.items[at].state != State::InProgress || !text.is_empty();
        begun.then(|| self.part(at, text)).into_iter().collect()
    }

    fn part(&self, at: usize, text: &str) -> Value {
        match self.items[at].kind {
            ItemKind::Reasoning(_) => json!({"type": "reasoning_text", "text": text}),
            _ => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
        }
    }

    fn event(&mut self, kind: &str, mut event: Value, out: &mut Frames) {
        event["type"] = kind.into();
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        out.event(kind, &exact(&event));
    }

    /// An event of the last item.
    fn of_item(&mut self, head: &Head, kind: &str, mut event: Value, out: &mut Frames) {
        let at = self.items.len() - 1;
        event["item_id"] = self.item_id(head, at).into();
        event["output_index"] = at.into();
        self.event(kind, event, out);
    }

    fn of_response(&mut self, head: &Head, kind: &str, error: Option<&ApiError>, out: &mut Frames) {
        let response = self.response(head, error);
        self.event(kind, json!({"response": response}), out);
    }

    fn begin(&mut self, head: &Head, out: &mut Frames) {
        if !std::mem::replace(&mut self.begun, true) {
            self.of_response(head, "response.created", None, out);
            self.of_response(head, "response.in_progress", None, out);
        }
    }

    fn begin_item(&mut self, head: &Head, kind: ItemKind, out: &mut Frames) {
        self.end_item(head, State::Completed, out);
        let has_parts = !matches!(kind, ItemKind::Call { .. });
        self.items.push(Item { kind, state: State::InProgress });
        self.open = true;
        let at = self.items.len() - 1;
        let event = json!({"output_index": at, "item": self.item(head, at)});
        self.event("response.output_item.added", event, out);
        if has_parts {
            let event = json!({"content_index": 0, "part": self.part(at, "")});
            self.of_item(head, "response.content_part.added", event, out);
        }
    }

    /// Ends the last item, if it may still grow. One that is cut off keeps what it has.
    fn end_item(&mut self, head: &Head, state: State, out: &mut Frames) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let at = self.items.len() - 1;
        let (kind, event) = match &self.items[at].kind {
            ItemKind::Reasoning(text) => {
                ("response.reasoning_text.done", json!({"content_index": 0, "text": text}))
            }
            ItemKind::Message(text) => (
                "response.output_text.done",
                json!({"content_index": 0, "text": text, "logprobs": []}),
            ),
            ItemKind::Call { name, arguments, .. } => match self.spelling(name).0 {
                Kind::Function => (
                    "response.function_call_arguments.done",
                    json!({"name": name, "arguments": arguments}),
                ),
                Kind::Custom => (
                    "response.custom_tool_call_input.done",
                    json!({"input": custom_input(arguments)}),
                ),
            },
        };
        let is_call = matches!(self.items[at].kind, ItemKind::Call { .. });
        // A call that was cut off is not one to be made.
        if !is_call || state == State::Completed {
            self.of_item(head, kind, event, out);
        }
        self.items[at].state = state;
        if let ItemKind::Reasoning(text) | ItemKind::Message(text) = &self.items[at].kind {
            let event = json!({"content_index": 0, "part": self.part(at, text)});
            self.of_item(head, "response.content_part.done", event, out);
        }
        let event = json!({"output_index": at, "item": self.item(head, at)});
        self.event("response.output_item.done", event, out);
    }

    fn thought(&mut self, head: &Head, text: &str, out: &mut Frames) {
        if !(self.open
            && matches!(self.items.last(), Some(Item { kind: ItemKind::Reasoning(_), .. })))
        {
            self.begin_item(head, ItemKind::Reasoning(String::new()), out);
        }
        if let Some(Item { kind: ItemKind::Reasoning(whole), .. }) = self.items.last_mut() {
            *whole += text;
        }
        let event = json!({"content_index": 0, "delta": text});
        self.of_item(head, "response.reasoning_text.delta", event, out);
    }

    fn text(&mut self, head: &Head, text: &str, out: &mut Frames) {
        if text.is_empty() {
            return;
        }
        if !(self.open
            && matches!(self.items.last(), Some(Item { kind: ItemKind::Message(_), .. })))
        {
            self.begin_item(head, ItemKind::Message(String::new()), out);
        }
        if let Some(Item { kind: ItemKind::Message(whole), .. }) = self.items.last_mut() {
            *whole += text;
        }
        let event = json!({"content_index": 0, "delta": text, "logprobs": []});
        self.of_item(head, "response.output_text.delta", event, out);
    }

    fn call(&mut self, head: &Head, part: CallPart, out: &mut Frames) {
        match part {
            CallPart::Begun { id, name } => {
                self.begin_item(head, ItemKind::Call { id, name, arguments: String::new() }, out);
            }
            CallPart::Arguments(more) => {
                let Some(Item { kind: ItemKind::Call { name, arguments, .. }, .. }) =
                    self.items.last_mut()
                else {
                    return;
                };
                *arguments += &more;
                let name = name.clone();
                // The text of a custom tool is known when its JSON is complete.
                if self.spelling(&name).0 == Kind::Function {
                    let kind = "response.function_call_arguments.delta";
                    self.of_item(head, kind, json!({"delta": more}), out);
                }
            }
            CallPart::Ended => {
                if let Some(Item { kind: ItemKind::Call { name, arguments, .. }, .. }) =
                    self.items.last()
                    && self.spelling(name).0 == Kind::Custom
                {
                    let event = json!({"delta": custom_input(arguments)});
                    self.of_item(head, "response.custom_tool_call_input.delta", event, out);
                }
                self.end_item(head, State::Completed, out);
            }
        }
    }

    fn finish(&mut self, head: &Head, usage: Usage, out: &mut Frames) {
        self.usage = Some(usage);
        let kind = match self.state {
            State::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        self.of_response(head, kind, None, out);
        if let Some((app, input)) = self.keep.take() {
            let response = self.response(head, None);
            app.kept.put(name(head), Answered { input, response });
        }
    }

    fn fail(&mut self, head: &Head, error: &ApiError, out: &mut Frames) {
        self.begin(head, out);
        self.state = State::Failed;
        let told = json!({"code": error.code, "message": error.message, "param": error.param});
        self.event("error", told, out);
        self.of_response(head, "response.failed", Some(error), out);
    }
}

/// An answer in one piece.
pub(super) struct Response(Value);

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        exact(&self.0).serialize(serializer)
    }
}

impl Writer for ResponsesWriter {
    type Reply = Response;

    fn keep_alive(&mut self, head: &Head, out: &mut Frames) {
        match self.begun {
            // Some clients do not count comments as a sign of life.
            true => self.of_response(head, "response.in_progress", None, out),
            false => self.begin(head, out),
        }
    }

    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames) {
        match event {
            Event::Started { .. } => self.begin(head, out),
            Event::Progress { .. } => {}
            Event::Text { text, .. } => self.text(head, &text, out),
            Event::Reasoning { text, .. } => self.thought(head, &text, out),
            Event::Call { part, .. } => self.call(head, part, out),
            Event::Done { reason, .. } => {
                self.state = match reason {
                    FinishReason::Length => State::Incomplete,
                    _ => State::Completed,
                };
                self.end_item(head, self.state, out);
            }
            Event::Finished(usage) => self.finish(head, usage, out),
            Event::Failed(error) => self.fail(head, &error, out),
        }
    }

    fn reply(mut self, head: &Head, events: Vec<Event>) -> Response {
        let mut unseen = Frames::default();
        for event in events {
            self.frames(head, event, &mut unseen);
        }
        Response(self.response(head, None))
    }
}

/// The answer's name.
fn name(head: &Head) -> String {
    format!("resp_{}", head.id)
}

/// The text inside of the JSON that a custom tool is called with; the JSON itself if it is not what
/// it should be.
fn custom_input(arguments: &str) -> String {
    let value: Option<Value> = digits::read(arguments).ok();
    let input = value.as_ref().and_then(|value| value["input"].as_str());
    input.unwrap_or(arguments).to_owned()
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}
