//! `POST /v1/completions`: prompts go on as they are, no template.

use engine::TokenId;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields::{self, BOTH, StreamUsage};
use super::format;
use super::wire::{self, Envelope};
use crate::answer::Head;
use crate::app::App;
use crate::describe::{Field, Shape, honoured, refused};
use crate::endpoint::{Call, Endpoint, Writer};
use crate::error::ApiError;
use crate::event::{Event, FinishReason, Piece, Scored};
use crate::fields::{Fields, wrong_type};
use crate::frames::Frames;
use crate::request::{ChatRequest, Echo, Input, Prompt};
use crate::sampling::{self, SHARED};

/// The same word whole and streamed, as OpenAI has it.
const ENVELOPE: Envelope = Envelope { prefix: "cmpl", object: "text_completion" };
/// OpenAI's default length for this endpoint.
const DEFAULT_MAX_TOKENS: usize = 16;
/// Most choices of one request, over all its prompts.
const MAX_CHOICES: usize = 64;

/// Fields of completions alone.
const OWN: &[Field] = &[
    honoured("prompt", Shape::Mixed, "a text, several, a list of token ids, or several of them"),
    honoured("echo", Shape::Switch, "whether the answer repeats its prompt; not with `logprobs`"),
    honoured("logprobs", Shape::Whole, "0 to 20"),
    honoured("best_of", Shape::Whole, "only where it equals `n`"),
    refused("suffix", "filling in the middle is up to the prompt's own control tokens"),
];

pub(super) struct Completions;

impl Endpoint for Completions {
    type Writer = CompletionsWriter;

    const FIELDS: &'static [&'static [Field]] = &[OWN, BOTH, SHARED];

    fn read(body: &Fields, _app: &App) -> Result<Call<CompletionsWriter>, ApiError> {
        let (delivery, usage) = fields::delivery(body)?;
        let n = sampling::n(body)?;
        if body.count("best_of", 1..=MAX_CHOICES)?.is_some_and(|best_of| best_of != n) {
            let message = "best_of is only supported where it equals n";
            return Err(ApiError::refused("unsupported_parameter", "best_of", message));
        }
        let prompts = prompts(body)?;
        if prompts.len() * n > MAX_CHOICES {
            let message = format!(
                "{} prompts of {n} answers each are more than {MAX_CHOICES} answers: send them in \
                 several requests",
                prompts.len()
            );
            return Err(ApiError::field("prompt", message));
        }
        let format = format::read(body)?;
        let logprobs = body.count("logprobs", 0..=engine::MAX_ALTERNATIVES)?;
        let input = Input::Plain { prompts, echo: echo(body, logprobs)? };
        let request = ChatRequest {
            n,
            max_tokens: Some(fields::max_tokens(body)?.unwrap_or(DEFAULT_MAX_TOKENS)),
            stop: sampling::stops(body, "stop")?,
            logprobs,
            format: format.format,
            format_path: format.path,
            ..sampling::request(body, input)?
        };
        Ok(Call { request, delivery, writer: CompletionsWriter { usage, logprobs } })
    }
}

fn echo(body: &Fields, logprobs: Option<usize>) -> Result<Echo, ApiError> {
    match (body.switch("echo")?.unwrap_or(false), logprobs) {
        (false, _) => Ok(Echo::Nothing),
        (true, None) => Ok(Echo::Prompt),
        (true, Some(_)) => {
            let message = "echo with logprobs is not supported: prompts are not scored";
            Err(ApiError::refused("unsupported_parameter", "echo", message))
        }
    }
}

