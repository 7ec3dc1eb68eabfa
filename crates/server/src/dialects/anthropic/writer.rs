//! Answers in Anthropic's form: a message of blocks, whole or as the events that build it. Both come
//! from one state machine, so that they cannot differ.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error;
use crate::answer::Head;
use crate::arguments;
use crate::endpoint::Writer;
use crate::event::{CallPart, Event, FinishReason, Usage};
use crate::frames::Frames;

/// What stands where Anthropic's servers sign thoughts: clients send it back, and nobody looks at it.
const SIGNATURE: &str = "hearth";

/// Builds a message from events.
#[derive(Default)]
pub(super) struct MessagesWriter {
    /// The request's stop strings.
    stops: Vec<String>,
    /// `message_start` is out.
    begun: bool,
    cached_tokens: usize,
    blocks: Vec<Block>,
    /// The last block may still grow.
    open: bool,
    ending: Option<Ending>,
    usage: Usage,
}

/// Part of a message.
enum Block {
    Thinking(String),
    Text(String),
    Tool { id: String, name: String, input: String },
}

/// A block that is complete.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Whole {
    Said(Value),
    Tool {
        #[serde(rename = "type")]
        kind: &'static str,
        id: String,
        name: String,
        input: Box<RawValue>,
    },
}

/// A message as it is now.
#[derive(Serialize)]
pub(super) struct Message {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: String,
    content: Vec<Whole>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<String>,
    usage: Value,
}

/// Why the message ended.
#[derive(Clone)]
struct Ending {
    reason: &'static str,
    stop_sequence: Option<String>,
}

impl Block {
    /// The block as it begins.
    fn opening(&self) -> Value {
        match self {
            Block::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Block::Text(_) => json!({"type": "text", "text": ""}),
            Block::Tool { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        }
    }

    /// All of the block. The input of a call that was cut off cannot be read, and is empty.
    fn whole(self) -> Whole {
        match self {
            Block::Thinking(text) => {
                Whole::Said(json!({"type": "thinking", "thinking": text, "signature": SIGNATURE}))
            }
            Block::Text(text) => Whole::Said(json!({"type": "text", "text": text})),
            Block::Tool { id, name, input } => {
                Whole::Tool { kind: "tool_use", id, name, input: arguments::object(&input) }
            }
        }
    }
}

impl MessagesWriter {
    pub(super) fn new(stops: Vec<String>) -> MessagesWriter {
        MessagesWriter { stops, ..MessagesWriter::default() }
    }

    fn ending(&self, reason: FinishReason) -> Ending {
        let (reason, stop) = match reason {
            FinishReason::Stop => ("end_turn", None),
            FinishReason::StopString(at) => ("stop_sequence", self.stops.get(at)),
            FinishReason::Length => ("max_tokens", None),
            FinishReason::ToolCalls => ("tool_use", None),
        };
        Ending { reason, stop_sequence: stop.cloned() }
    }

    fn message(&self, head: &Head, content: Vec<Whole>, usage: Value) -> Message {
        let ending = self.ending.clone();
        Message {
            id: format!("msg_{}", head.id),
            kind: "message",
            role: "assistant",
            model: head.model.clone(),
            content,
            stop_reason: ending.as_ref().map(|ending| ending.reason),
            stop_sequence: ending.and_then(|ending| ending.stop_sequence),
            usage,
        }
    }

    fn begin(&mut self, head: &Head, out: &mut Frames) {
        if !self.begun {
            self.begun = true;
            let usage = usage(head.prompt_tokens, self.cached_tokens, 0);
            let message = self.message(head, Vec::new(), usage);
            out.event("message_start", &json!({"type": "message_start", "message": message}));
        }
    }

    fn index(&self) -> usize {
        self.blocks.len() - 1
    }

    fn begin_block(&mut self, block: Block, out: &mut Frames) {
        self.end_block(out);
        let opening = block.opening();
        self.blocks.push(block);
        self.open = true;
        let event = json!({"type": "content_block_start", "index": self.index(),
                           "content_block": opening});
        out.event("content_block_start", &event);
    }

