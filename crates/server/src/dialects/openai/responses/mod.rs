//! `/v1/responses`: how a body is read. Answers are kept for those who go on from them.

mod items;
mod routes;
mod tools;
mod writer;

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::describe::{Field, Shape, honoured, ignored, refused};
use crate::endpoint::{Call, Delivery, Endpoint};
use crate::error::{ApiError, ErrorKind};
use crate::fields::Fields;
use crate::offer::Offer;
use crate::request::{ChatRequest, Conversation, Format, Input, Strictness};
use crate::sampling::{self, SHARED};
use writer::{ResponsesWriter, Shown};

pub(super) use routes::routes;

const OWN: &[Field] = &[
    honoured("input", Shape::TextOrList, "a text, or items"),
    honoured("instructions", Shape::Text, "what the model is to go by in this answer"),
    honoured("previous_response_id", Shape::Text, "goes on from a kept answer"),
    honoured("store", Shape::Switch, "false does not keep the answer"),
    honoured("max_output_tokens", Shape::Whole, "from 1; default: the rest of the context"),
    honoured("tools", Shape::List, "functions, custom tools and namespaces of them"),
    honoured("tool_choice", Shape::TextOrObject, "`auto`, `none`, `required` or a tool"),
    honoured("parallel_tool_calls", Shape::Switch, "false allows one call at most"),
    honoured("text", Shape::Object, "`format`"),
    honoured("reasoning", Shape::Object, "`effort`; `none` turns thinking off"),
    honoured("truncation", Shape::Text, "`disabled` or `auto`; a prompt is never cut"),
    honoured("background", Shape::Switch, "false"),
    honoured("metadata", Shape::Object, "comes back in the answer"),
    honoured("chat_template_kwargs", Shape::Object, "variables for the model's template"),
    refused("conversation", "there are none here; send previous_response_id"),
    refused("prompt", "there are no stored prompts here"),
    refused("moderation", "there is no moderation here"),
    refused("top_logprobs", "answers of this kind come without; use /v1/chat/completions"),
    ignored("include", "nothing is left out of an answer"),
    ignored("max_tool_calls", "no tool runs on this server"),
    ignored("prompt_cache_key", "prompts are cached by what they hold"),
    ignored("prompt_cache_options", "prompts are cached by what they hold"),
    ignored("prompt_cache_retention", "prompts are cached by what they hold"),
    ignored("safety_identifier", "says nothing about the answer"),
    ignored("service_tier", "there is one"),
    ignored("stream_options", "nothing is obfuscated"),
    ignored("user", "says nothing about the answer"),
    ignored("client_metadata", "says nothing about the answer"),
];

struct Responses;

impl Endpoint for Responses {
    type Writer = ResponsesWriter;

    const FIELDS: &'static [&'static [Field]] = &[OWN, SHARED];

    fn read(body: &Fields, app: &App) -> Result<Call<ResponsesWriter>, ApiError> {
        refuse_background(body)?;
        let mut input = earlier(body, app)?;
        input.extend(items::given(body)?);
        let tools::Told { offer, spellings } = tools::read(body)?;
        let Offer { tools, tool_choice, calls } = offer;
        let mut messages = Vec::new();
        if let Some(instructions) = body.text("instructions")? {
            messages.push(text::Message::text(text::Role::System, instructions));
        }
        items::messages(&input, &mut messages)?;
        let kwargs = template_kwargs(body)?;
        let conversation =
            Conversation { messages, tools, tool_choice, calls, kwargs, ..Conversation::default() };
        let (format, format_path) = format(body)?;
        let request = ChatRequest {
            max_tokens: sampling::max_tokens(body, "max_output_tokens")?,
            format,
            format_path,
            ..sampling::request(body, Input::Chat(conversation))?
        };
        let keep = body.switch("store")?.unwrap_or(true).then(|| (app.clone(), input));
        let shown = Shown { echoed: echoed(body)?, spellings };
        let delivery = sampling::delivery(body, Delivery::Whole)?;
        Ok(Call { request, delivery, writer: ResponsesWriter::new(shown, keep) })
    }
}

