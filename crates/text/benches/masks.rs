//! What holding an answer to a schema costs: 100 schemas at random, with the vocabularies of real models, in one
//! run: `cargo bench -p hearth-text --bench masks -- model.gguf...`
//!
//! A mask is made while the device works, so it costs an answer nothing unless it takes longer than a step.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_text::grammar::{Format, Grammars, Strictness};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/schemas/mod.rs"]
mod schemas;

const SCHEMAS: usize = 100;
const MOST_TOKENS: usize = 100;

fn main() {
    let files = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    for file in files {
        let model = weights::Checkpoint::open(Path::new(&file)).unwrap();
        let tokenizer = Arc::new(common::model_tokenizer(&model.text));
        let n_vocab = tokenizer.vocab_size();
        let stops = vec![n_vocab as u32 - 1];
        let grammars = Grammars::new(Arc::clone(&tokenizer), n_vocab, stops.clone());
        println!("{file}: {n_vocab} tokens, {SCHEMAS} schemas");
        let mut runner = TestRunner::deterministic();
        let (mut made, mut masks, mut applied) = (Vec::new(), Vec::new(), Vec::new());
        let mut logits = vec![0.0_f32; n_vocab];
        for number in 0..SCHEMAS {
            let schema = schemas::parameters().new_tree(&mut runner).unwrap().current();
            let format = Format::JsonSchema { schema, strictness: Strictness::Closed };
            let begin = Instant::now();
            let grammar = grammars.of(&format).unwrap().unwrap();
            made.push(begin.elapsed());
            let mut run = grammar.start();
            let mut below = common::numbers(number as u64);
            for _ in 0..MOST_TOKENS {
                if let Some(token) = run.forced() {
                    run.push(token);
                    continue;
                }
                let begin = Instant::now();
                let Ok(allowed) = run.allowed() else { break };
                masks.push(begin.elapsed());
                let begin = Instant::now();
                logits.fill(0.0);
                allowed.apply(&mut logits);
                applied.push(begin.elapsed());
                // From a place at random the next one that is allowed, so that answers are varied.
                let from = below(n_vocab);
                let next = (from..n_vocab).chain(0..from).find(|&id| allowed.contains(id as u32));
                let Some(next) = next.filter(|&id| !stops.contains(&(id as u32))) else { break };
                run.push(next as u32);
            }
        }
        // The first grammar of a model waits for the vocabulary's tree.
        println!("  first grammar {:?}", made.remove(0));
        say("grammar", made);
        say("mask", masks);
        say("applying it", applied);
    }
}

fn say(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let mean = times.iter().sum::<Duration>() / times.len().max(1) as u32;
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "  {what:12} mean {mean:>10.1?}  median {:>10.1?}  99 % {:>10.1?}  worst {:>10.1?}  ({} times)",
        at(0.5),
        at(0.99),
        at(1.0),
        times.len()
    );
}