    fn delta(&self, delta: Value, out: &mut Frames) {
        let event = json!({"type": "content_block_delta", "index": self.index(), "delta": delta});
        out.event("content_block_delta", &event);
    }

    fn end_block(&mut self, out: &mut Frames) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        if let Some(Block::Thinking(_)) = self.blocks.last() {
            self.delta(json!({"type": "signature_delta", "signature": SIGNATURE}), out);
        }
        let event = json!({"type": "content_block_stop", "index": self.index()});
        out.event("content_block_stop", &event);
    }

    fn text(&mut self, text: &str, out: &mut Frames) {
        if text.is_empty() {
            return;
        }
        if !(self.open && matches!(self.blocks.last(), Some(Block::Text(_)))) {
            self.begin_block(Block::Text(String::new()), out);
        }
        if let Some(Block::Text(whole)) = self.blocks.last_mut() {
            *whole += text;
        }
        self.delta(json!({"type": "text_delta", "text": text}), out);
    }

    fn thought(&mut self, text: &str, out: &mut Frames) {
        if !(self.open && matches!(self.blocks.last(), Some(Block::Thinking(_)))) {
            self.begin_block(Block::Thinking(String::new()), out);
        }
        if let Some(Block::Thinking(whole)) = self.blocks.last_mut() {
            *whole += text;
        }
        self.delta(json!({"type": "thinking_delta", "thinking": text}), out);
    }

    fn call(&mut self, part: CallPart, out: &mut Frames) {
        match part {
            CallPart::Begun { id, name } => {
                self.begin_block(Block::Tool { id, name, input: String::new() }, out);
            }
            CallPart::Arguments(more) => {
                if let Some(Block::Tool { input, .. }) = self.blocks.last_mut() {
                    *input += &more;
                }
                self.delta(json!({"type": "input_json_delta", "partial_json": more}), out);
            }
            CallPart::Ended => self.end_block(out),
        }
    }

    fn finish(&mut self, usage: Usage, out: &mut Frames) {
        let ending = self.ending.as_ref();
        let event = json!({
            "type": "message_delta",
            "delta": {
                "stop_reason": ending.map(|ending| ending.reason),
                "stop_sequence": ending.and_then(|ending| ending.stop_sequence.as_deref()),
            },
            "usage": whole_usage(&usage),
        });
        out.event("message_delta", &event);
        out.event("message_stop", &json!({"type": "message_stop"}));
        self.usage = usage;
    }
}

impl Writer for MessagesWriter {
    type Reply = Message;

    fn keep_alive(&mut self, head: &Head, out: &mut Frames) {
        self.begin(head, out);
        out.event("ping", &json!({"type": "ping"}));
    }

    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames) {
        match event {
            Event::Started { cached_tokens, .. } => {
                self.cached_tokens = cached_tokens;
                self.begin(head, out);
            }
            Event::Progress { .. } => {}
            Event::Text { text, .. } => self.text(&text, out),
            Event::Reasoning { text, .. } => self.thought(&text, out),
            Event::Call { part, .. } => self.call(part, out),
            Event::Done { reason, .. } => {
                self.end_block(out);
                self.ending = Some(self.ending(reason));
            }
            Event::Finished(usage) => self.finish(usage, out),
            Event::Failed(error) => out.event("error", &error::event(&error)),
        }
    }

    fn reply(mut self, head: &Head, events: Vec<Event>) -> Message {
        let mut unseen = Frames::default();
        for event in events {
            self.frames(head, event, &mut unseen);
        }
        let content = std::mem::take(&mut self.blocks).into_iter().map(Block::whole).collect();
        self.message(head, content, whole_usage(&self.usage))
    }
}

fn whole_usage(usage: &Usage) -> Value {
    self::usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
}

/// Tokens that were found in the cache are counted apart, as Anthropic does. What is put into it
/// costs nothing here, and is not.
fn usage(prompt_tokens: usize, cached_tokens: usize, completion_tokens: usize) -> Value {
    json!({
        "input_tokens": prompt_tokens.saturating_sub(cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": completion_tokens,
    })
}
