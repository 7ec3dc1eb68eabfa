//! A GGUF file may hold anything: the answer is a model or an error that says what is wrong, never a
//! panic and never memory for what is not there.

use std::{fs, ops::Range, path::Path};

use bytes::Bytes;
use hearth_weights::{Checkpoint, gguf::from_bytes};
use proptest::prelude::*;

fn fixture(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf");
    fs::read(dir.join(name)).unwrap()
}

/// What the program says about a file of these bytes, at the latest when its tokenizer is written.
fn error(bytes: Vec<u8>) -> String {
    let model = from_bytes(Path::new("hostile.gguf"), Bytes::from(bytes));
    let json = model.and_then(|model| model.text.tokenizer.unwrap().to_json());
    json.unwrap_err().to_string()
}

#[track_caller]
fn check(bytes: Vec<u8>, expected: &str) {
    let found = error(bytes);
    assert!(found.starts_with("hostile.gguf"), "{found}");
    assert!(found.contains(expected), "{found:?} does not say {expected:?}");
}

/// Opens what may or may not be a model, and reads all of it.
fn exercise(bytes: Vec<u8>) {
    if let Ok(model) = from_bytes(Path::new("hostile.gguf"), Bytes::from(bytes)) {
        for tensor in model.tensors() {
            assert_eq!(tensor.dtype.n_bytes(&tensor.shape), Some(tensor.data.len()));
        }
        assert!(model.n_bytes() < u64::MAX);
        if let Some(tokenizer) = model.text.tokenizer {
            // Wrong or not, it comes to an end.
            let _ = tokenizer.to_json();
        }
    }
}

/// A file written field by field.
#[derive(Clone, Default)]
struct Gguf {
    values: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: usize,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Gguf {
    /// The least that is a model, without tensors.
    fn model() -> Gguf {
        let mut gguf = Gguf { data: 4096, ..Gguf::default() };
        gguf.values.push(
            [text("general.architecture"), 8u32.to_le_bytes().into(), text("llama")].concat(),
        );
        for (key, value) in [
            ("block_count", 1),
            ("embedding_length", 32),
            ("attention.head_count", 1),
            ("vocab_size", 1),
        ] {
            gguf.value(&format!("llama.{key}"), 4, &u32::to_le_bytes(value));
        }
        gguf.value("llama.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes());
        gguf
    }

    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) -> &mut Gguf {
        self.values.push([&text(key), &kind.to_le_bytes()[..], bytes].concat());
        self
    }

    fn tensor(&mut self, name: &str, sizes: &[u64], kind: u32, offset: u64) -> &mut Gguf {
        let mut entry = text(name);
        entry.extend((sizes.len() as u32).to_le_bytes());
        entry.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        entry.extend(kind.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        self.tensors.push(entry);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.values.len() as u64).to_le_bytes());
        out.extend(self.values.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(32) + self.data, 0);
        out
    }
}

fn with_value(key: &str, kind: u32, bytes: &[u8]) -> Vec<u8> {
    Gguf::model().value(key, kind, bytes).bytes()
}

fn with_tensor(sizes: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    Gguf::model().tensor("output.weight", sizes, kind, offset).bytes()
}

#[test]
fn the_smallest_model_opens() {
    let bytes = Gguf::model().tensor("output.weight", &[32, 4], 0, 0).bytes();
    let model = from_bytes(Path::new("hostile.gguf"), Bytes::from(bytes)).unwrap();
    assert_eq!(model.tensor("lm_head.weight").unwrap().shape, [4, 32]);
}

#[test]
fn headers_that_are_none() {
    check(b"".to_vec(), "its first four bytes needs 4 bytes");
    check(b"GGML\x03\0\0\0".to_vec(), "does not begin with GGUF");
    check(b"GGUF\x01\0\0\0".to_vec(), "GGUF version 1 is not supported");
    check(b"GGUF\x00\0\0\x03".to_vec(), "big-endian GGUF is not supported");
    check(b"GGUF\x63\0\0\0".to_vec(), "GGUF version 99");
    check(b"GGUF\x03\0\0\0".to_vec(), "the number of tensors needs 8 bytes");
}

