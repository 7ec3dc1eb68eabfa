//! The engine's promise on real arithmetic: same request, same bytes, on tiny models of several
//! families.

mod common;

use std::time::Duration;

use backend::reference::Reference;
use backend::{Backend, TokenId};
use common::{Ask, Outcome, assert_books_balance, outcome, run, submit};
use cpu::{Cpu, Options};
use hearth_engine::{Engine, ExecutorShape, Limits, ModelExecutor, Sampling};
use models::{Decoder, tiny};

fn engine<B: Backend>(device: B, model_type: &str, rows: usize, seqs: usize) -> Engine {
    let config = tiny::config(model_type).unwrap();
    let checkpoint = tiny::checkpoint(config, 5).unwrap();
    let spec = models::recipe(&checkpoint.config).unwrap();
    let decoder = Decoder::load(&spec, &checkpoint, &device).unwrap();
    let shape = ExecutorShape { n_blocks: 80, max_rows: rows, max_want: seqs };
    let executor = ModelExecutor::new(device, decoder, shape);
    let limits = Limits { rows, seqs, queue: 100, context: 4096 };
    Engine::new(Box::new(executor), limits, Box::new(|| Duration::ZERO))
}

/// Eight requests of all lengths, some with a common beginning, greedy and seeded in turn.
fn asks() -> Vec<Ask> {
    let start: Vec<TokenId> = (0..70).map(|i| (i * 37 + 11) % 250).collect();
    let lengths = [1, 5, 32, 33, 64, 71, 90, 130];
    let ask = |(i, n): (u32, usize)| {
        let tail = (0..n as u32).map(|j| (j * 13 + i * 29) % 250);
        let shared = if n > 60 { 64 } else { 0 };
        let prompt: Vec<TokenId> = start[..shared].iter().copied().chain(tail).take(n).collect();
        let temperature = if i % 2 == 0 { 0.0 } else { 0.9 };
        let seed = u64::from(i);
        let sampling = Sampling { temperature, seed, ..Sampling::default() };
        Ask { sampling, logprobs: Some(2), ..Ask::greedy(&prompt, 20) }
    };
    (0..).zip(lengths).map(ask).collect()
}

fn together(engine: &mut Engine, asks: &[Ask]) -> Vec<Outcome> {
    let answers: Vec<_> = asks.iter().map(|ask| submit(engine, ask)).collect();
    run(engine);
    assert_books_balance(engine);
    answers.into_iter().map(outcome).collect()
}

fn assert_same(found: &[Outcome], expected: &[Outcome], what: &str) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.said(), expected.said(), "{what}, request {i}");
    }
}

/// The expected answers: each request alone on a fresh engine, its prompt in one piece.
fn alone<B: Backend>(device: impl Fn() -> B, model_type: &str) -> Vec<Outcome> {
    let one = |ask: Ask| together(&mut engine(device(), model_type, 512, 1), &[ask]).remove(0);
    asks().into_iter().map(one).collect()
}

fn check<B: Backend>(device: impl Fn() -> B, model_type: &str, expected: &[Outcome]) {
    let mut crowd = engine(device(), model_type, 512, 8);
    let outcomes = together(&mut crowd, &asks());
    assert_same(&outcomes, expected, &format!("{model_type}: in a batch of 8"));
    let again = together(&mut crowd, &asks());
    assert!(again.iter().filter(|outcome| outcome.cached >= Some(32)).count() >= 4);
    assert_same(&again, expected, &format!("{model_type}: with a prefix hit"));
    for (chunk, seqs) in [(1, 1), (7, 1), (64, 1), (64, 8), (8, 8)] {
        let outcomes = together(&mut engine(device(), model_type, chunk, seqs), &asks());
        assert_same(&outcomes, expected, &format!("{model_type}: {chunk} rows, {seqs} at once"));
    }
}

#[test]
fn the_reference_device_keeps_the_promise() {
    // Between them: a window, norms of heads, a mixture of experts.
    for model_type in ["llama", "gemma3_text", "qwen3_moe"] {
        check(|| Reference, model_type, &alone(|| Reference, model_type));
    }
}

/// One thread gives the expected answers, two have to give the same ones.
#[test]
fn the_cpu_device_keeps_the_promise_with_any_number_of_threads() {
    let device = |threads| move || Cpu::new(&Options { threads, ..Options::default() });
    for model_type in ["llama", "qwen2", "qwen3_moe", "gemma2", "gemma3_text"] {
        let expected = alone(device(1), model_type);
        check(device(1), model_type, &expected);
        check(device(2), model_type, &expected);
    }
}
