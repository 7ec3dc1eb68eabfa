//! Ids and texts equal those of Hugging Face's tokenizers, streamed or not.

mod common;

use common::{fixture_json, numbers, tokenizer, toy};
use hearth_text::{Detokenizer, Specials, Start, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [&str; 3] = ["bytelevel", "sentencepiece", "wordpiece"];

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Deltas of a stream; the last is what the end gives.
fn stream(tokenizer: &Tokenizer, ids: &[u32], specials: Specials) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer, specials, Start::Text);
    let mut deltas: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    deltas.push(detokenizer.finish());
    deltas
}

#[test]
fn raw_ids_equal_the_python_library() {
    let goldens = fixture_json("tokens.json");
    for kind in KINDS {
        let tokenizer = tokenizer(kind);
        for case in goldens[kind]["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let mut expected = ids(&case["with"]);
            // A text that spells the beginning itself gets no second one.
            if text.starts_with("<s>") && kind == "sentencepiece"
                || text.starts_with("[CLS]") && kind == "wordpiece"
            {
                expected.remove(0);
            }
            assert_eq!(tokenizer.encode_raw(text).unwrap(), expected, "{kind} {text:?}");
        }
    }
}

#[test]
fn streams_equal_the_full_decode_of_the_python_library() {
    let goldens = fixture_json("tokens.json");
    for kind in KINDS {
        let tokenizer = tokenizer(kind);
        for case in goldens[kind]["ids"].as_array().unwrap() {
            let ids = ids(&case["ids"]);
            let skip = stream(&tokenizer, &ids, Specials::Skip).concat();
            assert_eq!(skip, case["skip"].as_str().unwrap(), "{kind} {ids:?}");
            let keep = stream(&tokenizer, &ids, Specials::Keep).concat();
            assert_eq!(keep, case["keep"].as_str().unwrap(), "{kind} {ids:?}");
        }
    }
}

#[test]
fn encoded_text_comes_back_unchanged() {
    let goldens = fixture_json("tokens.json");
    let tokenizer = tokenizer("sentencepiece");
    for case in goldens["sentencepiece"]["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids = tokenizer.encode_raw(text).unwrap();
        if text.contains("<s>")
            || text.contains("<|im")
            || text.contains("<0x")
            || text.contains('▁')
        {
            continue;
        }
        // The case without a known character becomes <unk>, which the vocabulary cannot undo.
        if ids.iter().any(|&id| tokenizer.token(id).as_deref() == Some("<unk>")) {
            continue;
        }
        let back = stream(&tokenizer, &ids[1..], Specials::Keep).concat();
        assert_eq!(back, text);
    }
}

/// Case D01.
#[test]
fn an_emoji_over_three_tokens_waits_until_it_is_complete() {
    let tokenizer = toy(&["hiĠ", "ðŁ", "¦", "ľ", "!"], &[], &json!({}));
    let deltas = stream(&tokenizer, &[0, 1, 2, 3, 4], Specials::Skip);
    assert_eq!(deltas, ["hi ", "", "", "🦜", "!", ""]);
    let deltas = stream(&tokenizer, &[0, 1], Specials::Skip);
    assert_eq!(deltas, ["hi ", "", "\u{FFFD}"]);
}

/// Case D03, byte-level.
#[test]
fn a_leading_space_of_a_continuation_is_kept() {
    let tokenizer = toy(&["Ġamber", "Ġand"], &[], &json!({}));
    assert_eq!(stream(&tokenizer, &[0, 1], Specials::Skip), [" amber", " and", ""]);
}

/// Case D03, SentencePiece: the decoder drops one blank at the very start, no other.
#[test]
fn sentencepiece_loses_exactly_one_leading_space() {
    let pieces = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": {"▁": 0, "▁amber": 1, "▁y": 2}, "merges": []}
    });
    let tokenizer_json = pieces.to_string().into_bytes();
    let files =
        hearth_text::TokenizerFiles { tokenizer_json: &tokenizer_json, ..Default::default() };
    let tokenizer = Tokenizer::from_files(files).unwrap();
    assert_eq!(stream(&tokenizer, &[0, 1, 2], Specials::Skip), ["", " amber", " y", ""]);

    let mut goes_on = Detokenizer::new(&tokenizer, Specials::Skip, Start::Continuation);
    assert_eq!(goes_on.push(1), " amber");
}

#[test]
fn token_bytes_are_those_of_the_text() {
    let tokenizer = tokenizer("bytelevel");
    for text in ["The lid is amber 🦜", "naïve\n\tcafé"] {
        let ids = tokenizer.encode_raw(text).unwrap();
        let bytes: Vec<u8> =
            ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
        assert_eq!(bytes, text.as_bytes());
    }
    assert_eq!(tokenizer.token_bytes(tokenizer.vocab_size() as u32), None);
}

#[test]
fn a_file_that_is_no_tokenizer_is_an_error() {
    let bad: [&[u8]; 4] = [b"", b"{}", b"{\"model\": 3}", b"\xff\xfe"];
    for tokenizer_json in bad {
        let files = hearth_text::TokenizerFiles { tokenizer_json, ..Default::default() };
        let error = Tokenizer::from_files(files).unwrap_err().to_string();
        assert!(error.starts_with("the tokenizer cannot be used"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Our stream against the crate's own decode of the whole list, on any ids.
    #[test]
    fn any_ids_stream_to_their_full_decode(seed in any::<u64>(), n in 0usize..60, beyond in 0u32..3) {
        for kind in KINDS {
            let tokenizer = tokenizer(kind);
            let file = common::fixture(&format!("{kind}.json"));
            let whole = tokenizers::Tokenizer::from_bytes(&file).unwrap();
            let mut below = numbers(seed);
            let n_ids = tokenizer.vocab_size() + beyond as usize;
            let ids: Vec<u32> = (0..n).map(|_| below(n_ids) as u32).collect();
            for (specials, skip) in [(Specials::Skip, true), (Specials::Keep, false)] {
                let text = stream(&tokenizer, &ids, specials).concat();
                prop_assert_eq!(text, whole.decode(&ids, skip).unwrap());
            }
        }
    }
}
