//! `messages` in Ollama's form: calls have objects for arguments and no ids, results name their tool.

use serde_json::Value;
use text::{Content, Message, Role, ToolCall};

use crate::error::ApiError;
use crate::fields::Fields;

/// All messages.
pub(super) fn read(body: &Fields) -> Result<Vec<Message>, ApiError> {
    let list = body.list("messages")?.unwrap_or_default();
    let mut ids = Ids::default();
    let read = |(i, value)| message(&Fields::at(value, format!("messages[{i}]"))?, &mut ids);
    list.iter().enumerate().map(read).collect()
}

/// Ids for calls and results, which belong to each other by their order.
#[derive(Default)]
struct Ids {
    made: usize,
    waiting: std::collections::VecDeque<String>,
}

impl Ids {
    fn of_call(&mut self, own: Option<&str>) -> String {
        let id = own.map_or_else(|| format!("call_{}", self.made), str::to_owned);
        self.made += 1;
        self.waiting.push_back(id.clone());
        id
    }

    fn of_result(&mut self, own: Option<&str>) -> Option<String> {
        match own {
            Some(own) => {
                self.waiting.retain(|id| id != own);
                Some(own.to_owned())
            }
            None => self.waiting.pop_front(),
        }
    }
}

fn message(fields: &Fields, ids: &mut Ids) -> Result<Message, ApiError> {
    let role = fields.required_text("role")?;
    let role = Role::parse(role).ok_or_else(|| {
        let path = fields.path("role");
        let message = format!("{path} is system, user, assistant or tool, not `{role}`");
        ApiError::field(path, message)
    })?;
    if fields.list("images")?.is_some_and(|images| !images.is_empty()) {
        fields.refuse("images", "this model reads only text")?;
    }
    let tool_call_id = match role {
        Role::Tool => ids.of_result(fields.text("tool_call_id")?),
        _ => None,
    };
    Ok(Message {
        role,
        content: Some(Content::Text(fields.text("content")?.unwrap_or_default().to_owned())),
        tool_calls: calls(fields, ids)?,
        tool_call_id,
        name: fields.text("tool_name")?.or(fields.text("name")?).map(str::to_owned),
        reasoning_content: fields.text("thinking")?.map(str::to_owned),
    })
}

fn calls(fields: &Fields, ids: &mut Ids) -> Result<Vec<ToolCall>, ApiError> {
    let mut calls = Vec::new();
    let path = fields.path("tool_calls");
    for (i, call) in fields.list("tool_calls")?.unwrap_or_default().iter().enumerate() {
        let call = Fields::at(call, format!("{path}[{i}]"))?;
        let function = call.object("function")?.ok_or_else(|| call.missing("function"))?;
        let arguments = function.object("arguments")?;
        calls.push(ToolCall {
            id: Some(ids.of_call(call.text("id")?)),
            name: function.required_text("name")?.to_owned(),
            arguments: arguments.map_or(Value::Null, |it| Value::Object(it.map().clone())),
        });
    }
    Ok(calls)
}
