//! Our byte-pair encoding against that of the `tokenizers` crate: random vocabularies, settings and
//! texts, and (with `fetched-models`) the vocabularies of real models.

mod common;

use std::collections::HashSet;

use common::numbers;
use hearth_text::{Joins, Prompt, Tokenizer, TokenizerFiles, Vocabulary};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Few enough that joins are common, with every length of UTF-8.
const LETTERS: [&str; 8] = ["a", "b", "c", "é", "▁", "世", "🦜", " "];

/// A random model without its vocabulary.
struct Toy {
    /// Spellings by id.
    tokens: Vec<String>,
    /// Ids of the tokens that are text.
    text: Vec<u32>,
    options: Map<String, Value>,
}

/// Letters (some missing), some or all bytes, and words that the letters make.
fn toy(below: &mut impl FnMut(usize) -> usize) -> Toy {
    let mut tokens = vec!["<unk>".to_owned()];
    let all_bytes = below(2) == 0;
    let bytes = (0..256).filter(|_| all_bytes || below(3) == 0);
    tokens.extend(bytes.collect::<Vec<_>>().into_iter().map(|byte| format!("<0x{byte:02X}>")));
    let n_special = tokens.len();
    tokens.extend(LETTERS.iter().filter(|_| below(6) > 0).map(|&letter| letter.to_owned()));
    for _ in 0..if tokens.len() > n_special { below(40) } else { 0 } {
        let mut pick = || tokens[n_special + below(tokens.len() - n_special)].clone();
        let word = pick() + &pick();
        if !tokens.contains(&word) {
            tokens.push(word);
        }
    }
    let mut options = Map::new();
    options.insert("unk_token".into(), [Value::Null, json!("<unk>")][below(2)].clone());
    for name in ["fuse_unk", "byte_fallback", "ignore_merges"] {
        options.insert(name.into(), (below(2) == 0).into());
    }
    let text = (n_special as u32..tokens.len() as u32).collect();
    Toy { tokens, text, options }
}

impl Toy {
    /// Every way to make a token out of two, in the order of these tokens, shorter left halves first.
    fn ways(&self, order: &[u32]) -> Vec<(&str, &str)> {
        let text: HashSet<&str> = self.text.iter().map(|&id| self.token(id)).collect();
        let halves = |id: &u32| {
            let token = self.token(*id);
            token.char_indices().skip(1).map(|(at, _)| token.split_at(at))
        };
        let known = |(left, right): &(&str, &str)| text.contains(left) && text.contains(right);
        order.iter().flat_map(halves).filter(known).collect()
    }

    fn token(&self, id: u32) -> &str {
        &self.tokens[id as usize]
    }

    /// A whole tokenizer.json with these ids and merges.
    fn json(&self, id: impl Fn(usize) -> usize, merges: Value) -> Vec<u8> {
        let vocab: Map<_, _> =
            self.tokens.iter().enumerate().map(|(at, t)| (t.clone(), id(at).into())).collect();
        // `type` first, as the crate writes it.
        let mut model = Map::from_iter([("type".to_owned(), json!("BPE"))]);
        model.extend(self.options.clone());
        model.extend([("vocab".to_owned(), vocab.into()), ("merges".to_owned(), merges)]);
        file(model.into())
    }
}

fn file(model: Value) -> Vec<u8> {
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": model,
    });
    file.to_string().into_bytes()
}

fn texts(below: &mut impl FnMut(usize) -> usize) -> Vec<String> {
    let mut text = |n| (0..n).map(|_| LETTERS[below(LETTERS.len())]).collect();
    (0..12).map(|n| text(n * n)).collect()
}

fn files(tokenizer_json: &[u8]) -> TokenizerFiles<'_> {
    TokenizerFiles { tokenizer_json, ..Default::default() }
}

