//! The shape of a tokenizer.json. The vocabulary is not here: see [`super::vocabulary`].

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value as Json;

#[derive(Serialize)]
pub(super) struct TokenizerJson<'a> {
    pub(super) version: &'static str,
    pub(super) truncation: Option<()>,
    pub(super) padding: Option<()>,
    pub(super) added_tokens: Vec<Added<'a>>,
    pub(super) normalizer: Json,
    pub(super) pre_tokenizer: Json,
    pub(super) post_processor: Json,
    pub(super) decoder: Json,
    pub(super) model: Json,
}

/// A token that is found in the text as it stands.
#[derive(Serialize)]
pub(super) struct Added<'a> {
    id: usize,
    content: Cow<'a, str>,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl<'a> Added<'a> {
    pub(super) fn new(id: usize, content: Cow<'a, str>, special: bool, rstrip: bool) -> Added<'a> {
        Added { id, content, single_word: false, lstrip: false, rstrip, normalized: false, special }
    }
}
