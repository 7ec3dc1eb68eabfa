//! `tools` and `tool_choice` in Anthropic's form, turned into what templates and grammars know.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::offer::{MAX_TOOLS, Offer};
use crate::request::{Calls, ToolChoice};

/// Reads both fields.
///
/// # Errors
/// A tool that only Anthropic's own servers have, or a choice that there is not.
pub(super) fn read(body: &Fields) -> Result<Offer, ApiError> {
    let list = body.list("tools")?.unwrap_or_default();
    if list.len() > MAX_TOOLS {
        return Err(ApiError::field("tools", format!("tools may have {MAX_TOOLS} entries")));
    }
    let tool = |(i, tool)| definition(&Fields::at(tool, format!("tools[{i}]"))?);
    let tools: Vec<Value> = list.iter().enumerate().map(tool).collect::<Result<_, _>>()?;
    let Some(choice) = body.object("tool_choice")? else {
        return Ok(Offer { tools, tool_choice: ToolChoice::Auto, calls: Calls::Several });
    };
    let calls = match choice.switch("disable_parallel_tool_use")? {
        Some(true) => Calls::AtMostOne,
        _ => Calls::Several,
    };
    let tool_choice = match choice.required_text("type")? {
        "auto" => ToolChoice::Auto,
        "none" => {
            return Ok(Offer { tools: Vec::new(), tool_choice: ToolChoice::Never, calls });
        }
        "any" if tools.is_empty() => {
            let message = "tool_choice.type `any` needs at least one tool in tools";
            return Err(ApiError::field("tool_choice.type", message));
        }
        "any" => ToolChoice::Required,
        "tool" => ToolChoice::Named(chosen(&choice, &tools)?),
        other => {
            let message = format!("tool_choice.type is auto, any, tool or none, not `{other}`");
            return Err(ApiError::field("tool_choice.type", message));
        }
    };
    Ok(Offer { tools, tool_choice, calls })
}

fn chosen(choice: &Fields, tools: &[Value]) -> Result<String, ApiError> {
    let wanted = choice.required_text("name")?;
    let names: Vec<&str> =
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    if names.contains(&wanted) {
        return Ok(wanted.to_owned());
    }
    let message =
        format!("tool_choice.name is `{wanted}`, which tools has not: {}", names.join(", "));
    Err(ApiError::field("tool_choice.name", message))
}

fn definition(tool: &Fields) -> Result<Value, ApiError> {
    if let Some(kind) = tool.text("type")?.filter(|&kind| kind != "custom") {
        let path = tool.path("type");
        let message = format!(
            "{path} is `{kind}`: tools that Anthropic's servers define are not here; send a tool \
             with an input_schema"
        );
        return Err(ApiError::refused("unsupported_tool", path, message));
    }
    let name = tool.required_text("name")?;
    let description = tool.text("description")?;
    let schema = tool.object("input_schema")?.map(|schema| Value::Object(schema.map().clone()));
    let mut function = json!({"name": name});
    if let Some(description) = description {
        function["description"] = description.into();
    }
    function["parameters"] = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    Ok(json!({"type": "function", "function": function}))
}