/// `prompt`: a text, a list of texts, a list of tokens, or a list of lists of tokens.
fn prompts(body: &Fields) -> Result<Vec<Prompt>, ApiError> {
    let value = body.get("prompt").ok_or_else(|| body.missing("prompt"))?;
    let wanted = "a string, a list of strings, or a list (of lists) of token ids";
    match value {
        Value::String(text) => Ok(vec![Prompt::Text(text.clone())]),
        Value::Array(list) if list.is_empty() => {
            Err(ApiError::field("prompt", "prompt is an empty list"))
        }
        Value::Array(list) if list[0].is_number() => Ok(vec![tokens(list, "prompt")?]),
        Value::Array(list) => {
            let one = |(i, value): (usize, &Value)| match value {
                Value::String(text) => Ok(Prompt::Text(text.clone())),
                Value::Array(list) => tokens(list, &format!("prompt[{i}]")),
                _ => Err(wrong_type(format!("prompt[{i}]"), wanted, value)),
            };
            list.iter().enumerate().map(one).collect()
        }
        _ => Err(wrong_type("prompt", wanted, value)),
    }
}

fn tokens(list: &[Value], path: &str) -> Result<Prompt, ApiError> {
    let token = |(i, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        id.ok_or_else(|| wrong_type(format!("{path}[{i}]"), "a token id", value))
    };
    list.iter().enumerate().map(token).collect::<Result<_, _>>().map(Prompt::Tokens)
}

/// Writes chunks, or one `text_completion`.
pub(super) struct CompletionsWriter {
    usage: StreamUsage,
    logprobs: Option<usize>,
}

/// One choice, or what is new of it.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Option<Value>,
    finish_reason: Option<&'static str>,
}

impl CompletionsWriter {
    fn choice<'a>(
        &self,
        index: usize,
        text: &'a str,
        logprobs: &[Scored],
        reason: Option<FinishReason>,
    ) -> Choice<'a> {
        let logprobs = self.logprobs.map(|_| scores(logprobs));
        Choice { index, text, logprobs, finish_reason: reason.map(FinishReason::name) }
    }

    fn chunk(&self, head: &Head, choice: Choice<'_>, out: &mut Frames) {
        ENVELOPE.chunk(head, choice, self.usage, out);
    }
}

impl Writer for CompletionsWriter {
    type Reply = Value;

    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames) {
        match event {
            Event::Started { .. } | Event::Progress { .. } => {}
            // Plain text has no thoughts and no calls.
            Event::Reasoning { .. } | Event::Call { .. } => {}
            Event::Text { choice, text, logprobs } => {
                self.chunk(head, self.choice(choice, &text, &logprobs, None), out);
            }
            Event::Done { choice, reason } => {
                self.chunk(head, self.choice(choice, "", &[], Some(reason)), out);
            }
            Event::Finished(usage) => ENVELOPE.finish(head, &usage, self.usage, out),
            Event::Failed(error) => wire::fail(&error, out),
        }
    }

    fn reply(self, head: &Head, events: Vec<Event>) -> Value {
        let whole = wire::gather(head, events);
        let choice = |(index, choice): (usize, wire::WholeChoice)| {
            json!(self.choice(index, &choice.text, &choice.logprobs, choice.reason))
        };
        let choices = whole.choices.into_iter().enumerate().map(choice).collect();
        ENVELOPE.reply(head, choices, &whole.usage)
    }
}

/// The older form: parallel lists.
fn scores(list: &[Scored]) -> Value {
    let top = |scored: &Scored| {
        let mut map: Map<String, Value> =
            scored.top.iter().map(|piece| (token_text(piece), piece.logprob.into())).collect();
        // The token taken is always among them, however unlikely it was.
        map.entry(token_text(&scored.token)).or_insert(scored.token.logprob.into());
        map
    };
    json!({
        "tokens": list.iter().map(|scored| token_text(&scored.token)).collect::<Vec<_>>(),
        "token_logprobs": list.iter().map(|scored| scored.token.logprob).collect::<Vec<_>>(),
        "top_logprobs": list.iter().map(top).collect::<Vec<_>>(),
        "text_offset": list.iter().map(|scored| scored.offset).collect::<Vec<_>>(),
    })
}

/// Tokens that are no whole characters are spelled in bytes, so that two of them never look alike.
fn token_text(piece: &Piece) -> String {
    match std::str::from_utf8(&piece.bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let hex = piece.bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            std::iter::once("bytes:".to_owned()).chain(hex).collect()
        }
    }
}
