//! Brings the conversations that clients really send into the form a template takes. Every API of
//! the server comes through here; none repairs messages by itself.

use serde_json::{Map, Value};

use crate::message::{Content, Message, Role};
use crate::template::{DeveloperRole, SystemPlace, Template};
use crate::{Error, ToolCall};

/// Between texts that are merged into one message.
const BETWEEN: &str = "\n\n";

/// Normalises a conversation for this template with these tools.
///
/// - Content becomes a string: null and absent are empty, parts are joined.
/// - Arguments of tool calls become objects: strings are parsed, empty ones are `{}`.
/// - `developer` becomes `system` where the template does not know it.
/// - Leading system messages become one; late ones stay in place where the template prints them,
///   else they join the first. Where it knows no system messages, the first user message gets them.
pub fn normalise(
    mut messages: Vec<Message>,
    tools: &[Value],
    template: &Template,
) -> Result<Vec<Message>, Error> {
    let traits = template.traits(tools);
    for (at, message) in messages.iter_mut().enumerate() {
        let content = message.content.take().map(Content::into_text);
        message.content = Some(Content::Text(content.unwrap_or_default()));
        for (nth, call) in message.tool_calls.iter_mut().enumerate() {
            parse_arguments(call, at, nth)?;
        }
        if message.role == Role::Developer && traits.developer == DeveloperRole::IsSystem {
            message.role = Role::System;
        }
    }
    Ok(match traits.system {
        SystemPlace::Anywhere => merge_system(messages, Late::InPlace),
        SystemPlace::First => merge_system(messages, Late::IntoFirst),
        SystemPlace::Nowhere => into_first_user(merge_system(messages, Late::IntoFirst)),
    })
}

fn parse_arguments(call: &mut ToolCall, message: usize, nth: usize) -> Result<(), Error> {
    let wrong = |problem: String| {
        let path = format!("messages[{message}].tool_calls[{nth}].function.arguments");
        Error::Message { path, problem }
    };
    let parsed = match &call.arguments {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => serde_json::from_str(text)
            .map_err(|error| wrong(format!("not valid JSON ({error}); send a JSON object")))?,
        other => other.clone(),
    };
    if !parsed.is_object() {
        return Err(wrong("expected a JSON object, or a string that holds one".into()));
    }
    call.arguments = parsed;
    Ok(())
}

/// What becomes of system messages that are not at the start.
#[derive(Clone, Copy, PartialEq)]
enum Late {
    InPlace,
    IntoFirst,
}

fn is_system(message: &Message) -> bool {
    matches!(message.role, Role::System | Role::Developer)
}

fn merge_system(messages: Vec<Message>, late: Late) -> Vec<Message> {
    let n_leading = messages.iter().take_while(|message| is_system(message)).count();
    let mut first: Option<Message> = None;
    let mut rest = Vec::new();
    for (at, message) in messages.into_iter().enumerate() {
        let merges = is_system(&message) && (at < n_leading || late == Late::IntoFirst);
        match (&mut first, merges) {
            (_, false) => rest.push(message),
            (None, true) => first = Some(message),
            (Some(first), true) => join(first, message),
        }
    }
    first.into_iter().chain(rest).collect()
}

/// Appends the text of `other`.
fn join(message: &mut Message, other: Message) {
    let text = |content: Option<Content>| content.map(Content::into_text).unwrap_or_default();
    let texts = [text(message.content.take()), text(other.content)];
    let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|t| !t.is_empty()).collect();
    message.content = Some(Content::Text(texts.join(BETWEEN)));
}

/// Moves the first message, if it is a system message, into the first of the user.
fn into_first_user(mut messages: Vec<Message>) -> Vec<Message> {
    if !messages.first().is_some_and(is_system) {
        return messages;
    }
    let system = messages.remove(0);
    match messages.iter_mut().find(|message| message.role == Role::User) {
        Some(user) => {
            let text = std::mem::replace(&mut user.content, system.content);
            join(user, Message { content: text, ..user.clone() });
        }
        None => messages.insert(0, Message { role: Role::User, ..system }),
    }
    messages
}
