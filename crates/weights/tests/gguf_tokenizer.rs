//! The tokenizer.json built from a GGUF splits texts as llama.cpp does (goldens:
//! `tools/goldens/gguf_tokenizer.py`, which also says where it leaves texts out).
//!
//! The vocabularies here are small ones made for the test. The same check over the real files runs
//! with `--features fetched-models` and needs `HEARTH_TEST_MODELS`, a folder that holds
//! `SmolLM2-135M-Instruct.Q4_1.gguf`, `qwen2.5-coder-0.5b-instruct-q4_k_m.gguf` and
//! `gemma-3-270m-q4_k_m.gguf`; without that folder the test fails, it does not skip.

use std::{collections::BTreeMap, fs, path::Path, str::FromStr};

use bytes::Bytes;
use hearth_weights::{
    Error, TextFiles,
    gguf::{reader, text_files},
};
use tokenizers::Tokenizer;

type Goldens = BTreeMap<String, Vec<u32>>;

fn fixture(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/tokenizers");
    fs::read(dir.join(name)).unwrap()
}

fn files(gguf: Vec<u8>) -> Result<TextFiles, Error> {
    let file = reader::parse(Path::new("test.gguf"), Bytes::from(gguf)).unwrap();
    text_files(&file.metadata)
}

fn tokenizer(files: &TextFiles) -> Tokenizer {
    let json = files.tokenizer.as_ref().unwrap().to_json().unwrap();
    Tokenizer::from_str(std::str::from_utf8(&json).unwrap()).unwrap()
}

fn check(name: &str, tokenizer: &Tokenizer, goldens: &Goldens) {
    assert!(goldens.len() > 50, "{name}: {} texts", goldens.len());
    let wrong: Vec<_> = goldens
        .iter()
        .filter_map(|(text, expected)| {
            let found = tokenizer.encode(text.as_str(), false).unwrap().get_ids().to_vec();
            (&found != expected).then_some((text, found, expected))
        })
        .collect();
    assert!(wrong.is_empty(), "{name}: (text, found, expected): {wrong:#?}");
}

/// `gguf` with the string value of `key` replaced. There are no tensors, so nothing has to be
/// aligned afterwards.
fn with_text(gguf: &[u8], key: &str, value: &str) -> Vec<u8> {
    let at = gguf.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
    let value_at = at + key.len() + 4;
    let len = u64::from_le_bytes(gguf[value_at..value_at + 8].try_into().unwrap()) as usize;
    let mut out = gguf[..value_at].to_vec();
    out.extend((value.len() as u64).to_le_bytes());
    out.extend(value.as_bytes());
    out.extend(&gguf[value_at + 8 + len..]);
    out
}

#[test]
fn every_bpe_rule_cuts_texts_as_llama_cpp_does() {
    let goldens: BTreeMap<String, Goldens> = serde_json::from_slice(&fixture("bpe.json")).unwrap();
    assert_eq!(goldens.len(), 31);
    let gguf = fixture("bpe.gguf");
    for (pre, goldens) in &goldens {
        let files = files(with_text(&gguf, "tokenizer.ggml.pre", pre)).unwrap();
        check(pre, &tokenizer(&files), goldens);
    }
}

#[test]
fn the_bpe_rules_are_told_apart_by_the_goldens() {
    // `llama-bpe` and `dbrx` share a rule but for whole pieces, which this vocabulary cannot show;
    // some others differ in texts no list can hold. Most must differ, or the goldens prove nothing.
    let goldens: BTreeMap<String, Goldens> = serde_json::from_slice(&fixture("bpe.json")).unwrap();
    let common = |a: &Goldens, b: &Goldens| {
        a.iter().all(|(text, ids)| b.get(text).is_none_or(|other| other == ids))
    };
    let mut distinct: Vec<&Goldens> = Vec::new();
    for list in goldens.values() {
        if !distinct.iter().any(|other| common(other, list)) {
            distinct.push(list);
        }
    }
    assert!(distinct.len() >= 20, "{}", distinct.len());
}

#[test]
fn sentencepiece_joins_by_score() {
    let goldens: Goldens = serde_json::from_slice(&fixture("spm.json")).unwrap();
    check("spm", &tokenizer(&files(fixture("spm.gguf")).unwrap()), &goldens);
}

