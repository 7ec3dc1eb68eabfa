//! Random traffic on real arithmetic, with restarts: whatever comes when, every answer is that of the
//! request alone on a fresh engine, and in the end nothing is left behind.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backend::BLOCK;
use common::{
    Ask, End, Outcome, SmallSteps, assert_books_balance, checkpoint, outcome, run, submit,
    submit_at,
};
use cpu::{Cpu, Options};
use hearth_engine::{
    Answer, DiskOptions, Engine, ExecutorShape, Failure, Limits, ModelExecutor, Sampling,
};
use models::recipe::{Branch, Mixer};
use models::{Decoder, ModelSpec};
use proptest::prelude::*;

const MODELS: [&str; 7] =
    ["llama", "gemma3_text", "mistral", "qwen3_moe", "affine4", "qwen3_next", "qwen3_5_text"];
/// Less than a block, one, not whole blocks, more than the context, and one position: itself.
const WINDOWS: [usize; 6] = [1, 5, 32, 40, 75, 500];
/// Tokens of prompt and answer. Fits into the smallest pool.
const CONTEXT: usize = 150;

/// How an engine is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    n_blocks: usize,
    rows: usize,
    seqs: usize,
    /// Recurrent states, and blocks of layers with a window, beyond those that have to be.
    more: usize,
    /// Positions that layers with a window see.
    window: usize,
    stall_target: Option<Duration>,
}

/// The same model with another window in all layers that have one.
fn with_window(mut spec: ModelSpec, window: usize) -> ModelSpec {
    let steps = spec.layers.iter_mut().flat_map(|layer| &mut layer.steps);
    for branch in steps.flat_map(|step| &mut step.branches) {
        if let Branch::Mixer(Mixer::Attention(attention)) = branch
            && let Some(own) = &mut attention.shape.window
        {
            *own = window;
        }
    }
    spec
}

/// An engine whose clock goes on by a millisecond whenever somebody looks.
fn engine(name: &str, setup: Setup) -> Engine {
    let device = Cpu::new(&Options { threads: 1, ..Options::default() });
    let checkpoint = checkpoint(name);
    let spec = with_window(models::recipe(&checkpoint.config).unwrap(), setup.window);
    let decoder = Decoder::load(&spec, &checkpoint, &device).unwrap();
    let Setup { n_blocks, rows, seqs, more, window, stall_target } = setup;
    let n_slots = 2 * seqs + more;
    let n_windowed = n_blocks.min(window.div_ceil(BLOCK) + 1 + more);
    let shape =
        ExecutorShape { n_blocks, n_windowed, n_slots, max_rows: rows.max(seqs), max_want: seqs };
    let executor = ModelExecutor::new(device, decoder, shape);
    let limits = Limits { rows, seqs, queue: 100, context: CONTEXT, stall_target };
    let now = AtomicU64::new(0);
    let clock = Box::new(move || Duration::from_millis(now.fetch_add(1, Ordering::Relaxed)));
    Engine::new(Box::new(executor), limits, clock)
}

/// The same, started on what others left on disk. There is little room, so old segments make way.
fn engine_on(dir: &Path, name: &str, setup: Setup) -> Engine {
    let mut engine = engine(name, setup);
    let (dir, fingerprint) = (dir.to_owned(), [1; 32]);
    let disk = DiskOptions { dir, max_bytes: 1 << 20, min_free_bytes: 0, fingerprint };
    engine.keep_on_disk(&disk).unwrap();
    engine.flush();
    engine
}

