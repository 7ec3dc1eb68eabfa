//! Messages of a conversation in the shape OpenAI's API made common. No wire format: the dialects
//! of the server build these, whatever their own JSON looks like.

use serde_json::{Map, Value, json};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Standing instructions.
    System,
    /// What newer clients call the system role.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// The role of this name; `function` is the old name of `tool`.
    pub fn parse(name: &str) -> Option<Role> {
        Some(match name {
            "system" => Role::System,
            "developer" => Role::Developer,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" | "function" => Role::Tool,
            _ => return None,
        })
    }

    /// The name templates compare with.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::Developer => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// Text of a message: one string, or the text parts of a list of parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// One string.
    Text(String),
    /// Several text parts; [`crate::normalise`] joins them with a newline.
    Parts(Vec<String>),
}

impl Content {
    /// The whole text, parts joined with a newline.
    pub fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => parts.join("\n"),
        }
    }
}

/// A call the model made earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Id that the tool's answer refers to.
    pub id: Option<String>,
    /// Name of the function.
    pub name: String,
    /// As it came: a string of JSON, an object or null. An object after [`crate::normalise`].
    pub arguments: Value,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Text; absent where a client sent null or nothing, present after [`crate::normalise`].
    pub content: Option<Content>,
    /// Calls of an assistant message.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool message answers.
    pub tool_call_id: Option<String>,
    /// Name of the speaker or of the tool.
    pub name: Option<String>,
    /// What the model thought before this answer.
    pub reasoning_content: Option<String>,
}

impl Message {
    /// A message of plain text.
    pub fn text(role: Role, text: impl Into<String>) -> Message {
        Message {
            role,
            content: Some(Content::Text(text.into())),
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            reasoning_content: None,
        }
    }

    /// The dict a template sees. Absent fields stay absent: templates test with `is defined`.
    pub(crate) fn to_json(&self, shapes: Shapes) -> Value {
        let mut dict = Map::new();
        dict.insert("role".into(), self.role.name().into());
        let text = self.content.clone().map(Content::into_text).unwrap_or_default();
        let content = match shapes.content {
            ContentShape::Text => Value::String(text),
            ContentShape::Parts => json!([{ "type": "text", "text": text }]),
        };
        dict.insert("content".into(), content);
        if let Some(name) = &self.name {
            dict.insert("name".into(), name.as_str().into());
        }
        if let Some(reasoning) = self.reasoning_content.as_ref().filter(|_| self.may_reason(shapes))
        {
            dict.insert(shapes.reasoning.key.into(), reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| call.to_json(shapes.arguments));
            dict.insert("tool_calls".into(), calls.collect());
        }
        if let Some(id) = &self.tool_call_id {
            dict.insert("tool_call_id".into(), id.as_str().into());
        }
        Value::Object(dict)
    }
}

impl Message {
    /// Whether a template with these shapes takes what was thought before this message.
    fn may_reason(&self, shapes: Shapes) -> bool {
        let empty = match &self.content {
            None => true,
            Some(Content::Text(text)) => text.is_empty(),
            Some(Content::Parts(parts)) => parts.iter().all(String::is_empty),
        };
        shapes.reasoning.beside_calls == BesideCalls::Anything
            || self.tool_calls.is_empty()
            || empty
    }
}

impl ToolCall {
    fn to_json(&self, shape: ArgumentShape) -> Value {
        let arguments = match (shape, &self.arguments) {
            (ArgumentShape::Text, Value::Object(_)) => {
                Value::String(crate::template::dumps(&self.arguments))
            }
            (_, arguments) => arguments.clone(),
        };
        let mut dict = Map::new();
        dict.insert("type".into(), "function".into());
        if let Some(id) = &self.id {
            dict.insert("id".into(), id.as_str().into());
        }
        dict.insert("function".into(), json!({ "name": self.name, "arguments": arguments }));
        Value::Object(dict)
    }
}

/// What a template expects where templates differ; found by trying.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shapes {
    pub(crate) content: ContentShape,
    pub(crate) arguments: ArgumentShape,
    pub(crate) reasoning: ReasoningShape,
}

/// How a template takes what was thought before a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReasoningShape {
    /// Its name in the message.
    pub(crate) key: &'static str,
    pub(crate) beside_calls: BesideCalls,
}

/// What may stand in a message with thoughts and calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BesideCalls {
    Anything,
    /// No content: the template would refuse the conversation.
    NoContent,
}

/// Form of a message's content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ContentShape {
    Text,
    /// `[{"type": "text", "text": …}]`, for templates that only walk parts.
    Parts,
}

/// Form of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ArgumentShape {
    Object,
    /// A string of JSON, for templates that concatenate it.
    Text,
}
