//! The shape of a tokenizer.json. Its large parts borrow from the vocabulary, so that a quarter of a
//! million tokens are written without being copied first.

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::vocab::Vocab;

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
    pub(super) model: Model<'a>,
}

/// A token that is found in the text as it stands.
#[derive(Serialize)]
pub(super) struct Added<'a> {
    id: usize,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl<'a> Added<'a> {
    pub(super) fn new(id: usize, content: &'a str, special: bool, rstrip: bool) -> Added<'a> {
        Added { id, content, single_word: false, lstrip: false, rstrip, normalized: false, special }
    }
}

#[derive(Serialize)]
#[serde(tag = "type")]
pub(super) enum Model<'a> {
    #[serde(rename = "BPE")]
    Bpe {
        dropout: Option<f32>,
        unk_token: Option<&'a str>,
        continuing_subword_prefix: Option<&'a str>,
        end_of_word_suffix: Option<&'a str>,
        fuse_unk: bool,
        byte_fallback: bool,
        ignore_merges: bool,
        vocab: Ids<'a>,
        merges: Vec<(&'a str, &'a str)>,
    },
    WordPiece {
        unk_token: &'a str,
        continuing_subword_prefix: &'a str,
        max_input_chars_per_word: usize,
        #[serde(serialize_with = "pairs")]
        vocab: Vec<(String, usize)>,
    },
}

/// A vocabulary as a map from text to id.
pub(super) struct Ids<'a>(pub(super) &'a Vocab<'a>);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.tokens.iter().zip(0usize..))
    }
}

fn pairs<S: Serializer>(pairs: &[(String, usize)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(token, id)| (token, id)))
}
