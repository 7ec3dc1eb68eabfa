//! Fields that chat and completions share in OpenAI's API, beside those that all dialects do.

use crate::describe::{Field, Shape, honoured, ignored, refused};
use crate::endpoint::Delivery;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::sampling;

/// Their descriptions.
pub(super) const BOTH: &[Field] = &[
    honoured("max_tokens", Shape::Whole, "from 1; the older name of `max_completion_tokens`"),
    honoured("max_completion_tokens", Shape::Whole, "from 1"),
    honoured("n", Shape::Whole, "1 to 16; answer i is sampled with `seed + i`"),
    honoured("stop", Shape::TextOrList, "up to 16 strings of 1 to 1024 bytes"),
    honoured("stream_options", Shape::Object, "`{\"include_usage\": bool}`"),
    honoured("response_format", Shape::Object, "`text`, `json_object` or `json_schema`"),
    honoured("structured_outputs", Shape::Object, "formats as vLLM has them"),
    honoured("guided_json", Shape::TextOrObject, "vLLM's older name for a schema"),
    honoured("guided_regex", Shape::Text, "vLLM's older name for a regular expression"),
    honoured("guided_choice", Shape::List, "vLLM's older name for texts to choose from"),
    honoured("guided_grammar", Shape::Text, "vLLM's older name for a grammar in Lark's notation"),
    honoured("guided_json_object", Shape::Switch, "vLLM's older name for any JSON object"),
    refused("guided_whitespace_pattern", "white space between tokens is bounded already"),
    ignored("user", "says nothing about the answer"),
];

/// `max_completion_tokens`, or its older name.
pub(super) fn max_tokens(body: &Fields) -> Result<Option<usize>, ApiError> {
    let old = sampling::max_tokens(body, "max_tokens")?;
    Ok(sampling::max_tokens(body, "max_completion_tokens")?.or(old))
}

/// How the answer is sent, and whether a stream ends with its usage.
pub(super) fn delivery(body: &Fields) -> Result<(Delivery, StreamUsage), ApiError> {
    let asked = match body.object("stream_options")? {
        Some(options) => options.switch("include_usage")?,
        None => None,
    };
    let usage = match asked {
        Some(true) => StreamUsage::LastChunk,
        _ => StreamUsage::Silent,
    };
    Ok((sampling::delivery(body, Delivery::Whole)?, usage))
}

/// Whether a stream reports its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamUsage {
    /// It does not.
    Silent,
    /// In a chunk of its own, after the last choice ended.
    LastChunk,
}