/// Merges of SentencePiece's pieces, as Gemma 4 has them.
#[test]
fn sentencepiece_joins_by_rank() {
    let goldens: Goldens = serde_json::from_slice(&fixture("ranked.json")).unwrap();
    check("ranked", &tokenizer(&files(fixture("ranked.gguf")).unwrap()), &goldens);
}

#[test]
fn wordpiece_takes_the_longest_piece() {
    let goldens: Goldens = serde_json::from_slice(&fixture("wordpiece.json")).unwrap();
    check("wordpiece", &tokenizer(&files(fixture("wordpiece.gguf")).unwrap()), &goldens);
}

#[test]
fn an_unknown_rule_is_refused_by_name() {
    let error = files(with_text(&fixture("bpe.gguf"), "tokenizer.ggml.pre", "my-own")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("the pre-tokenizer \"my-own\" is not supported"), "{error}");
    assert!(error.contains("qwen2, ") && error.contains("smollm, "), "{error}");
}

#[test]
fn an_unknown_kind_is_refused_by_name() {
    for kind in ["t5", "rwkv", "plamo2"] {
        let gguf = with_text(&fixture("bpe.gguf"), "tokenizer.ggml.model", kind);
        let error = files(gguf).unwrap_err().to_string();
        assert!(
            error.contains(&format!("the tokenizer kind {kind:?} is not supported")),
            "{error}"
        );
    }
}

#[test]
fn control_tokens_are_special_and_text_tokens_are_not() {
    let tokenizer = tokenizer(&files(fixture("bpe.gguf")).unwrap());
    let added = tokenizer.get_added_tokens_decoder();
    let mut found: Vec<(&str, bool)> =
        added.values().map(|token| (token.content.as_str(), token.special)).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("<tool_call>", false),
            ("<|endoftext|>", true),
            ("<|im_end|>", true),
            ("<|im_start|>", true)
        ]
    );
}

#[test]
fn the_frame_of_a_text_is_the_one_the_file_asks_for() {
    let frame = |gguf: &str| {
        let tokenizer = tokenizer(&files(fixture(gguf)).unwrap());
        let ids = tokenizer.encode("a", true).unwrap().get_ids().to_vec();
        (ids.first().copied(), ids.last().copied(), ids.len())
    };
    // No BOS is asked for; SentencePiece has one by default; BERT has CLS and SEP.
    let (_, _, len) = frame("bpe.gguf");
    assert_eq!(len, 1);
    assert_eq!(frame("spm.gguf").0, Some(1));
    // Gemma 4 has one whatever the file says.
    assert_eq!(frame("ranked.gguf").0, Some(2));
    let (first, last, _) = frame("wordpiece.gguf");
    assert_eq!((first, last), (Some(2), Some(3)));
}

#[test]
fn texts_survive_encoding_and_decoding() {
    for name in ["bpe.gguf", "spm.gguf", "ranked.gguf"] {
        let tokenizer = tokenizer(&files(fixture(name)).unwrap());
        for text in ["Hello, world!", "a\n b\tc", "naïve 你好 😀", "  two spaces  "] {
            let ids = tokenizer.encode(text, false).unwrap();
            assert_eq!(tokenizer.decode(ids.get_ids(), false).unwrap(), text, "{name}");
        }
    }
}

#[cfg(feature = "fetched-models")]
#[test]
fn real_models_split_texts_as_llama_cpp_does() {
    let dir = std::env::var("HEARTH_TEST_MODELS")
        .expect("HEARTH_TEST_MODELS names the folder of the fetched models");
    for name in
        ["SmolLM2-135M-Instruct.Q4_1", "qwen2.5-coder-0.5b-instruct-q4_k_m", "gemma-3-270m-q4_k_m"]
    {
        let model = hearth_weights::Checkpoint::open(&Path::new(&dir).join(format!("{name}.gguf")));
        let goldens: Goldens = serde_json::from_slice(&fixture(&format!("{name}.json"))).unwrap();
        check(name, &tokenizer(&model.unwrap().text), &goldens);
    }
}
