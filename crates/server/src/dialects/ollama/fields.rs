//! Fields that chat and generate share in Ollama's API, and `options` inside of them.

use std::ops::Bound;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::app::App;
use crate::describe::{Field, Shape, honoured, ignored, refused};
use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::pool::Stay;
use crate::request::{ChatRequest, Format, Input, Strictness};
use crate::sampling;

pub(super) const BOTH: &[Field] = &[
    honoured("model", Shape::Text, "id or alias, with or without `:latest`"),
    honoured("stream", Shape::Switch, "default true"),
    honoured("options", Shape::Object, "sampling settings and `num_predict`"),
    honoured("think", Shape::Mixed, "true, false, `low`, `medium` or `high`"),
    honoured("format", Shape::TextOrObject, "`json`, or a JSON schema"),
    honoured(
        "keep_alive",
        Shape::Mixed,
        "how long the model stays; 0 unloads it, below 0 keeps it",
    ),
    honoured("priority", Shape::Whole, "lower is served earlier"),
    honoured("timeout", Shape::Number, "seconds that the whole answer may take, to 86,400"),
    refused("logprobs", "use /v1/chat/completions"),
    refused("top_logprobs", "use /v1/chat/completions"),
];

pub(super) const CHAT: &[Field] = &[
    honoured("messages", Shape::List, "without any, the model is loaded or unloaded"),
    honoured("tools", Shape::List, "functions, at most 512"),
    honoured("tool_choice", Shape::TextOrObject, "as in OpenAI's chats"),
    honoured("parallel_tool_calls", Shape::Switch, "as in OpenAI's chats"),
];

pub(super) const GENERATE: &[Field] = &[
    honoured("prompt", Shape::Text, "without one, the model is loaded or unloaded"),
    honoured("system", Shape::Text, "instructions"),
    honoured("raw", Shape::Switch, "the prompt goes on as it is"),
    refused("suffix", "filling in the middle is up to the prompt's own control tokens"),
    refused("template", "the model's own is used"),
    refused("context", "send the conversation to /api/chat"),
    refused("images", "this model reads only text"),
    ignored("width", "there are no pictures here"),
    ignored("height", "there are no pictures here"),
    ignored("steps", "there are no pictures here"),
];

/// The model that a name means: as it is, or without the tag that Ollama adds.
pub(super) fn model(body: &Fields, app: &App) -> Result<String, ApiError> {
    let name = sampling::model(body)?;
    let known = |name: &str| app.chat.pool().listing(name).is_ok();
    match name.strip_suffix(":latest") {
        Some(short) if !known(&name) && known(short) => Ok(short.to_owned()),
        _ => Ok(name),
    }
}

/// A request with all that both have.
pub(super) fn request(body: &Fields, app: &App, input: Input) -> Result<ChatRequest, ApiError> {
    let none = Map::new();
    let options = match body.object("options")? {
        Some(options) => options,
        None => Fields::of(&none),
    };
    refuse_options(&options)?;
    let stay = keep_alive(body)?;
    let above_zero = (Bound::Excluded(0.0), Bound::Included(2.0));
    let limit = options.integer("num_predict", -2..=u32::MAX.into())?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let mut request = sampling::request_with(body, &options, input)?;
    if let Some(penalty) = options.number("repeat_penalty", above_zero)? {
        request.sampling.repetition_penalty = Some(penalty);
    }
    (request.format, request.format_path) = (format(body)?, "format");
    Ok(ChatRequest {
        model: model(body, app)?,
        max_tokens: limit,
        stop: sampling::stops(&options, "stop")?,
        stay,
        ..request
    })
}

/// Other ways to sample, unless they are off.
fn refuse_options(options: &Fields) -> Result<(), ApiError> {
    for (name, off) in [("mirostat", 0.0), ("tfs_z", 1.0), ("typical_p", 1.0)] {
        if options.number(name, ..)?.is_some_and(|value| value != off) {
            options.refuse(name, "this server does not sample in that way")?;
        }
    }
    options.count("num_ctx", 0..=u32::MAX as usize)?;
    Ok(())
}

/// `format`. An empty text is what clients send that mean nothing by it.
fn format(body: &Fields) -> Result<Format, ApiError> {
    match body.get("format") {
        None => Ok(Format::Free),
        Some(Value::String(text)) if text.is_empty() => Ok(Format::Free),
        Some(Value::String(text)) if text == "json" => Ok(Format::JsonObject),
        Some(schema @ Value::Object(_)) => {
            Ok(Format::JsonSchema { schema: schema.clone(), strictness: Strictness::Standard })
        }
        Some(other) => Err(wrong_type("format", "`json` or a JSON schema", other)),
    }
}

/// Variables for the template.
pub(super) fn template_kwargs(body: &Fields) -> Result<Map<String, Value>, ApiError> {
    let mut kwargs = Map::new();
    match body.get("think") {
        None => {}
        Some(Value::Bool(on)) => {
            kwargs.insert("enable_thinking".to_owned(), (*on).into());
        }
        Some(Value::String(effort)) => {
            kwargs.insert("enable_thinking".to_owned(), true.into());
            kwargs.insert("reasoning_effort".to_owned(), effort.as_str().into());
        }
        Some(other) => return Err(wrong_type("think", "true, false or an effort", other)),
    }
    Ok(kwargs)
}

/// `keep_alive`: seconds, or numbers with units as Go writes times. Anything below nought is for ever.
pub(super) fn keep_alive(body: &Fields) -> Result<Stay, ApiError> {
    let Some(value) = body.get("keep_alive") else { return Ok(Stay::Usual) };
    let seconds = match value {
        Value::String(text) => seconds(text),
        value => text::digits::as_f64(value),
    };
    match seconds {
        None => Err(wrong_type("keep_alive", "seconds, or a time such as `5m`", value)),
        Some(seconds) if seconds < 0.0 => Ok(Stay::Always),
        // What is longer than a clock can tell is for ever too.
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).map_or(Stay::Always, Stay::For)),
    }
}

/// `1h30m`, `-1`, `1.5s`; a number without a unit is seconds.
fn seconds(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("", 1.0),
    ];
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut sum = 0.0;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
        sum += number.parse::<f64>().ok()? * size;
        if next.is_empty() {
            return Some(sign * sum);
        }
        rest = next;
    }
}
