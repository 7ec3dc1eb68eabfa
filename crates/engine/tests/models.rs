//! The engine's promise on real arithmetic: same request, same bytes, on tiny models of several
//! families.

mod common;

use std::path::Path;
use std::time::Duration;

use backend::reference::Reference;
use backend::{BLOCK, Backend, KvFormat, KvGroup, TokenId};
use common::{Ask, Outcome, assert_books_balance, checkpoint, outcome, run, submit};
use cpu::{Cpu, Options};
use hearth_engine::{
    DiskError, DiskOptions, Engine, Executor, ExecutorShape, Limits, ModelExecutor, Sampling,
};
use models::{Decoder, tiny};

/// A model, by its name, and how it stores keys and values.
type Subject<'a> = (&'a str, KvFormat);

fn engine<B: Backend>(device: B, (name, format): Subject<'_>, rows: usize, seqs: usize) -> Engine {
    let checkpoint = checkpoint(name);
    let spec = models::recipe(&checkpoint.config).unwrap().with_kv_format(format);
    let decoder = Decoder::load(&spec, &checkpoint, &device).unwrap();
    let shape = ExecutorShape {
        n_blocks: 80,
        n_windowed: 60,
        n_slots: 2 * seqs + 24,
        max_rows: rows,
        max_want: seqs,
    };
    let executor = ModelExecutor::new(device, decoder, shape);
    let limits = Limits { rows, seqs, queue: 100, context: 4096, stall_target: None };
    Engine::new(Box::new(executor), limits, Box::new(|| Duration::ZERO))
}

/// What is copied of a block is what a block is said to take.
#[test]
fn blocks_weigh_what_the_plan_says() {
    let device = Cpu::new(&Options { threads: 1, ..Options::default() });
    let mut n = 0;
    let formats = |name| KvFormat::ALL.map(|format| (name, format));
    for (name, format) in models::SUPPORTED.iter().flat_map(formats) {
        let Some(config) = tiny::config(name) else { continue };
        let checkpoint = tiny::checkpoint(config, 5).unwrap();
        let spec = models::recipe(&checkpoint.config).unwrap().with_kv_format(format);
        let shape =
            ExecutorShape { n_blocks: 2, n_windowed: 2, n_slots: 2, max_rows: 4, max_want: 1 };
        let on_cpu = Decoder::load(&spec, &checkpoint, &device).unwrap();
        let on_reference = Decoder::load(&spec, &checkpoint, &Reference).unwrap();
        let executors: [Box<dyn Executor>; 2] = [
            Box::new(ModelExecutor::new(Cpu::new(&Options::default()), on_cpu, shape)),
            Box::new(ModelExecutor::new(Reference, on_reference, shape)),
        ];
        for executor in executors {
            for group in [KvGroup::Full, KvGroup::Windowed] {
                let bytes = spec.group_bytes_per_block(group);
                assert_eq!(executor.block_bytes(group), bytes, "{name}");
            }
            assert!(executor.state_bytes() >= spec.state_bytes(), "{name}");
        }
        n += 1;
    }
    assert!(n >= 12);
}

/// Eight requests of all lengths, some with a common beginning, greedy and seeded in turn.
fn asks() -> Vec<Ask> {
    let start: Vec<TokenId> = (0..70).map(|i| (i * 37 + 11) % 96).collect();
    let lengths = [1, 5, 32, 33, 64, 71, 90, 130];
    let ask = |(i, n): (u32, usize)| {
        let tail = (0..n as u32).map(|j| (j * 13 + i * 29) % 96);
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

/// What two answers to the same request must have in common.
type Compare = fn(&Outcome, &Outcome, &str);

/// Everything: the promise.
fn every_byte(found: &Outcome, expected: &Outcome, what: &str) {
    assert_eq!(found.said(), expected.said(), "{what}");
}

fn assert_same(found: &[Outcome], expected: &[Outcome], what: &str, compare: Compare) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        compare(found, expected, &format!("{what}, request {i}"));
    }
}

/// The expected answers: each request alone on a fresh engine, its prompt in one piece.
fn alone<B: Backend>(device: impl Fn() -> B, subject: Subject<'_>) -> Vec<Outcome> {
    let one = |ask: Ask| together(&mut engine(device(), subject, 512, 1), &[ask]).remove(0);
    asks().into_iter().map(one).collect()
}

fn check<B: Backend>(
    device: impl Fn() -> B,
    subject: Subject<'_>,
    (expected, compare): (&[Outcome], Compare),
) {
    let name = format!("{subject:?}");
    let mut crowd = engine(device(), subject, 512, 8);
    let outcomes = together(&mut crowd, &asks());
    assert_same(&outcomes, expected, &format!("{name}: in a batch of 8"), compare);
    let again = together(&mut crowd, &asks());
    let hits = again.iter().filter(|outcome| outcome.cached >= Some(32)).count();
    assert!(hits >= 4, "{name}: {hits} hits");
    assert_same(&again, expected, &format!("{name}: with a prefix hit"), compare);
    for (chunk, seqs) in [(1, 1), (7, 1), (64, 1), (64, 8), (8, 8)] {
        let outcomes = together(&mut engine(device(), subject, chunk, seqs), &asks());
        let what = format!("{name}: {chunk} rows, {seqs} at once");
        assert_same(&outcomes, expected, &what, compare);
    }
    if has_pages(subject.0) {
        check_restart(device, subject, (expected, compare));
    } else {
        let dir = tempfile::tempdir().unwrap();
        let error =
            engine(device(), subject, 64, 4).keep_on_disk(&on_disk(dir.path())).unwrap_err();
        assert!(matches!(error, DiskError::NoBlocks), "{error}");
    }
}

