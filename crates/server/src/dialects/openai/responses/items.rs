//! Items of a conversation: messages, thoughts, calls and their results, each an item of its own, which
//! become the messages that templates know. Thoughts, text and calls that follow each other are one
//! message of the assistant.

use serde_json::{Value, json};
use text::{Content, Message, Role, ToolCall};

use super::tools::flat_name;
use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::identify::random_id;

/// Items that stand for what OpenAI's own servers did. Nobody here can read them.
const HOSTED: &[&str] = &[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "computer_call",
    "computer_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
];

/// The items of `input`, each with an id.
pub(super) fn given(body: &Fields) -> Result<Vec<Value>, ApiError> {
    let items = match body.get("input") {
        None => Vec::new(),
        Some(Value::String(text)) => {
            let content = json!([{"type": "input_text", "text": text}]);
            vec![json!({"type": "message", "role": "user", "content": content})]
        }
        Some(Value::Array(list)) => list.clone(),
        Some(other) => return Err(wrong_type("input", "a string or a list of items", other)),
    };
    let name = |mut item: Value| {
        if let Some(item) = item.as_object_mut()
            && item.get("id").is_none_or(Value::is_null)
        {
            item.insert("id".to_owned(), format!("item_{}", random_id()).into());
        }
        item
    };
    Ok(items.into_iter().map(name).collect())
}

/// Adds the messages that these items are. A conversation without any is one of an empty message.
pub(super) fn messages(items: &[Value], messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let before = messages.len();
    let mut turn = Turn::default();
    for (i, item) in items.iter().enumerate() {
        let item = Fields::at(item, format!("input[{i}]"))?;
        let message = match item.text("type")?.unwrap_or("message") {
            "message" => message(&item)?,
            "reasoning" => {
                turn.thought(thoughts(&item)?, messages);
                continue;
            }
            "function_call" => {
                turn.calls.push(call(&item, "arguments", |arguments| arguments.into())?);
                continue;
            }
            "custom_tool_call" => {
                turn.calls.push(call(&item, "input", |input| json!({"input": input}))?);
                continue;
            }
            "function_call_output" | "custom_tool_call_output" => output(&item)?,
            kind if HOSTED.contains(&kind) => {
                tracing::info!(kind, "an item of OpenAI's own servers is left out");
                continue;
            }
            kind => {
                let path = item.path("type");
                let message = format!("{path} is `{kind}`, which this server cannot read");
                return Err(ApiError::refused("unsupported_item", path, message));
            }
        };
        if message.role == Role::Assistant {
            turn.texts.extend(message.content.map(Content::into_text));
        } else {
            turn.end(messages);
            messages.push(message);
        }
    }
    turn.end(messages);
    if messages.len() == before {
        messages.push(Message::text(Role::User, ""));
    }
    Ok(())
}

/// A message of the assistant as it grows.
#[derive(Default)]
struct Turn {
    thoughts: Vec<String>,
    texts: Vec<String>,
    calls: Vec<ToolCall>,
}

impl Turn {
    /// Thoughts come before what they lead to.
    fn thought(&mut self, thoughts: Vec<String>, messages: &mut Vec<Message>) {
        if !self.texts.is_empty() || !self.calls.is_empty() {
            self.end(messages);
        }
        self.thoughts.extend(thoughts);
    }

    fn end(&mut self, messages: &mut Vec<Message>) {
        let Turn { thoughts, texts, calls } = std::mem::take(self);
        if texts.is_empty() && calls.is_empty() {
            return;
        }
        messages.push(Message {
            content: (!texts.is_empty()).then_some(Content::Parts(texts)),
            tool_calls: calls,
            reasoning_content: (!thoughts.is_empty()).then(|| thoughts.join("\n")),
            ..Message::text(Role::Assistant, "")
        });
    }
}

fn message(item: &Fields) -> Result<Message, ApiError> {
    let role = item.required_text("role")?;
    let role = Role::parse(role).filter(|role| *role != Role::Tool).ok_or_else(|| {
        let path = item.path("role");
        let message = format!("{path} is user, assistant, system or developer, not `{role}`");
        ApiError::field(path, message)
    })?;
    let content = texts(item, "content")?.ok_or_else(|| item.missing("content"))?;
    Ok(Message { content: Some(content), ..Message::text(role, "") })
}

/// A text, or parts of text.
fn texts(item: &Fields, name: &str) -> Result<Option<Content>, ApiError> {
    let path = item.path(name);
    match item.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(Content::Text(text.clone()))),
        Some(Value::Array(parts)) => {
            let part = |(i, part)| {
                let part = Fields::at(part, format!("{path}[{i}]"))?;
                let name = match part.required_text("type")? {
                    "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                        "text"
                    }
                    "refusal" => "refusal",
                    kind => {
                        let path = part.path("type");
                        let message = format!("{path} is `{kind}`, but this model reads only text");
                        return Err(ApiError::refused("unsupported_content", path, message));
                    }
                };
                part.text(name)?.map(str::to_owned).ok_or_else(|| part.missing(name))
            };
            Ok(Some(Content::Parts(parts.iter().enumerate().map(part).collect::<Result<_, _>>()?)))
        }
        Some(other) => Err(wrong_type(path, "a string or a list of parts", other)),
    }
}

/// What an item of thoughts holds in the clear.
fn thoughts(item: &Fields) -> Result<Vec<String>, ApiError> {
    let content = match texts(item, "content")? {
        Some(Content::Parts(parts)) if parts.is_empty() => None,
        content => content,
    };
    let shown = content.or(texts(item, "summary")?);
    Ok(shown.map(Content::into_text).filter(|text| !text.is_empty()).into_iter().collect())
}

fn call(
    item: &Fields,
    arguments: &str,
    wrap: impl FnOnce(&str) -> Value,
) -> Result<ToolCall, ApiError> {
    let name = item.required_text("name")?;
    let arguments = item.text(arguments)?.ok_or_else(|| item.missing(arguments))?;
    Ok(ToolCall {
        id: Some(item.required_text("call_id")?.to_owned()),
        name: flat_name(item.text("namespace")?, name),
        arguments: wrap(arguments),
    })
}

fn output(item: &Fields) -> Result<Message, ApiError> {
    let id = item.required_text("call_id")?.to_owned();
    let content = texts(item, "output")?.ok_or_else(|| item.missing("output"))?;
    let (content, tool_call_id) = (Some(content), Some(id));
    Ok(Message { content, tool_call_id, ..Message::text(Role::Tool, "") })
}
