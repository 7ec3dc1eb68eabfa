//! SentencePiece BPE: spaces become `▁`, and the pair whose joint token scores highest is joined
//! first.
//!
//! tokenizer.json knows ranked merges rather than scores, so every way to make a token out of two
//! others is listed, best score first. A unigram model would be another algorithm.

use serde_json::{Value as Json, json};

use super::{
    Frame, Parts,
    json::{Ids, Model},
    vocab::{Role, Specials, Vocab},
};
use crate::{Error, gguf::metadata::Metadata};

/// Bytes of a token; listing the ways to make it takes the square of its length.
const MAX_TOKEN: usize = 1024;
/// Ways to make a token, on average over the vocabulary; real ones have two or three. Without a limit,
/// a small file of tokens that are all parts of each other becomes a large tokenizer.json.
const MAX_WAYS: usize = 32;

pub(super) fn build<'a>(
    metadata: &'a Metadata,
    vocab: &'a Vocab<'a>,
    specials: &Specials,
    warnings: &mut Vec<String>,
) -> Result<Parts<'a>, Error> {
    let prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    if metadata.bool("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false) {
        warnings.push(
            "tokenizer.ggml.remove_extra_whitespaces is ignored, as llama.cpp ignores it".into(),
        );
    }
    let mut normalizers = Vec::new();
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        normalizers.push(json!({"type": "Prepend", "prepend": "▁"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    normalizers.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}));
    Ok(Parts {
        normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
        pre_tokenizer: Json::Null,
        decoder: json!({"type": "Sequence", "decoders": decoders}),
        model: Model::Bpe {
            dropout: None,
            unk_token: specials.unk.map(|id| vocab.tokens[id].as_ref()),
            continuing_subword_prefix: None,
            end_of_word_suffix: None,
            fuse_unk: true,
            byte_fallback: true,
            ignore_merges: false,
            vocab: Ids(vocab),
            merges: merges(metadata, vocab)?,
        },
        frame: Frame::Bos,
    })
}

fn merges<'a>(metadata: &Metadata, vocab: &'a Vocab<'a>) -> Result<Vec<(&'a str, &'a str)>, Error> {
    const KEY: &str = "tokenizer.ggml.scores";
    let n_tokens = vocab.tokens.len();
    let expected = format!("one score for each of {n_tokens} tokens");
    let scores = metadata.numbers(KEY)?.ok_or_else(|| metadata.missing(KEY, &expected))?;
    if scores.len < n_tokens {
        return Err(metadata.bad(KEY, &expected, scores.len.to_string()));
    }
    let scores: Option<Vec<f32>> = scores.numbers().map(|score| score.as_f32()).collect();
    let scores = scores.ok_or_else(|| metadata.missing(KEY, &expected))?;
    let mut order: Vec<usize> =
        (0..n_tokens).filter(|&id| vocab.roles[id] == Role::Normal).collect();
    // Stable: of equal scores, the lower id comes first.
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let is_text =
        |half: &str| vocab.ids.get(half).is_some_and(|&id| vocab.roles[id] == Role::Normal);
    let mut merges = Vec::new();
    for id in order {
        let token = vocab.tokens[id].as_ref();
        if token.len() > MAX_TOKEN {
            return Err(vocab.bad(format!("token {id} has {} bytes", token.len())));
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if is_text(left) && is_text(right) {
                merges.push((left, right));
            }
        }
        if merges.len() > MAX_WAYS * n_tokens {
            return Err(vocab.bad(format!("its tokens can be made in over {} ways", merges.len())));
        }
    }
    Ok(merges)
}
