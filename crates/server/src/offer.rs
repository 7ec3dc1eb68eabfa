//! `tools`, `tool_choice` and `parallel_tool_calls` in OpenAI's form, which is what templates are
//! written for: what the model may call and what it must. How a call is enforced is not decided here.

use serde_json::Value;

use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::request::{Calls, ToolChoice};

/// Most tools of one request.
pub(crate) const MAX_TOOLS: usize = 512;

/// What a model is offered.
pub(crate) struct Offer {
    /// The tools that the template shall see: checked, as the client wrote them.
    pub(crate) tools: Vec<Value>,
    pub(crate) tool_choice: ToolChoice,
    pub(crate) calls: Calls,
}

/// Reads the three fields.
///
/// # Errors
/// A tool that is none, or a choice that there is not.
pub(crate) fn read(body: &Fields) -> Result<Offer, ApiError> {
    let tools = body.list("tools")?.unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::field("tools", format!("tools may have {MAX_TOOLS} entries")));
    }
    for (i, tool) in tools.iter().enumerate() {
        check_tool(&Fields::at(tool, format!("tools[{i}]"))?)?;
    }
    let calls = match body.switch("parallel_tool_calls")? {
        Some(false) => Calls::AtMostOne,
        _ => Calls::Several,
    };
    let offer = choice(body, tools.to_vec())?;
    Ok(Offer { calls, ..offer })
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

fn name(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}

fn choice(body: &Fields, tools: Vec<Value>) -> Result<Offer, ApiError> {
    let calls = Calls::Several;
    let Some(value) = body.get("tool_choice") else {
        return Ok(Offer { tools, tool_choice: ToolChoice::Auto, calls });
    };
    match value {
        Value::String(word) => match mode(word, "tool_choice")? {
            ToolChoice::Never => {
                Ok(Offer { tools: Vec::new(), tool_choice: ToolChoice::Never, calls })
            }
            tool_choice => of_some(Offer { tools, tool_choice, calls }, "tool_choice"),
        },
        Value::Object(_) => {
            let choice = Fields::at(value, "tool_choice".to_owned())?;
            match choice.required_text("type")? {
                "function" => {
                    let name = named(&choice)?.to_owned();
                    known(&tools, &name, "tool_choice")?;
                    Ok(Offer { tools, tool_choice: ToolChoice::Named(name), calls })
                }
                "allowed_tools" => allowed(&choice, tools),
                other => {
                    let message =
                        format!("tool_choice.type is `function` or `allowed_tools`, not `{other}`");
                    Err(ApiError::field("tool_choice.type", message))
                }
            }
        }
        _ => Err(wrong_type("tool_choice", "a string or an object", value)),
    }
}

fn mode(word: &str, path: &str) -> Result<ToolChoice, ApiError> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::Never),
        "required" => Ok(ToolChoice::Required),
        _ => {
            let message = format!("{path} is auto, none, required or a tool, not `{word}`");
            Err(ApiError::field(path, message))
        }
    }
}

/// `required` needs something to choose from.
fn of_some(offer: Offer, path: &str) -> Result<Offer, ApiError> {
    if offer.tool_choice == ToolChoice::Required && offer.tools.is_empty() {
        let message = format!("{path} `required` needs at least one tool in tools");
        return Err(ApiError::field(path, message));
    }
    Ok(offer)
}

/// The name in `{"type":"function","function":{"name":…}}`, or with the name beside the type.
fn named<'a>(choice: &Fields<'a>) -> Result<&'a str, ApiError> {
    match choice.object("function")? {
        Some(function) => function.required_text("name"),
        None if choice.get("name").is_some() => choice.required_text("name"),
        None => Err(choice.missing("function")),
    }
}

fn known(tools: &[Value], wanted: &str, path: &str) -> Result<(), ApiError> {
    if tools.iter().any(|tool| name(tool) == wanted) {
        return Ok(());
    }
    let names: Vec<&str> = tools.iter().map(name).collect();
    let message = match names.is_empty() {
        true => format!("{path} names `{wanted}`, but tools is empty"),
        false => format!("{path} names `{wanted}`, which tools has not: {}", names.join(", ")),
    };
    Err(ApiError::field(path, message))
}

/// Only some of the tools: the model sees no others.
fn allowed(choice: &Fields, tools: Vec<Value>) -> Result<Offer, ApiError> {
    let missing = || choice.missing("allowed_tools");
    // Beside the type, or in an object of its own.
    let inner = match choice.get("tools") {
        Some(_) => choice.clone(),
        None => choice.object("allowed_tools")?.ok_or_else(missing)?,
    };
    let tool_choice = mode(inner.text("mode")?.unwrap_or("auto"), &inner.path("mode"))?;
    let list = inner.list("tools")?.ok_or_else(|| inner.missing("tools"))?;
    let mut names = Vec::with_capacity(list.len());
    for (i, entry) in list.iter().enumerate() {
        let path = format!("{}[{i}]", inner.path("tools"));
        let name = named(&Fields::at(entry, path.clone())?)?;
        known(&tools, name, &path)?;
        names.push(name);
    }
    let tools = tools.into_iter().filter(|tool| names.contains(&name(tool))).collect();
    of_some(Offer { tools, tool_choice, calls: Calls::Several }, &inner.path("tools"))
}
