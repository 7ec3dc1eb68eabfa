//! Which tokens end an answer: the union of everything a model's files say. What the engine does
//! when one comes is not decided here.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Tokenizer;

/// End-of-turn marks of known chat formats. They count only where the vocabulary has them as
/// special tokens and the chat template writes them.
const END_OF_TURN: [&str; 10] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "</s>",
];

/// Marks that end a message but not an answer: after them the model goes on by itself.
const GOES_ON: [&str; 1] = ["<|end|>"];

/// Where ends of answers are declared.
#[derive(Clone, Copy, Debug, Default)]
pub struct EosSources<'a> {
    /// config.json: `eos_token_id` is a number, a list or null, maybe under `text_config`.
    pub config: Option<&'a Value>,
    /// generation_config.json: the same field.
    pub generation_config: Option<&'a Value>,
    /// Source of the chat template.
    pub template: Option<&'a str>,
}

/// All ids that end an answer, ascending, without doubles; only ids the vocabulary has.
pub fn eos_ids(tokenizer: &Tokenizer, sources: EosSources<'_>) -> Vec<u32> {
    let mut ids = BTreeSet::new();
    for config in [sources.config, sources.generation_config].into_iter().flatten() {
        ids.extend(declared(config));
        ids.extend(config.get("text_config").into_iter().flat_map(declared));
    }
    ids.extend(tokenizer.eos());
    let template = sources.template.unwrap_or_default();
    ids.extend(END_OF_TURN.iter().filter_map(|mark| end_of_turn(tokenizer, template, mark)));
    ids.retain(|&id| (id as usize) < tokenizer.vocab_size());
    ids.into_iter().collect()
}

fn declared(config: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match config.get("eos_token_id") {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The id of `mark` if this template ends turns with it. A channel format writes the mark after
/// each of its messages, of which one answer has several.
fn end_of_turn(tokenizer: &Tokenizer, template: &str, mark: &str) -> Option<u32> {
    let id = tokenizer.id_of(mark).filter(|&id| tokenizer.is_special(id))?;
    let in_channels = GOES_ON.contains(&mark) && template.contains("<|channel|>");
    (template.contains(mark) && !in_channels).then_some(id)
}
