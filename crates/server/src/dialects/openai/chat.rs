//! `POST /v1/chat/completions`.

use serde::Serialize;
use serde_json::{Value, json};

use super::fields::{self, BOTH, StreamUsage};
use super::wire::{self, Envelope};
use super::{format, messages, thinking};
use crate::answer::Head;
use crate::app::App;
use crate::describe::{Field, Shape, honoured, ignored, refused};
use crate::endpoint::{Call, Endpoint, Writer};
use crate::error::ApiError;
use crate::event::{CallPart, Event, FinishReason, Piece, Scored};
use crate::fields::Fields;
use crate::frames::Frames;
use crate::offer::{self, Offer};
use crate::request::{ChatRequest, Conversation, Input};
use crate::sampling::{self, SHARED};

const WHOLE: Envelope = Envelope { prefix: "chatcmpl", object: "chat.completion" };
const CHUNK: Envelope = Envelope { prefix: "chatcmpl", object: "chat.completion.chunk" };

/// Fields of chats alone.
const OWN: &[Field] = &[
    honoured("messages", Shape::List, "at least one"),
    honoured("logprobs", Shape::Switch, "whether tokens come with their log probabilities"),
    honoured("top_logprobs", Shape::Whole, "0 to 20; needs `logprobs`"),
    honoured("tools", Shape::List, "functions, at most 512"),
    honoured("tool_choice", Shape::TextOrObject, "`auto`, `none`, `required` or a function"),
    honoured("parallel_tool_calls", Shape::Switch, "false allows one call at most"),
    honoured("chat_template_kwargs", Shape::Object, "variables for the model's template"),
    honoured("enable_thinking", Shape::Switch, "the template variable of this name"),
    honoured("thinking", Shape::Object, "`type`: `enabled` or `disabled`; `budget_tokens`"),
    honoured("reasoning", Shape::Object, "`enabled`, `effort` and `max_tokens`, as above"),
    honoured("thinking_budget", Shape::Whole, "tokens to think with at most, from 0"),
    honoured("reasoning_effort", Shape::Text, "the template variable; `none` turns thinking off"),
    honoured("modalities", Shape::List, "`[\"text\"]`"),
    refused("audio", "this server answers in text"),
    refused("functions", "send the newer `tools` instead"),
    refused("function_call", "send the newer `tool_choice` instead"),
    refused("moderation", "there is no moderation here"),
    refused("web_search_options", "this server does not search the web"),
    ignored("metadata", "nothing is stored"),
    ignored("prediction", "it is only a hint for speed"),
    ignored("prompt_cache_key", "prompts are cached by what they hold"),
    ignored("prompt_cache_options", "prompts are cached by what they hold"),
    ignored("prompt_cache_retention", "prompts are cached by what they hold"),
    ignored("safety_identifier", "says nothing about the answer"),
    ignored("service_tier", "there is one"),
    ignored("store", "nothing is stored"),
    ignored("verbosity", "the model knows of none"),
];

pub(super) struct Chat;

impl Endpoint for Chat {
    type Writer = ChatWriter;

    const FIELDS: &'static [&'static [Field]] = &[OWN, BOTH, SHARED];

    fn read(body: &Fields, _app: &App) -> Result<Call<ChatWriter>, ApiError> {
        check_modalities(body)?;
        let (delivery, usage) = fields::delivery(body)?;
        let format = format::read(body)?;
        let Offer { tools, tool_choice, calls } = offer::read(body)?;
        let conversation = Conversation {
            messages: messages::read(body)?,
            tools,
            tool_choice,
            calls,
            thinking_budget: thinking::budget(body)?,
            kwargs: thinking::template_kwargs(body)?,
            begun: None,
        };
        let request = ChatRequest {
            n: sampling::n(body)?,
            max_tokens: fields::max_tokens(body)?,
            stop: sampling::stops(body, "stop")?,
            logprobs: logprobs(body)?,
            format: format.format,
            format_path: format.path,
            ..sampling::request(body, Input::Chat(conversation))?
        };
        let writer = ChatWriter { usage, opened: Vec::new(), logprobs: request.logprobs };
        Ok(Call { request, delivery, writer })
    }
}

fn check_modalities(body: &Fields) -> Result<(), ApiError> {
    let modalities = body.texts("modalities", 8)?;
    if modalities.iter().any(|modality| modality != "text") {
        let message = "modalities may only hold \"text\": this server answers in text";
        return Err(ApiError::refused("unsupported_parameter", "modalities", message));
    }
    Ok(())
}

/// `logprobs` and `top_logprobs`.
fn logprobs(body: &Fields) -> Result<Option<usize>, ApiError> {
    let wanted = body.switch("logprobs")?.unwrap_or(false);
    match (wanted, body.count("top_logprobs", 0..=engine::MAX_ALTERNATIVES)?) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true"))
        }
    }
}