#[test]
fn counts_and_lengths_beyond_the_file() {
    let huge = u64::MAX.to_le_bytes();
    check([b"GGUF\x03\0\0\0", &huge[..], &huge].concat(), "a metadata key needs 8 bytes");
    check(
        [b"GGUF\x03\0\0\0", &[0; 8][..], &[1, 0, 0, 0, 0, 0, 0, 0], &huge].concat(),
        "claims 18446744073709551615",
    );
    check(with_value("x", 8, &huge), "x needs 18446744073709551615 bytes");
    // An array of so many bytes, of so many long words, of so many strings, of arrays.
    for kind in [0u32, 10, 8, 9] {
        check(with_value("x", 9, &[&kind.to_le_bytes()[..], &huge].concat()), "x ");
    }
    check(with_tensor(&[u64::MAX, u64::MAX], 0, 0), "expected rows of whole blocks");
    check(with_tensor(&[1 << 40], 0, 0), "bytes within the data section's 4096");
    check(with_tensor(&[32], 0, 1 << 20), "128 bytes at 1048576");
    check(with_tensor(&[32], 0, u64::MAX - 31), "128 bytes at");
}

#[test]
fn values_that_mean_nothing() {
    check(with_value("x", 77, &[]), "x has the unknown type 77");
    check(with_value("llama.block_count", 4, &[1, 0, 0, 0]), "llama.block_count is there twice");
    check(with_value("x", 8, b"\x01\0\0\0\0\0\0\0\xff"), "x is not UTF-8");
    check(with_value("general.alignment", 4, &[3, 0, 0, 0]), "expected a power of two, found 3");
    check(with_value("general.alignment", 4, &[0, 0, 0, 0]), "expected a power of two, found 0");
    let mut nested = Vec::new();
    for _ in 0..10 {
        nested.extend(9u32.to_le_bytes());
        nested.extend(1u64.to_le_bytes());
    }
    check(with_value("x", 9, &nested), "x nests arrays too deeply");
}

#[test]
fn tensors_that_cannot_be() {
    check(with_tensor(&[32, 1, 1, 1, 1], 0, 0), "at most 4 axes, found 5");
    check(with_tensor(&[32, 0], 0, 0), "sizes above zero");
    check(with_tensor(&[33, 2], 2, 0), "expected rows of whole blocks, found Q4_0 [2, 33]");
    check(with_tensor(&[32], 0, 8), "a multiple of 32, found 8");
    check(with_tensor(&[256], 16, 0), "type IQ2_XXS of tensor output.weight is not supported");
    check(with_tensor(&[256], 99, 0), "the unknown type 99 of tensor output.weight");
    let twice = Gguf::model().tensor("a", &[8], 0, 0).tensor("a", &[8], 0, 32).bytes();
    check(twice, "tensor a: expected a name used once");
    let overlap = Gguf::model().tensor("a", &[16], 0, 0).tensor("b", &[16], 0, 32).bytes();
    check(overlap, "tensor b: expected bytes apart from those of a");
}

#[test]
fn models_that_are_none() {
    check(Gguf { data: 0, ..Gguf::default() }.bytes(), "general.architecture: expected a string");
    let mut other = Gguf::model();
    other.values[0] =
        [text("general.architecture"), 8u32.to_le_bytes().into(), text("mamba")].concat();
    check(other.bytes(), "the architecture \"mamba\" is not supported; these are: llama, qwen2");
    for name in ["blk.1.attn_q.weight", "blk.00.attn_q.weight", "blk.0.ssm_in.weight", "x"] {
        let bytes = Gguf::model().tensor(name, &[32], 0, 0).bytes();
        check(bytes, &format!("tensor {name} in a llama of 1 layers is not supported"));
    }
    let mut deep = Gguf::model();
    deep.values.retain(|value| !value.windows(11).any(|part| part == b"block_count"));
    deep.value("llama.block_count", 4, &u32::MAX.to_le_bytes());
    check(deep.bytes(), "llama.block_count: expected at most 10000 layers");
}

