//! `system` and `messages`: lists of blocks become the messages that templates know. Results of
//! tools, which are blocks of the user here, become messages of their own. What a conversation as a
//! whole may look like is checked by the text crate, for all dialects alike.

use serde_json::Value;
use text::{Content, Message, Role, ToolCall};

use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};

/// Instructions and conversation, in order, and how the answer begins if the client has begun it.
pub(super) fn read(body: &Fields) -> Result<(Vec<Message>, Option<String>), ApiError> {
    let list = body.list("messages")?.ok_or_else(|| body.missing("messages"))?;
    if list.is_empty() {
        return Err(ApiError::field("messages", "messages is empty: at least one is needed"));
    }
    let mut messages = Vec::with_capacity(list.len() + 1);
    let mut begun = None;
    if let Some(system) = body.get("system") {
        messages.push(instructions(system, "system")?);
    }
    for (i, value) in list.iter().enumerate() {
        let fields = Fields::at(value, format!("messages[{i}]"))?;
        match fields.required_text("role")? {
            "user" => user(&fields, &mut messages)?,
            "assistant" if list.len() == 1 => {
                let message = "the only message is the assistant's: there is nothing to answer";
                return Err(ApiError::field(fields.path("role"), message));
            }
            "assistant" if i + 1 == list.len() => begun = begun_answer(&fields)?,
            "assistant" => messages.push(assistant(&fields)?),
            // Some agents put reminders there.
            "system" => {
                let content = fields.get("content").ok_or_else(|| fields.missing("content"))?;
                messages.push(instructions(content, &fields.path("content"))?);
            }
            role => {
                let path = fields.path("role");
                let message = format!("{path} is user or assistant, not `{role}`");
                return Err(ApiError::field(path, message));
            }
        }
    }
    Ok((messages, begun))
}

/// The text of an answer that is to go on; `None` if there is nothing in it.
fn begun_answer(fields: &Fields) -> Result<Option<String>, ApiError> {
    let message = assistant(fields)?;
    let path = fields.path("content");
    let refused = |what: &str| {
        ApiError::refused("unsupported_prefill", path.clone(), format!("{path} {what}"))
    };
    if !message.tool_calls.is_empty() {
        return Err(refused("ends with a call, whose result has to follow"));
    }
    if message.reasoning_content.is_some() {
        return Err(refused("begins an answer with thoughts, which are the model's"));
    }
    let text = message.content.map(Content::into_text).unwrap_or_default();
    if text.ends_with(char::is_whitespace) {
        return Err(refused("begins the answer and ends with whitespace, which it must not"));
    }
    Ok((!text.is_empty()).then_some(text))
}

fn instructions(value: &Value, path: &str) -> Result<Message, ApiError> {
    let content = match value {
        Value::String(text) => Content::Text(text.clone()),
        Value::Array(blocks) => {
            let text = |(i, block)| {
                let block = Fields::at(block, format!("{path}[{i}]"))?;
                match block.required_text("type")? {
                    "text" => block_text(&block),
                    kind => Err(unreadable(&block, kind)),
                }
            };
            Content::Parts(blocks.iter().enumerate().map(text).collect::<Result<_, _>>()?)
        }
        other => return Err(wrong_type(path, "a string or a list of text blocks", other)),
    };
    Ok(Message { content: Some(content), ..Message::text(Role::System, "") })
}

/// Blocks of a message; a string is one block.
enum Blocks<'a> {
    Text(&'a str),
    List(Vec<Fields<'a>>),
}

fn blocks<'a>(fields: &Fields<'a>) -> Result<Blocks<'a>, ApiError> {
    let path = fields.path("content");
    match fields.get("content").ok_or_else(|| fields.missing("content"))? {
        Value::String(text) => Ok(Blocks::Text(text)),
        Value::Array(list) => {
            let at = |(i, block)| Fields::at(block, format!("{path}[{i}]"));
            Ok(Blocks::List(list.iter().enumerate().map(at).collect::<Result<_, _>>()?))
        }
        other => Err(wrong_type(path, "a string or a list of blocks", other)),
    }
}