/// Writes chunks, or one `chat.completion`.
pub(super) struct ChatWriter {
    usage: StreamUsage,
    logprobs: Option<usize>,
    /// Choices whose first chunk, which holds the role, is out.
    opened: Vec<usize>,
}

/// What a chunk says of a choice.
#[derive(Serialize)]
struct ChoiceChunk<D> {
    index: usize,
    delta: D,
    logprobs: Value,
    finish_reason: Option<&'static str>,
}

/// More text.
#[derive(Serialize)]
struct Text<'a> {
    content: &'a str,
}

impl ChatWriter {
    fn open(&mut self, head: &Head, choice: usize, content: Value, out: &mut Frames) {
        if self.opened.contains(&choice) {
            return;
        }
        self.opened.push(choice);
        self.delta(head, choice, json!({"role": "assistant", "content": content}), out);
    }

    fn delta(&self, head: &Head, index: usize, delta: impl Serialize, out: &mut Frames) {
        let choice = ChoiceChunk { index, delta, logprobs: Value::Null, finish_reason: None };
        CHUNK.chunk(head, choice, self.usage, out);
    }
}

impl Writer for ChatWriter {
    type Reply = Value;

    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames) {
        match event {
            Event::Started { .. } | Event::Progress { .. } => {}
            Event::Text { choice, text, logprobs } => {
                self.open(head, choice, "".into(), out);
                let choice = ChoiceChunk {
                    index: choice,
                    delta: Text { content: &text },
                    logprobs: scores(self.logprobs, &logprobs),
                    finish_reason: None,
                };
                CHUNK.chunk(head, choice, self.usage, out);
            }
            Event::Reasoning { choice, text } => {
                self.open(head, choice, Value::Null, out);
                self.delta(head, choice, with_reasoning(json!({}), text), out);
            }
            Event::Call { choice, call, part } => {
                self.open(head, choice, Value::Null, out);
                if let Some(call) = call_delta(call, part) {
                    self.delta(head, choice, json!({"tool_calls": [call]}), out);
                }
            }
            Event::Done { choice, reason } => {
                self.open(head, choice, "".into(), out);
                let last = ChoiceChunk {
                    index: choice,
                    delta: json!({}),
                    logprobs: Value::Null,
                    finish_reason: Some(reason.name()),
                };
                CHUNK.chunk(head, last, self.usage, out);
            }
            Event::Finished(usage) => CHUNK.finish(head, &usage, self.usage, out),
            Event::Failed(error) => wire::fail(&error, out),
        }
    }

    fn reply(self, head: &Head, events: Vec<Event>) -> Value {
        let whole = wire::gather(head, events);
        let choice = |(index, choice): (usize, wire::WholeChoice)| {
            let logprobs = scores(self.logprobs, &choice.logprobs);
            let finish_reason = choice.reason.map(FinishReason::name);
            json!({
                "index": index,
                "message": message(choice),
                "logprobs": logprobs,
                "finish_reason": finish_reason,
            })
        };
        let choices = whole.choices.into_iter().enumerate().map(choice).collect();
        WHOLE.reply(head, choices, &whole.usage)
    }
}

fn message(choice: wire::WholeChoice) -> Value {
    let wire::WholeChoice { reasoning, text, calls, .. } = choice;
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !reasoning.is_empty() {
        message = with_reasoning(message, reasoning);
    }
    if !calls.is_empty() {
        let call = |call: wire::WholeCall| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message["tool_calls"] = calls.into_iter().map(call).collect();
    }
    message
}

/// Thoughts have two names among clients.
fn with_reasoning(mut message: Value, text: String) -> Value {
    message["reasoning"] = text.as_str().into();
    message["reasoning_content"] = text.into();
    message
}

/// What a chunk says of a call: who it is in the first one, then only what its arguments gain.
fn call_delta(index: usize, part: CallPart) -> Option<Value> {
    match part {
        CallPart::Begun { id, name } => {
            let function = json!({"name": name, "arguments": ""});
            Some(json!({"index": index, "id": id, "type": "function", "function": function}))
        }
        CallPart::Arguments(more) => Some(json!({"index": index, "function": {"arguments": more}})),
        CallPart::Ended => None,
    }
}

/// `{"content": [...]}` if they were asked for.
fn scores(asked: Option<usize>, list: &[Scored]) -> Value {
    if asked.is_none() {
        return Value::Null;
    }
    let piece = |piece: &Piece| {
        json!({
            "token": String::from_utf8_lossy(&piece.bytes),
            "logprob": piece.logprob,
            "bytes": piece.bytes,
        })
    };
    let scored = |scored: &Scored| {
        let mut entry = piece(&scored.token);
        entry["top_logprobs"] = scored.top.iter().map(piece).collect();
        entry
    };
    json!({"content": list.iter().map(scored).collect::<Vec<_>>(), "refusal": null})
}
