//! Tools as `/v1/responses` has them, turned into the functions that templates know, and back: a
//! custom tool is a function of one text, a namespace a prefix of names. Tools that only OpenAI's
//! servers have are left out, since agents offer them whether anybody has them or not.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::offer::{self, Offer};

/// What the model is offered, and what its calls are called towards the client.
pub(super) struct Told {
    pub(super) offer: Offer,
    pub(super) spellings: Spellings,
}

/// By the name that the model knows.
pub(super) type Spellings = BTreeMap<String, Spelling>;

/// How a client calls one of its tools.
pub(super) struct Spelling {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    /// Takes a text instead of JSON.
    Custom,
}

/// The name of a tool with its namespace.
pub(super) fn flat_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}__{name}"))
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`.
///
/// # Errors
/// A tool that is none, or a choice that there is not.
pub(super) fn read(body: &Fields) -> Result<Told, ApiError> {
    let mut found = Found { functions: Vec::new(), spellings: Spellings::new() };
    for (i, tool) in body.list("tools")?.unwrap_or_default().iter().enumerate() {
        found.add(&Fields::at(tool, format!("tools[{i}]"))?, None)?;
    }
    let Found { functions, spellings } = found;
    let mut plain = json!({"tools": functions});
    if let Some(choice) = body.get("tool_choice") {
        plain["tool_choice"] = plain_choice(choice);
    }
    if let Some(parallel) = body.switch("parallel_tool_calls")? {
        plain["parallel_tool_calls"] = parallel.into();
    }
    Ok(Told { offer: offer::read(&Fields::body(&plain)?)?, spellings })
}

struct Found {
    /// In the form of chats.
    functions: Vec<Value>,
    spellings: Spellings,
}

impl Found {
    fn add(&mut self, tool: &Fields, namespace: Option<&str>) -> Result<(), ApiError> {
        let kind = match tool.required_text("type")? {
            "function" => Kind::Function,
            "custom" => Kind::Custom,
            "namespace" if namespace.is_none() => {
                let name = tool.required_text("name")?;
                for (i, inner) in tool.list("tools")?.unwrap_or_default().iter().enumerate() {
                    let path = format!("{}[{i}]", tool.path("tools"));
                    self.add(&Fields::at(inner, path)?, Some(name))?;
                }
                return Ok(());
            }
            kind => {
                tracing::info!(kind, "a tool that this server has not is left out");
                return Ok(());
            }
        };
        let name = tool.required_text("name")?;
        let flat = flat_name(namespace, name);
        let description = tool.text("description")?;
        let parameters = match kind {
            Kind::Function => tool.object("parameters")?.map(|it| Value::Object(it.map().clone())),
            Kind::Custom => Some(json!({
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"],
            })),
        };
        let mut function = json!({"name": flat});
        if let Some(description) = description {
            function["description"] = description.into();
        }
        function["parameters"] =
            parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        self.functions.push(json!({"type": "function", "function": function}));
        let (namespace, name) = (namespace.map(str::to_owned), name.to_owned());
        self.spellings.insert(flat, Spelling { kind, namespace, name });
        Ok(())
    }
}

/// The choice in the form of chats, where every tool is a function.
fn plain_choice(choice: &Value) -> Value {
    let mut choice = choice.clone();
    if choice["type"] == "custom" {
        choice["type"] = "function".into();
    }
    choice
}