#[test]
fn vocabularies_that_contradict_themselves() {
    let strings = |texts: &[&str]| {
        let mut out = 8u32.to_le_bytes().to_vec();
        out.extend((texts.len() as u64).to_le_bytes());
        out.extend(texts.iter().flat_map(|t| text(t)));
        out
    };
    let bpe = |tokens: &[&str], merges: &[&str]| {
        Gguf::model()
            .value("tokenizer.ggml.model", 8, &text("gpt2"))
            .value("tokenizer.ggml.pre", 8, &text("gpt-2"))
            .value("tokenizer.ggml.tokens", 9, &strings(tokens))
            .value("tokenizer.ggml.merges", 9, &strings(merges))
            .clone()
    };
    check(bpe(&["a", "b", "a"], &[]).bytes(), "tokens 0 and 2 are both \"a\"");
    for merge in ["a b", "ab", "", " ", "a  b", "é"] {
        check(bpe(&["a", "b"], &[merge]).bytes(), "merge 0");
    }
    let roles = [&5u32.to_le_bytes()[..], &1u64.to_le_bytes(), &1u32.to_le_bytes()].concat();
    let few = bpe(&["a", "b"], &[]).value("tokenizer.ggml.token_type", 9, &roles).bytes();
    check(few, "one type for each of 2 tokens, found 1");
    let mut spm = Gguf::model()
        .value("tokenizer.ggml.model", 8, &text("llama"))
        .value("tokenizer.ggml.tokens", 9, &strings(&["a"]))
        .clone();
    let scores = "tokenizer.ggml.scores: expected one score for each of 1 tokens";
    check(spm.bytes(), scores);
    let truths = [&7u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[1]].concat();
    check(spm.value("tokenizer.ggml.scores", 9, &truths).bytes(), scores);
    // Every token is a part of all longer ones.
    let runs: Vec<String> = (1..=200).map(|n| "a".repeat(n)).collect();
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    let zeros = [&6u32.to_le_bytes()[..], &200u64.to_le_bytes(), &[0; 800]].concat();
    let parts = Gguf::model()
        .value("tokenizer.ggml.model", 8, &text("llama"))
        .value("tokenizer.ggml.tokens", 9, &strings(&runs))
        .value("tokenizer.ggml.scores", 9, &zeros)
        .clone();
    check(parts.bytes(), "its tokens can be made in over 6");
}

#[test]
fn parts_that_nobody_could_count() {
    let dir = std::env::temp_dir().join(format!("hearth-gguf-parts-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let open = |number: u64, count: u64| {
        let file = dir.join(format!("m-00001-of-{count:05}.gguf"));
        let mut gguf = Gguf::model();
        gguf.value("split.count", 10, &count.to_le_bytes());
        gguf.value("split.no", 10, &number.to_le_bytes());
        fs::write(&file, gguf.bytes()).unwrap();
        Checkpoint::open(&file).unwrap_err().to_string()
    };
    let errors = [open(0, u64::MAX), open(0, 1 << 40), open(u64::MAX, 2), open(2, 2), open(0, 3)];
    fs::remove_dir_all(&dir).unwrap();
    let expected =
        ["at most 65535 parts", "at most 65535 parts", "a number below", "a number below"];
    for (error, expected) in errors.iter().zip(expected.into_iter().chain(["is missing"])) {
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[test]
fn every_beginning_of_a_file_is_an_error() {
    let whole = fixture("models/gemma3.gguf");
    for len in (0..4000).chain((4000..whole.len()).step_by(997)) {
        error(whole[..len].to_vec());
    }
}

/// Replaces a few runs of bytes in the header part, where lengths, types and offsets are.
fn mutated(name: &'static str, header: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (header, proptest::collection::vec(any::<u8>(), 1..9));
    proptest::collection::vec(edit, 1..4).prop_map(move |edits| {
        let mut bytes = fixture(name);
        for (at, new) in edits {
            let end = bytes.len().min(at + new.len());
            let at = at.min(end);
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_model_never_panics(bytes in mutated("models/phi3.gguf", 0..2500)) {
        exercise(bytes);
    }

    #[test]
    fn a_damaged_vocabulary_never_panics(bytes in mutated("tokenizers/spm.gguf", 0..19_000)) {
        exercise(bytes);
    }

    #[test]
    fn damaged_merges_never_panic(bytes in mutated("tokenizers/bpe.gguf", 0..23_000)) {
        exercise(bytes);
    }

    #[test]
    fn noise_never_panics(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
        exercise([b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0", &tail[..]].concat());
    }
}
