//! The command with real models, as people run it. Needs `--features fetched-models` and
//! `HEARTH_TEST_MODELS`, a folder with the GGUF files of the two models; `./test` sets both. Without
//! the folder these tests fail, they do not skip.
//!
//! Expected token ids are those of an f32 run of the same weights in transformers
//! (`tools/goldens/real_models.py`).
#![cfg(feature = "fetched-models")]

#[expect(dead_code, reason = "other tests use the rest")]
mod served;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use served::Served;

const SMOL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const CODER: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

fn model(file: &str) -> PathBuf {
    let folder = std::env::var("HEARTH_TEST_MODELS")
        .expect("HEARTH_TEST_MODELS names the folder of the fetched models");
    Path::new(&folder).join(file)
}

/// Standard output of `hearth --offline ARGS` with `input` on standard input.
#[track_caller]
fn hearth(args: &[&str], input: &str) -> String {
    let child = Command::new(env!("CARGO_BIN_EXE_hearth"))
        .arg("--offline")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Served(child);
    child.0.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let (mut out, mut err) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    let (mut said, mut complained) = (String::new(), String::new());
    std::thread::scope(|scope| {
        scope.spawn(|| err.read_to_string(&mut complained).unwrap());
        out.read_to_string(&mut said).unwrap();
    });
    assert!(child.0.wait().unwrap().success(), "{args:?}: {complained}");
    said
}

fn chat(file: &str, prompt: &str, flags: &[&str]) -> String {
    let model = model(file);
    let mut args = vec!["chat", model.to_str().unwrap(), prompt, "--max-tokens", "48"];
    args.extend(flags);
    hearth(&args, "")
}

#[test]
fn both_models_know_the_capital_of_france() {
    // For the smaller one the first word is a near tie, which 8-bit activations may turn.
    let flags = ["--temperature", "0", "--exact-activations"];
    for (file, flags) in [(SMOL, &flags[..]), (CODER, &flags[..]), (CODER, &flags[..2])] {
        let answer = chat(file, "What is the capital of France?", flags);
        assert!(answer.contains("Paris"), "{file}: {answer}");
    }
}

#[test]
fn a_question_on_standard_input_gets_one_answer() {
    let question = "What is the capital of France?";
    let path = model(SMOL);
    let args = ["chat", path.to_str().unwrap(), "--temperature", "0", "--max-tokens", "48"];
    assert_eq!(hearth(&args, question), chat(SMOL, question, &["--temperature", "0"]));
}

#[test]
fn threads_change_no_byte() {
    let question = "Tell me a short story about a lighthouse keeper and a storm.";
    for sampling in [["--temperature", "0"], ["--seed", "11"]] {
        let with =
            |threads| chat(SMOL, question, &[&sampling[..], &["--threads", threads]].concat());
        let one = with("1");
        assert!(!one.trim().is_empty());
        assert_eq!(one, with("2"), "{sampling:?}");
        assert_eq!(one, with("3"), "{sampling:?}");
    }
}

#[derive(Deserialize)]
struct Golden {
    ids: Vec<u32>,
    /// Likeliest next token after each position.
    top: Vec<u32>,
    /// Log probability of the token that really follows.
    next_logprob: Vec<f64>,
}

/// How far the model is from transformers: share of equal top-1 tokens, and the mean distance of the
/// log probability of the token that follows.
fn distance(file: &str, fixture: &str, flags: &[&str]) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let golden: Golden = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    let (ids, logits) = (folder.path().join("ids.json"), folder.path().join("logits.npy"));
    std::fs::write(&ids, serde_json::to_string(&golden.ids).unwrap()).unwrap();
    let model = model(file);
    let paths = [model.to_str().unwrap(), ids.to_str().unwrap(), logits.to_str().unwrap()];
    let args = ["perplexity", paths[0], paths[1], "--window", "1000", "--logits", paths[2]];
    hearth(&[&args[..], flags].concat(), "");

    let bytes = std::fs::read(&logits).unwrap();
    let data = &bytes[10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))..];
    let row_bytes = data.len() / golden.ids.len();
    let (mut same, mut apart) = (0, 0.0);
    for (at, row) in data.chunks_exact(row_bytes).enumerate() {
        let row: Vec<f64> = row
            .chunks_exact(4)
            .map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
            .collect();
        let top = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
        same += usize::from(top == Some(golden.top[at] as usize));
        if let Some(&next) = golden.ids.get(at + 1) {
            let max = row.iter().copied().fold(f64::MIN, f64::max);
            let norm = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            apart += (row[next as usize] - norm - golden.next_logprob[at]).abs();
        }
    }
    (same as f64 / golden.ids.len() as f64, apart / (golden.ids.len() - 1) as f64)
}

#[test]
fn exact_activations_agree_with_transformers() {
    for (file, fixture) in [(SMOL, "smollm2-135m.json"), (CODER, "qwen2.5-coder-0.5b.json")] {
        let (same_top, apart) = distance(file, fixture, &["--exact-activations"]);
        assert!(same_top >= 0.998, "{file}: top-1 agreement {same_top}");
        assert!(apart < 2e-3, "{file}: log probabilities are {apart} nats apart");
    }
}

#[test]
fn eight_bit_activations_stay_close_to_transformers() {
    for (file, fixture) in [(SMOL, "smollm2-135m.json"), (CODER, "qwen2.5-coder-0.5b.json")] {
        let (same_top, apart) = distance(file, fixture, &[]);
        assert!(same_top >= 0.96, "{file}: top-1 agreement {same_top}");
        assert!(apart < 0.08, "{file}: log probabilities are {apart} nats apart");
    }
}

#[cfg(feature = "installed-mlx")]
#[test]
fn a_real_model_answers_on_mlx() {
    let flags = ["--device", "mlx", "--temperature", "0"];
    let answer = chat(SMOL, "What is the capital of France?", &flags);
    assert!(answer.contains("Paris"), "{answer}");
}
