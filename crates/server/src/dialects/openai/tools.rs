//! `tools`, `tool_choice` and `response_format`: checked in full, honoured as far as the server can,
//! refused beyond that.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};

/// Most tools of one request.
const MAX_TOOLS: usize = 512;

/// The tools that the template shall see: checked, as the client wrote them.
pub(super) fn read(body: &Fields) -> Result<Vec<Value>, ApiError> {
    let tools = body.list("tools")?.unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::field("tools", format!("tools may have {MAX_TOOLS} entries")));
    }
    for (i, tool) in tools.iter().enumerate() {
        check_tool(&Fields::at(tool, format!("tools[{i}]"))?)?;
    }
    match choice(body)? {
        Choice::Auto => Ok(tools.to_vec()),
        Choice::None => Ok(Vec::new()),
    }
}

fn check_tool(tool: &Fields) -> Result<(), ApiError> {
    let kind = tool.required_text("type")?;
    if kind != "function" {
        let message = format!("{} must be `function`, not `{kind}`", tool.path("type"));
        return Err(ApiError::field(tool.path("type"), message));
    }
    let function = tool.object("function")?.ok_or_else(|| tool.missing("function"))?;
    function.required_text("name")?;
    function.text("description")?;
    function.object("parameters")?;
    function.switch("strict")?;
    Ok(())
}

enum Choice {
    Auto,
    None,
}

fn choice(body: &Fields) -> Result<Choice, ApiError> {
    let Some(value) = body.get("tool_choice") else { return Ok(Choice::Auto) };
    match value {
        Value::String(word) if word == "auto" => Ok(Choice::Auto),
        Value::String(word) if word == "none" => Ok(Choice::None),
        Value::String(word) if word == "required" => Err(unsupported_choice()),
        Value::String(word) => {
            let message = format!("tool_choice is auto, none, required or a tool, not `{word}`");
            Err(ApiError::field("tool_choice", message))
        }
        Value::Object(_) => Err(unsupported_choice()),
        _ => Err(wrong_type("tool_choice", "a string or an object", value)),
    }
}

fn unsupported_choice() -> ApiError {
    let message = "tool_choice `required` and named tools are not supported: the server cannot \
                   force a call; use `auto`";
    ApiError::refused("unsupported_tool_choice", "tool_choice", message)
}

/// Accepts plain text, refuses forms that nothing here would enforce.
pub(super) fn response_format(body: &Fields) -> Result<(), ApiError> {
    let Some(format) = body.object("response_format")? else { return Ok(()) };
    match format.required_text("type")? {
        "text" => Ok(()),
        "json_object" => Err(unsupported_format()),
        "json_schema" => {
            let missing = || format.missing("json_schema");
            let schema = format.object("json_schema")?.ok_or_else(missing)?;
            schema.required_text("name")?;
            schema.text("description")?;
            schema.object("schema")?;
            schema.switch("strict")?;
            Err(unsupported_format())
        }
        other => {
            let message =
                format!("response_format.type is text, json_object or json_schema, not `{other}`");
            Err(ApiError::field("response_format.type", message))
        }
    }
}

fn unsupported_format() -> ApiError {
    let message = "response_format other than `text` is not supported: nothing would hold the \
                   model to it";
    ApiError::refused("unsupported_response_format", "response_format", message)
}