/// The requests that traffic is made of: all lengths, common beginnings that end anywhere, greedy
/// and seeded, some with a grammar, some that go on to the end of the context.
fn asks() -> Vec<Ask> {
    let start: Vec<u32> = (0..100).map(|i| (i * 37 + 11) % 96).collect();
    let cases = [
        (0, 3, 10),
        (0, 40, 20),
        (20, 30, 60),
        (32, 10, 30),
        (64, 5, 500),
        (64, 40, 12),
        (70, 9, 40),
        (70, 9, 70),
        (95, 1, 500),
        (95, 30, 5),
        (100, 0, 30),
        (100, 0, 500),
    ];
    let ask = |(i, (shared, own, max_tokens)): (u32, (usize, u32, usize))| {
        let tail = (0..own).map(|j| (j * 13 + i * 29) % 96);
        let prompt: Vec<u32> = start[..shared].iter().copied().chain(tail).collect();
        let temperature = if i % 2 == 0 { 0.0 } else { 0.9 };
        let sampling = Sampling { temperature, seed: u64::from(i), ..Sampling::default() };
        let small_steps = (i % 5 == 3).then_some(SmallSteps::new(i));
        // Of those with a grammar some want probabilities, for which no token is skipped.
        let logprobs = (i != 8).then_some(1);
        Ask { sampling, small_steps, logprobs, ..Ask::greedy(&prompt, max_tokens) }
    };
    (0..).zip(cases).map(ask).collect()
}

