//! SentencePiece BPE: spaces become `▁`, and the pair whose joint token scores highest is joined
//! first, or, with Gemma 4, the one whose merge ranks first.
//!
//! tokenizer.json knows ranked merges rather than scores; [`super::vocabulary`] lists them where one is
//! to be written. A unigram model would be another algorithm.

use serde_json::{Value as Json, json};

use super::{
    Frame, Parts,
    vocab::{Role, Specials, Vocab},
    vocabulary::Joining,
};
use crate::{Error, gguf::metadata::Metadata};

pub(super) fn build(
    metadata: &Metadata,
    vocab: &Vocab,
    specials: &Specials,
    warnings: &mut Vec<String>,
) -> Result<Parts, Error> {
    let prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    if metadata.bool("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false) {
        warnings.push(
            "tokenizer.ggml.remove_extra_whitespaces is ignored, as llama.cpp ignores it".into(),
        );
    }
    let start = if prefix { Start::Space } else { Start::Bare };
    parts(start, Joining::Scored(best_first(metadata, vocab)?), (vocab, specials))
}

/// The same pieces, joined by the rank of merges and with nothing put before them: Gemma 4.
pub(super) fn ranked(
    metadata: &Metadata,
    vocab: &Vocab,
    specials: &Specials,
) -> Result<Parts, Error> {
    const MERGES: &str = "tokenizer.ggml.merges";
    let merges = metadata.texts(MERGES)?;
    let merges = merges.ok_or_else(|| metadata.missing(MERGES, "an array of strings"))?;
    let parts = parts(Start::Bare, Joining::Ranked(merges.clone()), (vocab, specials))?;
    // Early files say that there is none, which llama.cpp does not believe.
    Ok(Parts { frame: Frame::AlwaysBos, ..parts })
}

/// What stands before a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Nothing.
    Bare,
    /// A space, which is not part of what comes back.
    Space,
}

fn parts(
    start: Start,
    joining: Joining,
    (vocab, specials): (&Vocab, &Specials),
) -> Result<Parts, Error> {
    let mut normalizers = Vec::new();
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if start == Start::Space {
        normalizers.push(json!({"type": "Prepend", "prepend": "▁"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    normalizers.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}));
    Ok(Parts {
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: Json::Null,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: json!({
            "type": "BPE",
            "dropout": null,
            "unk_token": specials.unk.map(|id| vocab.text(id)).transpose()?,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": true,
            "ignore_merges": false,
        }),
        joining: Some(joining),
        frame: Frame::Bos,
    })
}

/// Text tokens, best score first; of equal scores, the lower id.
fn best_first(metadata: &Metadata, vocab: &Vocab) -> Result<Vec<u32>, Error> {
    const KEY: &str = "tokenizer.ggml.scores";
    let n_tokens = vocab.tokens.len();
    let expected = format!("one score for each of {n_tokens} tokens");
    let scores = metadata.numbers(KEY)?.ok_or_else(|| metadata.missing(KEY, &expected))?;
    if scores.len < n_tokens {
        return Err(metadata.bad(KEY, &expected, scores.len.to_string()));
    }
    let scores: Option<Vec<f32>> = scores.numbers().map(|score| score.as_f32()).collect();
    let scores = scores.ok_or_else(|| metadata.missing(KEY, &expected))?;
    let ids = (0..).zip(&vocab.roles).filter(|&(_, &role)| role == Role::Normal).map(|(id, _)| id);
    let mut order: Vec<u32> = ids.collect();
    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    Ok(order)
}
