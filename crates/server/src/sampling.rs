//! Fields that dialects share: sampling, lengths, stops, streaming. Where a dialect has another name
//! for one of them, it says so; the bounds are the same for all.

use std::ops::Bound;
use std::time::Duration;

use engine::TokenId;

use crate::describe::{Field, Shape, honoured};
use crate::endpoint::Delivery;
use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::pool::Stay;
use crate::request::{ChatRequest, EndOfText, Format, Input, Overrides};

/// Most answers to one prompt.
const MAX_N: usize = 16;
/// Most stop strings, and most bytes of one.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
/// Longest time an answer may be given: a day.
const MAX_TIMEOUT: f64 = 86_400.0;
/// Most entries of `logit_bias`, as in OpenAI's own API.
const MAX_BIASES: usize = 1024;

/// What every dialect knows under the same names. Those that its own API does not have are
/// extensions there.
pub(crate) const SHARED: &[Field] = &[
    honoured("model", Shape::Text, "id or alias of a model; default: `default`"),
    honoured("temperature", Shape::Number, "0 to 2; 0 takes the likeliest token"),
    honoured("top_p", Shape::Number, "above 0, to 1"),
    honoured("top_k", Shape::Whole, "from 0; -1 and 0 are off"),
    honoured("min_p", Shape::Number, "0 to 1"),
    honoured("xtc_probability", Shape::Number, "0 to 1"),
    honoured("xtc_threshold", Shape::Number, "0 to 0.5"),
    honoured("repetition_penalty", Shape::Number, "above 0, to 2"),
    honoured("presence_penalty", Shape::Number, "-2 to 2"),
    honoured("frequency_penalty", Shape::Number, "-2 to 2"),
    honoured("logit_bias", Shape::Object, "token ids to -100…100"),
    honoured("seed", Shape::Whole, "the same seed gives the same answer; -1 draws one"),
    honoured("ignore_eos", Shape::Switch, "end-of-text tokens no longer end the answer"),
    honoured("priority", Shape::Whole, "lower is served earlier"),
    honoured("timeout", Shape::Number, "seconds that the whole answer may take, to 86,400"),
    honoured("stream", Shape::Switch, "whether the answer comes piece by piece"),
];

/// A request with all that dialects share, for one answer of any length.
pub(crate) fn request(body: &Fields, input: Input) -> Result<ChatRequest, ApiError> {
    request_with(body, body, input)
}

/// The same where sampling settings have a place of their own.
pub(crate) fn request_with(
    body: &Fields,
    settings: &Fields,
    input: Input,
) -> Result<ChatRequest, ApiError> {
    Ok(ChatRequest {
        model: model(body)?,
        input,
        n: 1,
        max_tokens: None,
        sampling: overrides(settings)?,
        seed: seed(settings)?,
        stop: Vec::new(),
        end: end_of_text(settings)?,
        priority: priority(body)?,
        timeout: timeout(body)?,
        stay: Stay::Usual,
        logprobs: None,
        format: Format::Free,
        format_path: "",
    })
}

/// Sampling settings.
pub(crate) fn overrides(body: &Fields) -> Result<Overrides, ApiError> {
    let above_zero = |most| (Bound::Excluded(0.0), Bound::Included(most));
    // -1 is how several clients say "off".
    let top_k = body.integer("top_k", -1..=1_000_000)?;
    Ok(Overrides {
        temperature: body.number("temperature", 0.0..=2.0)?,
        top_p: body.number("top_p", above_zero(1.0))?,
        top_k: top_k.map(|k| usize::try_from(k).unwrap_or(0)),
        min_p: body.number("min_p", 0.0..=1.0)?,
        xtc_probability: body.number("xtc_probability", 0.0..=1.0)?,
        xtc_threshold: body.number("xtc_threshold", 0.0..=0.5)?,
        repetition_penalty: body.number("repetition_penalty", above_zero(2.0))?,
        presence_penalty: body.number("presence_penalty", -2.0..=2.0)?,
        frequency_penalty: body.number("frequency_penalty", -2.0..=2.0)?,
        logit_bias: logit_bias(body)?,
    })
}

fn logit_bias(body: &Fields) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(biases) = body.object("logit_bias")? else { return Ok(Vec::new()) };
    if biases.map().len() > MAX_BIASES {
        let message = format!("logit_bias may have {MAX_BIASES} entries");
        return Err(ApiError::field("logit_bias", message));
    }
    let mut list = Vec::with_capacity(biases.map().len());
    for key in biases.map().keys() {
        let Ok(token) = key.parse() else {
            let message = format!("logit_bias maps token ids to numbers; `{key}` is no token id");
            return Err(ApiError::field("logit_bias", message));
        };
        let bias = biases.number(key, -100.0..=100.0)?;
        list.push((token, bias.ok_or_else(|| biases.missing(key))?));
    }
    Ok(list)
}

/// `seed`. Any whole number; -1 asks for a random one, as in other servers.
pub(crate) fn seed(body: &Fields) -> Result<Option<u64>, ApiError> {
    let seed = body.integer("seed", i64::MIN..=i64::MAX)?;
    Ok(seed.filter(|&seed| seed != -1).map(i64::cast_unsigned))
}

/// Stop strings, under the dialect's name for them.
pub(crate) fn stops(body: &Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let stops = body.texts(name, MAX_STOPS)?;
    if stops.iter().any(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES) {
        let message = format!("a stop string has from 1 to {MAX_STOP_BYTES} bytes");
        return Err(ApiError::field(body.path(name), message));
    }
    Ok(stops)
}

/// `n`.
pub(crate) fn n(body: &Fields) -> Result<usize, ApiError> {
    Ok(body.count("n", 1..=MAX_N)?.unwrap_or(1))
}

/// The most tokens of an answer, under the dialect's name for it.
pub(crate) fn max_tokens(body: &Fields, name: &str) -> Result<Option<usize>, ApiError> {
    body.count(name, 1..=u32::MAX as usize)
}

/// `ignore_eos`.
pub(crate) fn end_of_text(body: &Fields) -> Result<EndOfText, ApiError> {
    Ok(match body.switch("ignore_eos")? {
        Some(true) => EndOfText::Ignored,
        _ => EndOfText::Stops,
    })
}

/// `priority`, as in vLLM: lower is served earlier.
pub(crate) fn priority(body: &Fields) -> Result<i32, ApiError> {
    let priority = body.integer("priority", i32::MIN.into()..=i32::MAX.into())?;
    Ok(priority.and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0))
}

/// `timeout`: seconds that the whole answer may take.
pub(crate) fn timeout(body: &Fields) -> Result<Option<Duration>, ApiError> {
    let range = (Bound::Excluded(0.0), Bound::Included(MAX_TIMEOUT));
    Ok(body.number("timeout", range)?.map(Duration::from_secs_f32))
}

/// `stream`; absent means what the dialect's API says.
pub(crate) fn delivery(body: &Fields, absent: Delivery) -> Result<Delivery, ApiError> {
    Ok(match body.switch("stream")? {
        Some(true) => Delivery::Stream,
        Some(false) => Delivery::Whole,
        None => absent,
    })
}

/// `model`; absent means the default one.
pub(crate) fn model(body: &Fields) -> Result<String, ApiError> {
    match body.get("model") {
        None => Ok("default".to_owned()),
        Some(value) => match value.as_str() {
            Some("") => Err(ApiError::field("model", "model is empty; `default` always works")),
            Some(name) => Ok(name.to_owned()),
            None => Err(wrong_type("model", "a string", value)),
        },
    }
}