/// Answers by model, window and request.
type Known = HashMap<(&'static str, usize, usize), Outcome>;

/// The answer of the request alone, its prompt in one piece.
fn expected(name: &'static str, window: usize, which: usize) -> Outcome {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap();
    let known = known.get_or_insert_default();
    let alone = || {
        // So many that none is ever given up.
        let (n_blocks, more) = (8, 8);
        let setup = Setup { n_blocks, rows: 128, seqs: 1, more, window, stall_target: None };
        let mut engine = engine(name, setup);
        let answer = submit(&mut engine, &asks()[which]);
        run(&mut engine);
        outcome(answer)
    };
    known.entry((name, window, which)).or_insert_with(alone).clone()
}

#[derive(Clone, Debug)]
enum Happening {
    /// A request, with its priority and its timeout.
    Arrival(usize, i32, Option<Duration>),
    Departure(usize),
    Steps(usize),
    ClearCache,
    /// Another process goes on with the disk. Whoever listened is cut off.
    Restart,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let timeout = prop::option::weighted(0.15, (0..300u64).prop_map(Duration::from_millis));
    let arrival = (0..asks().len(), -1..2i32, timeout);
    let one = prop_oneof![
        6 => arrival.prop_map(|(which, priority, timeout)| Happening::Arrival(which, priority, timeout)),
        1 => (0..20usize).prop_map(Happening::Departure),
        4 => (1..12usize).prop_map(Happening::Steps),
        1 => Just(Happening::ClearCache),
        1 => Just(Happening::Restart),
    ];
    prop::collection::vec(one, 1..30)
}

fn setups() -> impl Strategy<Value = Setup> {
    let stall = prop::option::of((0..20u64).prop_map(Duration::from_millis));
    let pools = prop::sample::select(vec![5usize, 6, 9, 30]);
    let rows = prop::sample::select(vec![1usize, 5, 17, 64, 128]);
    let more = prop::sample::select(vec![0usize, 1, 2, 20]);
    let windows = prop::sample::select(WINDOWS.to_vec());
    (pools, rows, 1..7usize, more, windows, stall).prop_map(
        |(n_blocks, rows, seqs, more, window, stall_target)| Setup {
            n_blocks,
            rows,
            seqs,
            more,
            window,
            stall_target,
        },
    )
}

/// An answer is what it should be, or its beginning if a time limit or a restart cut it off.
fn check(found: &Outcome, expected: &Outcome) -> Result<(), TestCaseError> {
    match &found.end {
        End::Failed(Failure::TimedOut { .. }) | End::Nothing => {
            let n = found.tokens.len();
            prop_assert_eq!(Some(&found.tokens[..]), expected.tokens.get(..n));
            prop_assert_eq!(Some(&found.logprobs[..]), expected.logprobs.get(..n));
        }
        _ => prop_assert_eq!(found.said(), expected.said()),
    }
    Ok(())
}

/// How many files in a folder this process has open, where the system tells.
fn open_files(dir: &Path) -> usize {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let paths = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    paths.filter(|path| path.starts_with(dir)).count()
}

/// Lets all of it happen, and compares every answer.
fn play(name: &'static str, setup: Setup, happenings: Vec<Happening>) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = engine_on(dir.path(), name, setup);
    let mut listeners: Vec<(usize, Option<Answer>)> = Vec::new();
    let mut n_steps = 0;
    for happening in happenings {
        match happening {
            Happening::Arrival(which, priority, timeout) => {
                let ask = Ask {
                    priority,
                    timeout,
                    pin: 64,
                    marks: vec![32 * which],
                    ..asks()[which].clone()
                };
                // About what its clock says: several looks per step.
                let at = Duration::from_millis(n_steps * 3);
                listeners.push((which, Some(submit_at(&mut engine, &ask, at))));
            }
            Happening::Departure(_) if listeners.is_empty() => {}
            Happening::Departure(which) => {
                let which = which % listeners.len();
                listeners[which].1 = None;
            }
            Happening::Steps(n) => {
                for _ in 0..n {
                    engine.step();
                    n_steps += 1;
                    prop_assert_eq!(engine.faults(), None);
                }
            }
            Happening::ClearCache => {
                engine.clear_cache();
                prop_assert_eq!(engine.stats().blocks.cached, 0);
            }
            Happening::Restart => {
                count_restored(name, &engine);
                drop(engine);
                for (which, answer) in listeners.drain(..) {
                    if let Some(answer) = answer {
                        check(&outcome(answer), &expected(name, setup.window, which))?;
                    }
                }
                engine = engine_on(dir.path(), name, setup);
                n_steps = 0;
            }
        }
    }
    run(&mut engine);
    assert_books_balance(&engine);
    let stats = engine.stats();
    prop_assert_eq!((stats.running, stats.waiting, stats.parked), (0, 0, 0));
    count_restored(name, &engine);
    drop(engine);
    prop_assert_eq!(open_files(dir.path()), 0);
    for (which, answer) in listeners {
        let Some(answer) = answer else { continue };
        let found = outcome(answer);
        prop_assert_ne!(&found.end, &End::Nothing);
        check(&found, &expected(name, setup.window, which))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    fn any_traffic(
        name in prop::sample::select(MODELS.to_vec()),
        setup in setups(),
        happenings in happenings(),
    ) {
        play(name, setup, happenings)?;
    }
}

/// Tokens that came back from disk in all of the traffic: of models without and with states.
static RESTORED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn count_restored(name: &str, engine: &Engine) {
    let has_states = name.starts_with("qwen3_next") || name.starts_with("qwen3_5");
    let tokens = engine.stats().totals.disk_tokens;
    RESTORED[usize::from(has_states)].fetch_add(tokens, Ordering::Relaxed);
}

#[test]
fn every_answer_is_that_of_the_request_alone() {
    any_traffic();
    assert!(RESTORED.iter().all(|tokens| tokens.load(Ordering::Relaxed) > 0));
}

/// Clearing the disk leaves the blocks of those that run to be written again. In a tiny pool they are
/// overwritten by others before that, and somebody else asks for them later.
#[test]
fn a_block_is_kept_as_it_was_before_it_is_overwritten() {
    use Happening::{Arrival, ClearCache, Steps};
    let arrival = |which| Arrival(which, 0, None);
    let setup = Setup { n_blocks: 5, rows: 17, seqs: 2, more: 2, window: 33, stall_target: None };
    let happenings = [
        arrival(0),
        arrival(0),
        arrival(9),
        arrival(2),
        Steps(4),
        arrival(0),
        Steps(9),
        ClearCache,
        Arrival(4, -1, None),
        arrival(9),
    ];
    for name in MODELS {
        for late in 0..30 {
            let mut happenings = happenings.to_vec();
            happenings.insert(7, Steps(late));
            play(name, setup, happenings).unwrap();
        }
    }
}
