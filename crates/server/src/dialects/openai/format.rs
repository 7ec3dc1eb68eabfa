//! What the answer must look like: `response_format` as OpenAI has it, and the names that vLLM gives
//! to the same and more. Types and shapes only; whether a schema or an expression can be enforced is
//! found out with the model.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::request::{Format, Strictness};

/// A format and the field it came from.
pub(super) struct Asked {
    pub(super) format: Format,
    pub(super) path: &'static str,
}

/// vLLM's older names for its formats.
const GUIDED: [(&str, Kind); 5] = [
    ("guided_json", Kind::Json),
    ("guided_regex", Kind::Regex),
    ("guided_choice", Kind::Choice),
    ("guided_grammar", Kind::Grammar),
    ("guided_json_object", Kind::JsonObject),
];

/// Its newer ones, inside of `structured_outputs`, each with its path.
const STRUCTURED: [(&str, Kind, &str); 5] = [
    ("json", Kind::Json, "structured_outputs.json"),
    ("regex", Kind::Regex, "structured_outputs.regex"),
    ("choice", Kind::Choice, "structured_outputs.choice"),
    ("grammar", Kind::Grammar, "structured_outputs.grammar"),
    ("json_object", Kind::JsonObject, "structured_outputs.json_object"),
];

/// Most texts to choose from.
const MAX_CHOICES: usize = 1024;

#[derive(Clone, Copy)]
enum Kind {
    Json,
    Regex,
    Choice,
    Grammar,
    JsonObject,
}

/// Reads whichever of the fields is there.
///
/// # Errors
/// A field that is not what it should be, or more than one format.
pub(super) fn read(body: &Fields) -> Result<Asked, ApiError> {
    let mut asked: Vec<Asked> = response_format(body)?.into_iter().collect();
    for (name, kind) in GUIDED {
        let format = value(body, name, kind)?;
        asked.extend(format.map(|format| Asked { format, path: name }));
    }
    if let Some(fields) = body.object("structured_outputs")? {
        fields.refuse("structural_tag", "use `grammar`")?;
        fields.refuse("whitespace_pattern", "white space between tokens is bounded already")?;
        for (name, kind, path) in STRUCTURED {
            let format = value(&fields, name, kind)?;
            asked.extend(format.map(|format| Asked { format, path }));
        }
    }
    match (asked.pop(), asked.pop()) {
        (None, _) => Ok(Asked { format: Format::Free, path: "response_format" }),
        (Some(format), None) => Ok(format),
        (Some(one), Some(other)) => {
            let message = format!("{} and {} both set a format: send one", other.path, one.path);
            Err(ApiError::field(one.path, message))
        }
    }
}

fn response_format(body: &Fields) -> Result<Option<Asked>, ApiError> {
    let Some(format) = body.object("response_format")? else { return Ok(None) };
    match format.required_text("type")? {
        "text" => Ok(None),
        "json_object" => Ok(Some(Asked { format: Format::JsonObject, path: "response_format" })),
        "json_schema" => {
            let missing = || format.missing("json_schema");
            let schema = format.object("json_schema")?.ok_or_else(missing)?;
            schema.required_text("name")?;
            schema.text("description")?;
            let strictness = match schema.switch("strict")? {
                Some(true) => Strictness::Closed,
                _ => Strictness::Standard,
            };
            let fields = schema.object("schema")?.ok_or_else(|| schema.missing("schema"))?;
            let schema = Value::Object(fields.map().clone());
            let format = Format::JsonSchema { schema, strictness };
            Ok(Some(Asked { format, path: "response_format.json_schema.schema" }))
        }
        other => {
            let message =
                format!("response_format.type is text, json_object or json_schema, not `{other}`");
            Err(ApiError::field("response_format.type", message))
        }
    }
}

fn value(fields: &Fields, name: &str, kind: Kind) -> Result<Option<Format>, ApiError> {
    match kind {
        Kind::Json => schema(fields, name),
        Kind::Regex => Ok(text(fields, name)?.map(Format::Regex)),
        Kind::Grammar => Ok(text(fields, name)?.map(Format::Lark)),
        Kind::JsonObject => Ok(fields.switch(name)?.filter(|on| *on).map(|_| Format::JsonObject)),
        Kind::Choice => choice(fields, name),
    }
}

fn text(fields: &Fields, name: &str) -> Result<Option<String>, ApiError> {
    match fields.get(name) {
        None => Ok(None),
        Some(_) => fields.required_text(name).map(|text| Some(text.to_owned())),
    }
}

/// vLLM takes a schema as JSON, or as a text that holds JSON.
fn schema(fields: &Fields, name: &str) -> Result<Option<Format>, ApiError> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let schema = match value {
        Value::Object(_) => value.clone(),
        Value::String(text) => match crate::json::parse(text.as_bytes()) {
            Ok(schema @ Value::Object(_)) => schema,
            Ok(_) => return Err(wrong_type(fields.path(name), "an object", value)),
            Err(error) => {
                let message = format!("{} is no JSON: {error}", fields.path(name));
                return Err(ApiError::field(fields.path(name), message));
            }
        },
        _ => return Err(wrong_type(fields.path(name), "an object", value)),
    };
    Ok(Some(Format::JsonSchema { schema, strictness: Strictness::Standard }))
}

fn choice(fields: &Fields, name: &str) -> Result<Option<Format>, ApiError> {
    let Some(list) = fields.list(name)? else { return Ok(None) };
    if list.is_empty() || list.len() > MAX_CHOICES {
        let message = format!("{} has from 1 to {MAX_CHOICES} texts", fields.path(name));
        return Err(ApiError::field(fields.path(name), message));
    }
    let choices = fields.texts(name, MAX_CHOICES)?;
    if choices.iter().all(String::is_empty) {
        let message = format!("{} holds nothing but empty texts", fields.path(name));
        return Err(ApiError::field(fields.path(name), message));
    }
    Ok(Some(Format::Choice(choices)))
}
