//! WordPiece, the tokenizer of BERT: words at spaces and punctuation, then the longest tokens that
//! make them up.
//!
//! GGUF marks the tokens that begin a word with `▁` and leaves the others plain; tokenizer.json marks
//! the others with `##`.

use serde_json::{Map, json};

use super::{
    Frame, Parts,
    vocab::{Role, Specials, Vocab},
};
use crate::{Error, gguf::metadata::Metadata};

const UNKNOWN: &str = "[UNK]";
/// Longer words are unknown, by BERT's own rule.
const MAX_WORD: usize = 100;

pub(super) fn build(
    metadata: &Metadata,
    vocab: &Vocab,
    specials: &Specials,
) -> Result<Parts, Error> {
    let lowercase = metadata.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let strip_accents =
        metadata.bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
    let mut ids = Map::new();
    for (id, &role) in vocab.roles.iter().enumerate() {
        let token = vocab.text(id)?;
        let is_text = role == Role::Normal && !(token.starts_with('[') && token.ends_with(']'));
        let token = match token.strip_prefix('▁').filter(|word| !word.is_empty()) {
            _ if !is_text => token.to_string(),
            Some(word) => word.to_owned(),
            None => format!("##{token}"),
        };
        if ids.contains_key(&token) {
            return Err(vocab.bad(format!("token {id} becomes {token:?}, which is there already")));
        }
        ids.insert(token, id.into());
    }
    let unknown = match specials.unk {
        Some(id) => vocab.text(id)?,
        None => UNKNOWN.into(),
    };
    Ok(Parts {
        normalizer: json!({
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
        }),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        model: json!({
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_WORD,
            "vocab": ids,
        }),
        joining: None,
        frame: Frame::ClsSep,
    })
}
