//! `POST /v1/messages`: how a body is read.

use serde_json::{Map, Value};

use super::content;
use super::tools;
use super::writer::MessagesWriter;
use crate::app::App;
use crate::describe::{Field, Shape, honoured, ignored, refused};
use crate::endpoint::{Call, Delivery, Endpoint};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::offer::Offer;
use crate::request::{ChatRequest, Conversation, Format, Input, Strictness, ToolChoice};
use crate::sampling::{self, SHARED};

const OWN: &[Field] = &[
    honoured(
        "messages",
        Shape::List,
        "at least one; if the last one is the assistant's, its answer goes on",
    ),
    honoured("system", Shape::TextOrList, "instructions, as text or text blocks"),
    honoured("max_tokens", Shape::Whole, "from 1; default: the rest of the context"),
    honoured("stop_sequences", Shape::List, "up to 16 strings of 1 to 1024 bytes"),
    honoured("tools", Shape::List, "tools with an `input_schema`, at most 512"),
    honoured("tool_choice", Shape::Object, "`auto`, `any`, `tool` or `none`"),
    honoured("thinking", Shape::Object, "`enabled`, `adaptive` or `disabled`"),
    honoured("output_config", Shape::Object, "`effort`, and `format` with a JSON schema"),
    honoured("output_format", Shape::Object, "the older place of `output_config.format`"),
    refused("container", "there are none here"),
    refused("mcp_servers", "this server calls no others; give their tools in `tools`"),
    ignored("metadata", "says nothing about the answer"),
    ignored("cache_control", "prompts are cached by what they hold"),
    ignored("service_tier", "there is one"),
    ignored("context_management", "nothing is left out of a conversation here"),
    ignored("inference_geo", "this machine answers"),
    ignored("speed", "there is one"),
    ignored("diagnostics", "says nothing about the answer"),
    ignored("betas", "says nothing about the answer"),
    ignored("user_profile_id", "says nothing about the answer"),
    ignored("workspace_id", "says nothing about the answer"),
];

pub(super) struct Messages;

impl Endpoint for Messages {
    type Writer = MessagesWriter;

    const FIELDS: &'static [&'static [Field]] = &[OWN, SHARED];

    fn read(body: &Fields, _app: &App) -> Result<Call<MessagesWriter>, ApiError> {
        let Offer { tools, tool_choice, calls } = tools::read(body)?;
        let output = body.object("output_config")?;
        let (messages, begun) = content::read(body)?;
        let (format, format_path) = format(body, output.as_ref())?;
        if begun.is_some() {
            check_begun(body, &tool_choice, &format)?;
        }
        let mut kwargs = template_kwargs(body, output.as_ref())?;
        if begun.is_some() {
            // Nobody thinks in the middle of an answer.
            kwargs.entry("enable_thinking").or_insert(false.into());
        }
        let conversation = Conversation {
            messages,
            begun,
            tools,
            tool_choice,
            calls,
            thinking_budget: thinking_budget(body)?,
            kwargs,
        };
        let request = ChatRequest {
            max_tokens: sampling::max_tokens(body, "max_tokens")?,
            stop: sampling::stops(body, "stop_sequences")?,
            format,
            format_path,
            ..sampling::request(body, Input::Chat(conversation))?
        };
        let delivery = sampling::delivery(body, Delivery::Whole)?;
        let writer = MessagesWriter::new(request.stop.clone());
        Ok(Call { request, delivery, writer })
    }
}

/// An answer that the client has begun is text: nothing that has to be there from its beginning can be
/// asked of it.
fn check_begun(body: &Fields, choice: &ToolChoice, format: &Format) -> Result<(), ApiError> {
    let thinks = match body.object("thinking")? {
        Some(thinking) => thinking.required_text("type")? == "enabled",
        None => false,
    };
    let calls = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    let asked = [
        ("thinking", thinks),
        ("tool_choice", calls),
        ("output_config.format", *format != Format::Free),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((field, _)) => {
            let message =
                format!("the last message begins the answer, which {field} does not go with");
            Err(ApiError::refused("unsupported_prefill", *field, message))
        }
    }
}

/// `thinking.budget_tokens`.
fn thinking_budget(body: &Fields) -> Result<Option<usize>, ApiError> {
    let Some(thinking) = body.object("thinking")? else { return Ok(None) };
    thinking.count("budget_tokens", 1..=u32::MAX as usize)
}

/// Variables for the template from `thinking` and `output_config.effort`. Nobody's wish leaves the
/// template's own default.
fn template_kwargs(body: &Fields, output: Option<&Fields>) -> Result<Map<String, Value>, ApiError> {
    let mut kwargs = Map::new();
    if let Some(effort) = output.map(|output| output.text("effort")).transpose()?.flatten() {
        kwargs.insert("reasoning_effort".to_owned(), effort.into());
    }
    if let Some(thinking) = body.object("thinking")? {
        let on = match thinking.required_text("type")? {
            "enabled" | "adaptive" => true,
            "disabled" => false,
            kind => {
                let message =
                    format!("thinking.type is enabled, adaptive or disabled, not `{kind}`");
                return Err(ApiError::field("thinking.type", message));
            }
        };
        kwargs.insert("enable_thinking".to_owned(), on.into());
    }
    Ok(kwargs)
}

/// The JSON schema of the answer, if it has one, and the field that holds it.
fn format(body: &Fields, output: Option<&Fields>) -> Result<(Format, &'static str), ApiError> {
    let newer = output.map(|output| output.object("format")).transpose()?.flatten();
    let (format, path) = match (newer, body.object("output_format")?) {
        (Some(format), _) => (format, "output_config.format.schema"),
        (None, Some(format)) => (format, "output_format.schema"),
        (None, None) => return Ok((Format::Free, "output_config.format")),
    };
    match format.required_text("type")? {
        "json_schema" => {
            let schema = format.object("schema")?.ok_or_else(|| format.missing("schema"))?;
            let schema = Value::Object(schema.map().clone());
            Ok((Format::JsonSchema { schema, strictness: Strictness::Standard }, path))
        }
        other => {
            let path = format.path("type");
            Err(ApiError::field(path.clone(), format!("{path} is json_schema, not `{other}`")))
        }
    }
}