fn refuse_background(body: &Fields) -> Result<(), ApiError> {
    if body.switch("background")? == Some(true) {
        let message = "background is not supported: an answer is made while its client waits";
        return Err(ApiError::refused("unsupported_parameter", "background", message));
    }
    let truncation = body.text("truncation")?.unwrap_or("disabled");
    if !matches!(truncation, "disabled" | "auto") {
        let message = format!("truncation is disabled or auto, not `{truncation}`");
        return Err(ApiError::field("truncation", message));
    }
    Ok(())
}

/// What was said up to the answer that this one goes on from.
fn earlier(body: &Fields, app: &App) -> Result<Vec<Value>, ApiError> {
    let Some(name) = body.text("previous_response_id")? else { return Ok(Vec::new()) };
    let answered = app.kept.get(name).ok_or_else(|| {
        let message = format!(
            "previous_response_id: no answer is kept as `{name}`: it was not stored, or room was \
             needed for later ones; send the whole conversation as input"
        );
        let code = "previous_response_not_found";
        let param = Some("previous_response_id".to_owned());
        ApiError { param, ..ApiError::new(ErrorKind::NotFound, code, message) }
    })?;
    let output = answered.response["output"].as_array().into_iter().flatten();
    Ok(answered.input.iter().chain(output).cloned().collect())
}

fn template_kwargs(body: &Fields) -> Result<Map<String, Value>, ApiError> {
    let mut kwargs = Map::new();
    if let Some(reasoning) = body.object("reasoning")?
        && let Some(effort) = reasoning.text("effort")?
    {
        kwargs.insert("reasoning_effort".to_owned(), effort.into());
        if effort == "none" {
            kwargs.insert("enable_thinking".to_owned(), false.into());
        }
    }
    if let Some(more) = body.object("chat_template_kwargs")? {
        kwargs.extend(more.map().iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Ok(kwargs)
}

/// `text.format`, which has the fields of a JSON schema beside its type.
fn format(body: &Fields) -> Result<(Format, &'static str), ApiError> {
    let path = "text.format";
    let Some(format) =
        body.object("text")?.map(|text| text.object("format")).transpose()?.flatten()
    else {
        return Ok((Format::Free, path));
    };
    match format.required_text("type")? {
        "text" => Ok((Format::Free, path)),
        "json_object" => Ok((Format::JsonObject, path)),
        "json_schema" => {
            format.required_text("name")?;
            let strictness = match format.switch("strict")? {
                Some(true) => Strictness::Closed,
                _ => Strictness::Standard,
            };
            let schema = format.object("schema")?.ok_or_else(|| format.missing("schema"))?;
            let schema = Value::Object(schema.map().clone());
            Ok((Format::JsonSchema { schema, strictness }, "text.format.schema"))
        }
        other => {
            let message =
                format!("text.format.type is text, json_object or json_schema, not `{other}`");
            Err(ApiError::field("text.format.type", message))
        }
    }
}

/// What of the request an answer repeats.
fn echoed(body: &Fields) -> Result<Map<String, Value>, ApiError> {
    body.object("metadata")?;
    let or = |name, default| body.get(name).cloned().unwrap_or(default);
    let fields = json!({
        "instructions": or("instructions", Value::Null),
        "previous_response_id": or("previous_response_id", Value::Null),
        "store": or("store", true.into()),
        "max_output_tokens": or("max_output_tokens", Value::Null),
        "tools": or("tools", json!([])),
        "tool_choice": or("tool_choice", "auto".into()),
        "parallel_tool_calls": or("parallel_tool_calls", true.into()),
        "text": or("text", json!({"format": {"type": "text"}})),
        "reasoning": or("reasoning", json!({"effort": null, "summary": null})),
        "truncation": or("truncation", "disabled".into()),
        "metadata": or("metadata", json!({})),
        "temperature": or("temperature", Value::Null),
        "top_p": or("top_p", Value::Null),
        "background": false,
    });
    match fields {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}
