//! `messages`: shape and types of each one. What a conversation as a whole may look like (order,
//! tool ids, arguments) is checked by the text crate, for all dialects alike.

use serde_json::Value;
use text::{Content, Message, Role, ToolCall};

use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};

/// All messages, at least one.
pub(super) fn read(body: &Fields) -> Result<Vec<Message>, ApiError> {
    let list = body.list("messages")?.ok_or_else(|| body.missing("messages"))?;
    if list.is_empty() {
        return Err(ApiError::field("messages", "messages is empty: at least one is needed"));
    }
    let message = |(i, value)| message(&Fields::at(value, format!("messages[{i}]"))?);
    list.iter().enumerate().map(message).collect()
}

fn message(fields: &Fields) -> Result<Message, ApiError> {
    let role = fields.required_text("role")?;
    let role = Role::parse(role).ok_or_else(|| {
        let message = format!(
            "{} is system, developer, user, assistant or tool, not `{role}`",
            fields.path("role")
        );
        ApiError::field(fields.path("role"), message)
    })?;
    let content = content(fields)?;
    // An assistant turn may consist of calls alone.
    if content.is_none() && role != Role::Assistant {
        return Err(fields.missing("content"));
    }
    fields.refuse("function_call", "send the newer `tool_calls` instead")?;
    let reasoning = fields.text("reasoning_content")?.or(fields.text("reasoning")?);
    Ok(Message {
        role,
        content,
        tool_calls: tool_calls(fields)?,
        tool_call_id: fields.text("tool_call_id")?.map(str::to_owned),
        name: fields.text("name")?.map(str::to_owned),
        reasoning_content: reasoning.map(str::to_owned),
    })
}

fn content(fields: &Fields) -> Result<Option<Content>, ApiError> {
    match fields.get("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(Content::Text(text.clone()))),
        Some(Value::Array(parts)) => {
            let path = fields.path("content");
            if parts.is_empty() {
                return Err(ApiError::field(path.clone(), format!("{path} is an empty list")));
            }
            let part = |(i, part)| part_text(&Fields::at(part, format!("{path}[{i}]"))?);
            let parts = parts.iter().enumerate().map(part).collect::<Result<_, _>>()?;
            Ok(Some(Content::Parts(parts)))
        }
        Some(other) => {
            Err(wrong_type(fields.path("content"), "a string or a list of parts", other))
        }
    }
}

fn part_text(part: &Fields) -> Result<String, ApiError> {
    let required = |name| part.text(name)?.map(str::to_owned).ok_or_else(|| part.missing(name));
    match part.required_text("type")? {
        "text" => required("text"),
        "refusal" => required("refusal"),
        kind => {
            let message =
                format!("{} is `{kind}`, but this model reads only text parts", part.path("type"));
            Err(ApiError::refused("unsupported_content", part.path("type"), message))
        }
    }
}

fn tool_calls(fields: &Fields) -> Result<Vec<ToolCall>, ApiError> {
    let list = fields.list("tool_calls")?.unwrap_or_default();
    let path = fields.path("tool_calls");
    let call = |(i, value)| tool_call(&Fields::at(value, format!("{path}[{i}]"))?);
    list.iter().enumerate().map(call).collect()
}

fn tool_call(call: &Fields) -> Result<ToolCall, ApiError> {
    if let Some(kind) = call.text("type")?.filter(|&kind| kind != "function") {
        let message = format!("{} must be `function`, not `{kind}`", call.path("type"));
        return Err(ApiError::field(call.path("type"), message));
    }
    let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
    let arguments = match function.get("arguments") {
        Some(value @ (Value::String(_) | Value::Object(_))) => value.clone(),
        None => Value::Null,
        Some(other) => {
            let path = function.path("arguments");
            return Err(wrong_type(path, "a string that holds a JSON object", other));
        }
    };
    Ok(ToolCall {
        id: call.text("id")?.map(str::to_owned),
        name: function.required_text("name")?.to_owned(),
        arguments,
    })
}
