//! Building a tokenizer and encoding a long text, ours beside the `tokenizers` crate's, in one run:
//! `cargo bench -p hearth-text -- model.gguf...`

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use hearth_text::{Prompt, Tokenizer, TokenizerFiles};

#[path = "../tests/common/mod.rs"]
mod common;

fn main() {
    let files = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    for file in files {
        let model = weights::Checkpoint::open(Path::new(&file)).unwrap();
        let json = model.text.tokenizer.as_ref().unwrap().to_json().unwrap();
        let from_json = || {
            let files = TokenizerFiles { tokenizer_json: &json, ..Default::default() };
            Tokenizer::from_files(files).unwrap()
        };
        println!("{file}");
        say("ours, packed", best(|| (), |()| common::model_tokenizer(&model.text)));
        say("ours, from JSON", best(|| (), |()| from_json()));
        say(
            "crate, from JSON",
            best(|| (), |()| tokenizers::Tokenizer::from_bytes(&json).unwrap()),
        );

        let crates = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        let own = common::model_tokenizer(&model.text);
        for (kind, text) in texts() {
            let prompt = Prompt::trusted(text.as_str());
            let n = own.encode_prompt(&prompt).unwrap().len();
            println!("  {kind}: {} bytes, {n} tokens", text.len());
            say("ours", best(|| (), |()| own.encode_prompt(&prompt).unwrap()));
            // Without what it remembers of the last run.
            let fresh = || crates.clone();
            say("crate", best(fresh, |crates| crates.encode_fast(text.as_str(), false).unwrap()));
        }
    }
}

/// This repository's own prose and code, and the fixtures' many scripts.
fn texts() -> [(&'static str, String); 3] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let folder = |path: &str, ending: &str| -> String {
        let entries = std::fs::read_dir(root.join(path)).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == ending))
            .map(|f| read(f))
            .collect()
    };
    let prose = folder("../..", "md") + &folder("../../docs", "md");
    let code =
        ["text", "models", "engine", "cli"].map(|room| folder(&format!("../{room}/src"), "rs"));
    let scripts = read(&root.join("tests/fixtures/tokens.json"));
    [("prose", prose), ("code", code.concat()), ("scripts", scripts)]
}

/// The shortest time that `work` takes on what `prepare` makes.
fn best<I, T>(prepare: impl Fn() -> I, work: impl Fn(&I) -> T) -> Duration {
    let time = |_| {
        let input = prepare();
        let start = Instant::now();
        let made = black_box(work(&input));
        let taken = start.elapsed();
        drop((input, made));
        taken
    };
    (0..9).map(time).min().unwrap_or_default()
}

fn say(what: &str, time: Duration) {
    println!("    {what:<20} {:9.2} ms", time.as_secs_f64() * 1e3);
}
