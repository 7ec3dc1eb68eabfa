//! Whether, how hard and how long the model shall think: one wish, for which clients have many fields.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::Fields;

/// Most tokens that a budget may name.
const MAX_BUDGET: usize = u32::MAX as usize;

/// Variables for the template: `chat_template_kwargs`, and the fields that are shorter names of some
/// of them. The more explicit one wins. What nobody asks for stays the template's own default.
pub(super) fn template_kwargs(body: &Fields) -> Result<Map<String, Value>, ApiError> {
    let reasoning = body.object("reasoning")?;
    let nested = reasoning.as_ref().map(|fields| fields.text("effort")).transpose()?.flatten();
    let mut kwargs = Map::new();
    if let Some(effort) = body.text("reasoning_effort")?.or(nested) {
        kwargs.insert("reasoning_effort".to_owned(), effort.into());
        if effort == "none" {
            kwargs.insert("enable_thinking".to_owned(), false.into());
        }
    }
    if let Some(on) = reasoning.map(|fields| fields.switch("enabled")).transpose()?.flatten() {
        kwargs.insert("enable_thinking".to_owned(), on.into());
    }
    if let Some(thinking) = body.object("thinking")? {
        let on = match thinking.required_text("type")? {
            "disabled" => false,
            "enabled" => true,
            kind => {
                let message = format!("thinking.type is `enabled` or `disabled`, not `{kind}`");
                return Err(ApiError::field("thinking.type", message));
            }
        };
        kwargs.insert("enable_thinking".to_owned(), on.into());
    }
    if let Some(on) = body.switch("enable_thinking")? {
        kwargs.insert("enable_thinking".to_owned(), on.into());
    }
    if let Some(more) = body.object("chat_template_kwargs")? {
        kwargs.extend(more.map().iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Ok(kwargs)
}

/// `thinking_budget`, `thinking.budget_tokens` or `reasoning.max_tokens`.
pub(super) fn budget(body: &Fields) -> Result<Option<usize>, ApiError> {
    if let Some(tokens) = body.count("thinking_budget", 0..=MAX_BUDGET)? {
        return Ok(Some(tokens));
    }
    for (object, field) in [("thinking", "budget_tokens"), ("reasoning", "max_tokens")] {
        let Some(fields) = body.object(object)? else { continue };
        if let Some(tokens) = fields.count(field, 0..=MAX_BUDGET)? {
            return Ok(Some(tokens));
        }
    }
    Ok(None)
}
