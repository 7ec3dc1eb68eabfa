//! Brings the conversations that clients really send into the form a template takes. Every API of
//! the server comes through here; none repairs messages by itself.

use serde_json::{Map, Value};

use crate::message::{Content, Message, Role};
use crate::template::{DeveloperRole, SystemPlace, Template};
use crate::{Error, ToolCall, digits};

/// Between texts that are merged into one message.
const BETWEEN: &str = "\n\n";

/// What one agent writes at the top of its first system text: a checksum that differs from request
/// to request, so that no two prompts would begin alike.
const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// Normalises a conversation for this template with these tools.
///
/// - Content becomes a string: null and absent are empty, parts are joined.
/// - Billing lines that lead a system text are left out.
/// - Arguments of tool calls become objects: strings are parsed, empty ones are `{}`.
///   Whole numbers keep their digits.
/// - `developer` becomes `system` where the template does not know it.
/// - Leading system messages become one; where the template knows no system messages, the first
///   user message gets them. Late ones stay in place where the template prints them, else they
///   become part of the user's turn at their place: moved to the front they would change the
///   beginning of the prompt, and with it everything that was computed for earlier turns.
pub fn normalise(
    mut messages: Vec<Message>,
    tools: &[Value],
    template: &Template,
) -> Result<Vec<Message>, Error> {
    let traits = template.traits(tools);
    for (at, message) in messages.iter_mut().enumerate() {
        let mut content = message.content.take();
        if is_system(message) {
            content = content.map(without_billing);
        }
        let text = content.map(Content::into_text).unwrap_or_default();
        message.content = Some(Content::Text(text));
        for (nth, call) in message.tool_calls.iter_mut().enumerate() {
            parse_arguments(call, at, nth)?;
        }
        if message.role == Role::Developer && traits.developer == DeveloperRole::IsSystem {
            message.role = Role::System;
        }
    }
    let messages = merge_leading(messages);
    Ok(match traits.system {
        SystemPlace::Anywhere => messages,
        SystemPlace::First => fold_late(messages),
        SystemPlace::Nowhere => into_first_user(fold_late(messages)),
    })
}

/// A system text without its leading billing lines; a part that held nothing else is gone.
fn without_billing(content: Content) -> Content {
    let strip = |text: String| {
        let mut rest = text.as_str();
        while rest.starts_with(BILLING_LINE) {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        }
        (rest.len() < text.len()).then(|| rest.to_owned()).ok_or(text)
    };
    match content {
        Content::Text(text) => Content::Text(strip(text).unwrap_or_else(|same| same)),
        Content::Parts(parts) => {
            let kept = parts.into_iter().filter_map(|part| match strip(part) {
                Ok(rest) => (!rest.is_empty()).then_some(rest),
                Err(same) => Some(same),
            });
            Content::Parts(kept.collect())
        }
    }
}

fn parse_arguments(call: &mut ToolCall, message: usize, nth: usize) -> Result<(), Error> {
    let wrong = |problem: String| {
        let path = format!("messages[{message}].tool_calls[{nth}].function.arguments");
        Error::Message { path, problem }
    };
    let parsed = match &call.arguments {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => digits::read(text)
            .map_err(|error| wrong(format!("not valid JSON ({error}); send a JSON object")))?,
        other => other.clone(),
    };
    if digits::as_object(&parsed).is_none() {
        return Err(wrong("expected a JSON object, or a string that holds one".into()));
    }
    call.arguments = parsed;
    Ok(())
}

fn is_system(message: &Message) -> bool {
    matches!(message.role, Role::System | Role::Developer)
}

/// Makes one message of the system messages at the start.
fn merge_leading(mut messages: Vec<Message>) -> Vec<Message> {
    let n_leading = messages.iter().take_while(|message| is_system(message)).count();
    let rest = messages.split_off(n_leading);
    let first = messages.into_iter().reduce(|mut first, next| {
        join(&mut first, next);
        first
    });
    first.into_iter().chain(rest).collect()
}

/// Makes system messages after the first message part of the user's turn at their place: of the
/// message before them if it is the user's, else of the one after them, else one of their own.
/// What becomes of a message depends on nothing that comes after the next one, so that a
/// conversation that goes on begins with the same prompt.
fn fold_late(messages: Vec<Message>) -> Vec<Message> {
    let mut folded: Vec<Message> = Vec::with_capacity(messages.len());
    // The last message is made of system messages alone.
    let mut of_system = false;
    for (at, message) in messages.into_iter().enumerate() {
        let late = at > 0 && is_system(&message);
        let user = message.role == Role::User;
        match folded.last_mut().filter(|last| last.role == Role::User) {
            Some(last) if late => join(last, message),
            Some(last) if of_system && user => {
                last.name = message.name.clone();
                join(last, message);
                of_system = false;
            }
            _ => {
                let role = if late { Role::User } else { message.role };
                folded.push(Message { role, ..message });
                of_system = late;
            }
        }
    }
    folded
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