#[track_caller]
fn same(own: &Tokenizer, crates: &tokenizers::Tokenizer, texts: &[String]) {
    for text in texts {
        let expected = crates.encode_fast(text.as_str(), true).unwrap().get_ids().to_vec();
        let found = own.encode_prompt(&Prompt::trusted(text.as_str())).unwrap();
        assert_eq!(found, expected, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Merges in any order, some listed twice, old and new form; ids in any order, with holes.
    #[test]
    fn listed_merges(seed in any::<u64>()) {
        let mut below = numbers(seed);
        let toy = toy(&mut below);
        let mut order = toy.text.clone();
        for at in 1..order.len() {
            order.swap(at, below(at + 1));
        }
        let mut merges = toy.ways(&order);
        merges.retain(|_| below(5) > 0);
        merges.extend(merges.clone().into_iter().filter(|_| below(8) == 0));
        let old = below(2) == 0 && merges.iter().all(|(l, r)| !l.contains(' ') && !r.contains(' '));
        let merge = |(left, right): &(&str, &str)| match old {
            true => json!(format!("{left} {right}")),
            false => json!([left, right]),
        };
        let mut merges: Vec<Value> = merges.iter().map(merge).collect();
        if old {
            merges.insert(0, json!("#version: 0.2"));
        }
        let (n, step) = (toy.tokens.len(), 1 + below(3));
        let json = toy.json(|at| (n - 1 - at) * step, merges.into());
        let own = Tokenizer::from_files(files(&json)).unwrap();
        let crates = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        same(&own, &crates, &texts(&mut below));
        for id in 0..(n * step) as u32 {
            prop_assert_eq!(own.token(id), crates.id_to_token(id));
        }
        prop_assert_eq!(own.id_of("a"), crates.token_to_id("a"));
    }

    /// Scores instead of merges are the list of all ways, best score first.
    #[test]
    fn scored_tokens(seed in any::<u64>()) {
        let mut below = numbers(seed);
        let toy = toy(&mut below);
        let mut order = toy.text.clone();
        for at in 1..order.len() {
            order.swap(at, below(at + 1));
        }
        let json = toy.json(|at| at, json!(toy.ways(&order)));
        let crates = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        let frame = file(toy.options.clone().into());
        let tokens = toy.tokens.iter().map(|token| token.as_bytes().into());
        let vocabulary = Vocabulary { tokens: Box::new(tokens), joins: Joins::Scored(&order) };
        let own = Tokenizer::from_vocabulary(files(&frame), vocabulary).unwrap();
        same(&own, &crates, &texts(&mut below));
    }
}

#[test]
fn what_is_not_ours_is_the_crates() {
    let plain = json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "##b": 2, "a##b": 3, "ab": 4},
                       "merges": [["a", "##b"]]});
    for (key, value) in [
        ("continuing_subword_prefix", json!("##")),
        ("end_of_word_suffix", json!("##b")),
        ("vocab", json!({"a": 0, "b": 1, "##b": 1, "a##b": 4_000_000_000_u32, "ab": 4})),
        ("type", json!(null)),
    ] {
        let mut model = plain.clone();
        model[key] = value;
        let json = file(model);
        let own = Tokenizer::from_files(files(&json));
        match tokenizers::Tokenizer::from_bytes(&json) {
            Ok(crates) => same(&own.unwrap(), &crates, &["ab".into(), "abab".into()]),
            Err(_) => drop(own.unwrap_err()),
        }
    }
}

#[test]
fn vocabularies_that_contradict_themselves() {
    let frame = file(json!({}));
    let error = |tokens: &[&'static [u8]], merges: &[(&'static [u8], &'static [u8])]| {
        let (tokens, merges) = (tokens.to_vec(), merges.to_vec());
        let vocabulary = Vocabulary {
            tokens: Box::new(tokens.into_iter().map(Into::into)),
            joins: Joins::Ranked(Box::new(merges.into_iter())),
        };
        Tokenizer::from_vocabulary(files(&frame), vocabulary).unwrap_err().to_string()
    };
    let check = |error: String, expected: &str| assert!(error.contains(expected), "{error}");
    check(error(&[b"a", b"b", b"a"], &[]), "tokens 0 and 2 are both \"a\"");
    check(error(&[b"a", b"\xff"], &[]), "token 1 is not UTF-8");
    check(error(&[b"a", b"\xc3", b"\xa9"], &[]), "token 1 is not UTF-8");
    for merge in [(&b"a"[..], &b"b"[..]), (b"ab", b""), (b"", b""), (b"\xc3", b"\xa9")] {
        check(error(&[b"a", b"b"], &[merge]), "merge 0 (");
    }
    let json = file(json!({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}));
    check(Tokenizer::from_files(files(&json)).unwrap_err().to_string(), "has not two halves");
}

#[cfg(feature = "fetched-models")]
#[test]
fn vocabularies_of_real_models() {
    let folder = std::env::var("HEARTH_TEST_MODELS").expect("HEARTH_TEST_MODELS names a folder");
    for file in [
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "gemma-3-270m-q4_k_m.gguf",
    ] {
        let model = weights::Checkpoint::open(&std::path::Path::new(&folder).join(file)).unwrap();
        let json = model.text.tokenizer.as_ref().unwrap().to_json().unwrap();
        let crates = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        let mut texts: Vec<String> = (0..300).map(noise).collect();
        for name in ["prompt_ids.json", "templates.json", "tokens.json"] {
            texts.push(String::from_utf8(common::fixture(name)).unwrap());
        }
        // By the packed vocabulary, and by the tokenizer.json of the same model.
        same(&common::model_tokenizer(&model.text), &crates, &texts);
        same(&Tokenizer::from_files(files(&json)).unwrap(), &crates, &texts);
    }
}

/// Letters, digits, blanks and marks of several scripts in words of random lengths.
#[cfg(feature = "fetched-models")]
fn noise(seed: u64) -> String {
    const RANGES: [(u32, usize); 9] = [
        (0x61, 26),
        (0x61, 26),
        (0x20, 64),
        (0xA0, 96),
        (0x300, 300),
        (0x5D0, 200),
        (0x4E00, 3000),
        (0xAC00, 3000),
        (0x1F300, 500),
    ];
    let mut below = numbers(seed);
    let mut text = String::new();
    for _ in 0..below(60) {
        let (first, n) = RANGES[below(RANGES.len())];
        text.extend((0..below(9)).filter_map(|_| char::from_u32(first + below(n) as u32)));
        text.push_str([" ", "", "\n", "  ", "\t", "'s "][below(6)]);
    }
    text
}
