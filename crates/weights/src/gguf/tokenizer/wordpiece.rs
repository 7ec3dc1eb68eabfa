//! WordPiece, the tokenizer of BERT: words at spaces and punctuation, then the longest tokens that
//! make them up.
//!
//! GGUF marks the tokens that begin a word with `▁` and leaves the others plain; tokenizer.json marks
//! the others with `##`.

use serde_json::json;

use super::{
    Frame, Parts,
    json::Model,
    vocab::{Role, Specials, Vocab},
};
use crate::{Error, gguf::metadata::Metadata};

const UNKNOWN: &str = "[UNK]";
/// Longer words are unknown, by BERT's own rule.
const MAX_WORD: usize = 100;

pub(super) fn build<'a>(
    metadata: &'a Metadata,
    vocab: &'a Vocab<'a>,
    specials: &Specials,
) -> Result<Parts<'a>, Error> {
    let lowercase = metadata.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let strip_accents =
        metadata.bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
    let mut tokens = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (id, (token, &role)) in vocab.tokens.iter().zip(&vocab.roles).enumerate() {
        let is_text = role == Role::Normal && !(token.starts_with('[') && token.ends_with(']'));
        let token = match token.strip_prefix('▁').filter(|word| !word.is_empty()) {
            _ if !is_text => token.to_string(),
            Some(word) => word.to_owned(),
            None => format!("##{token}"),
        };
        if !seen.insert(token.clone()) {
            return Err(vocab.bad(format!("token {id} becomes {token:?}, which is there already")));
        }
        tokens.push((token, id));
    }
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
        model: Model::WordPiece {
            unk_token: specials.unk.map_or(UNKNOWN, |id| vocab.tokens[id].as_ref()),
            continuing_subword_prefix: "##",
            max_input_chars_per_word: MAX_WORD,
            vocab: tokens,
        },
        frame: Frame::ClsSep,
    })
}