/// States go to disk in blocks of pages, so a model without pages keeps nothing there.
fn has_pages(name: &str) -> bool {
    models::recipe(&checkpoint(name).config).unwrap().kv_bytes_per_token() > 0
}

fn on_disk(dir: &Path) -> DiskOptions {
    let (dir, fingerprint) = (dir.to_owned(), [1; 32]);
    DiskOptions { dir, max_bytes: 1 << 30, min_free_bytes: 0, fingerprint }
}

/// The first engine computes and keeps, the second finds it on disk.
fn check_restart<B: Backend>(
    device: impl Fn() -> B,
    subject: Subject<'_>,
    (expected, compare): (&[Outcome], Compare),
) {
    let name = format!("{subject:?}");
    let dir = tempfile::tempdir().unwrap();
    let started = || {
        let mut engine = engine(device(), subject, 64, 4);
        engine.keep_on_disk(&on_disk(dir.path())).unwrap();
        engine.flush();
        engine
    };
    let mut first = started();
    let what = format!("{name}: kept on disk");
    assert_same(&together(&mut first, &asks()), expected, &what, compare);
    first.flush();
    drop(first);
    let mut second = started();
    let what = format!("{name}: from disk");
    assert_same(&together(&mut second, &asks()), expected, &what, compare);
    // Two blocks that several begin with, and three of single requests.
    assert_eq!(second.stats().totals.disk_tokens, 5 * BLOCK as u64);
}

#[test]
fn the_reference_device_keeps_the_promise() {
    // Between them: windows, norms of heads, keys of other layers, a mixture of experts, latents,
    // recurrent states with pages beside them and without.
    let names =
        ["llama", "gemma3_text", "gemma4_text", "qwen3_moe", "qwen3_next", "mamba2", "deepseek_v3"];
    let names = names.into_iter().chain(["falcon_h1", "gemma3n_text"]);
    let names = names.map(|name| (name, KvFormat::Int16));
    let half = ["gemma4_text", "qwen3_next"].map(|name| (name, KvFormat::F16));
    let eight_bit = ["gemma4_text", "qwen3_next", "youtu"].map(|name| (name, KvFormat::Int8));
    for subject in names.chain(half).chain(eight_bit) {
        check(|| Reference, subject, (&alone(|| Reference, subject), every_byte));
    }
}

/// One thread gives the expected answers, two have to give the same ones.
#[test]
fn the_cpu_device_keeps_the_promise_with_any_number_of_threads() {
    let device = |threads| move || Cpu::new(&Options { threads, ..Options::default() });
    let names =
        ["llama", "qwen2", "qwen3_moe", "gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text"];
    let streams = ["gemma3n_text", "gemma4_text"];
    let states = ["lfm2", "mamba2", "granitemoehybrid", "falcon_h1", "kimi_linear", "nemotron_h"];
    let latents = ["youtu", "minicpm3", "deepseek_v2"];
    let packed = ["affine4", "affine8", "moe_affine4"];
    let names = names.into_iter().chain(streams).chain(states).chain(latents).chain(packed);
    let names = names.map(|name| (name, KvFormat::Int16));
    let half = ["llama", "gemma3_text", "moe_affine4"].map(|name| (name, KvFormat::F16));
    let eight_bit =
        ["llama", "gemma3_text", "moe_affine4", "deepseek_v3"].map(|name| (name, KvFormat::Int8));
    for subject in names.chain(half).chain(eight_bit) {
        let expected = alone(device(1), subject);
        check(device(1), subject, (&expected, every_byte));
        check(device(2), subject, (&expected, every_byte));
    }
}

/// MLX chooses its kernels by the number of rows, so bits are not promised there: the same tokens, and
/// nearly the same logarithms.
#[cfg(feature = "installed-mlx")]
#[test]
fn mlx_says_the_same_tokens_whatever_is_around_a_request() {
    let device = || {
        let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
        let options = mlx::Options {
            library: Some(library.into()),
            precision: mlx::Precision::F32,
            cache_bytes: Some(1 << 28),
            ..Default::default()
        };
        mlx::Mlx::open(&options).expect("the library that HEARTH_MLX names")
    };
    fn nearly(found: &Outcome, expected: &Outcome, what: &str) {
        let ((tokens, logprobs, reason), wanted) = (found.said(), expected.said());
        assert_eq!((tokens, reason), (wanted.0, wanted.2), "{what}");
        for (found, wanted) in logprobs.iter().flatten().zip(wanted.1.iter().flatten()) {
            let off = (found.logprob - wanted.logprob).abs();
            assert!(off < 1e-3, "{what}: {off} off");
        }
    }
    let names = ["llama", "gemma3_text", "gemma4_text", "qwen3_moe", "qwen3_next", "deepseek_v3"];
    let names = names.into_iter().chain(["falcon_h1", "lfm2", "mamba2", "affine4", "gemma3n_text"]);
    let names = names.map(|name| (name, KvFormat::F16));
    let others = [("llama", KvFormat::Int16), ("llama", KvFormat::Int8)];
    for subject in names.chain(others) {
        let expected = alone(device, subject);
        check(device, subject, (&expected, nearly));
    }
}