fn user(fields: &Fields, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let blocks = match blocks(fields)? {
        Blocks::Text(text) => {
            messages.push(Message::text(Role::User, text));
            return Ok(());
        }
        Blocks::List(blocks) => blocks,
    };
    if blocks.is_empty() {
        let path = fields.path("content");
        return Err(ApiError::field(path.clone(), format!("{path} is an empty list")));
    }
    let mut texts = Vec::new();
    for block in &blocks {
        match block.required_text("type")? {
            "tool_result" => {
                said(&mut texts, messages);
                messages.push(result(block)?);
            }
            kind => texts.push(readable(block, kind)?),
        }
    }
    said(&mut texts, messages);
    Ok(())
}

/// What the user said between results is a message of its own.
fn said(texts: &mut Vec<String>, messages: &mut Vec<Message>) {
    if !texts.is_empty() {
        let content = Some(Content::Parts(std::mem::take(texts)));
        messages.push(Message { content, ..Message::text(Role::User, "") });
    }
}

/// The text of a block that holds text in one way or another.
fn readable(block: &Fields, kind: &str) -> Result<String, ApiError> {
    match kind {
        "text" => block_text(block),
        "document" => document(block),
        _ => Err(unreadable(block, kind)),
    }
}

fn block_text(block: &Fields) -> Result<String, ApiError> {
    block.text("text")?.map(str::to_owned).ok_or_else(|| block.missing("text"))
}

/// A document that is plain text already.
fn document(block: &Fields) -> Result<String, ApiError> {
    let source = block.object("source")?.ok_or_else(|| block.missing("source"))?;
    match source.required_text("type")? {
        "text" => {
            let data = source.text("data")?.ok_or_else(|| source.missing("data"))?;
            let title = block.text("title")?;
            Ok(title.map_or_else(|| data.to_owned(), |title| format!("{title}\n\n{data}")))
        }
        kind => {
            let path = source.path("type");
            let message =
                format!("{path} is `{kind}`, but this server reads only documents of plain text");
            Err(ApiError::refused("unsupported_content", path, message))
        }
    }
}

fn unreadable(block: &Fields, kind: &str) -> ApiError {
    let path = block.path("type");
    let message = format!("{path} is `{kind}`, but this model reads only text");
    ApiError::refused("unsupported_content", path, message)
}

/// The result of a call.
fn result(block: &Fields) -> Result<Message, ApiError> {
    let id = block.required_text("tool_use_id")?.to_owned();
    block.switch("is_error")?;
    let content = match block.get("content") {
        None => Content::Text(String::new()),
        Some(_) => match blocks(block)? {
            Blocks::Text(text) => Content::Text(text.to_owned()),
            Blocks::List(list) => {
                let text = |block: &Fields| readable(block, block.required_text("type")?);
                Content::Parts(list.iter().map(text).collect::<Result<_, _>>()?)
            }
        },
    };
    let tool_call_id = Some(id);
    Ok(Message { content: Some(content), tool_call_id, ..Message::text(Role::Tool, "") })
}

/// Thoughts, text and calls of an earlier answer.
fn assistant(fields: &Fields) -> Result<Message, ApiError> {
    let blocks = match blocks(fields)? {
        Blocks::Text(text) => return Ok(Message::text(Role::Assistant, text)),
        Blocks::List(blocks) => blocks,
    };
    let (mut texts, mut thoughts, mut tool_calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in &blocks {
        match block.required_text("type")? {
            "text" => texts.push(block_text(block)?),
            "thinking" => {
                let thought = block.text("thinking")?.ok_or_else(|| block.missing("thinking"))?;
                thoughts.push(thought);
            }
            // Nobody here can read it, and this server sends none.
            "redacted_thinking" => {}
            "tool_use" => tool_calls.push(call(block)?),
            kind => return Err(unreadable(block, kind)),
        }
    }
    Ok(Message {
        content: (!texts.is_empty()).then_some(Content::Parts(texts)),
        tool_calls,
        reasoning_content: (!thoughts.is_empty()).then(|| thoughts.join("\n")),
        ..Message::text(Role::Assistant, "")
    })
}

fn call(block: &Fields) -> Result<ToolCall, ApiError> {
    let input = block.object("input")?;
    Ok(ToolCall {
        id: Some(block.required_text("id")?.to_owned()),
        name: block.required_text("name")?.to_owned(),
        arguments: input.map_or(Value::Null, |input| Value::Object(input.map().clone())),
    })
}
