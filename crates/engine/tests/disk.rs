//! The disk tier seen from outside: it changes no answer, survives restarts, holds up nobody, and
//! when it fails only costs what it would have saved.

mod common;

use std::path::Path;

use common::*;
use hearth_engine::{
    Answer, BLOCK, DiskError, DiskOptions, Engine, Sampling, Usage, start, start_with_disk,
};
use proptest::prelude::*;

fn disk(dir: &Path) -> DiskOptions {
    DiskOptions { dir: dir.into(), max_bytes: 1 << 30, min_free_bytes: 0, fingerprint: [1; 32] }
}

/// An engine on `dir`, as a process that was just started has it.
fn started(toy: Toy, dir: &Path, seqs: usize) -> Engine {
    let mut engine = engine(toy, limits(64, seqs, 2000));
    engine.keep_on_disk(&disk(dir)).unwrap();
    engine.flush();
    engine
}

fn prompt(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 7 + i / 5 + salt) % VOCAB as u32).collect()
}

fn usage(outcome: &Outcome) -> Usage {
    match outcome.end {
        End::Done(_, usage) => usage,
        _ => panic!("not done: {outcome:?}"),
    }
}

fn one(engine: &mut Engine, ask: &Ask) -> Outcome {
    let answer = submit(engine, ask);
    run(engine);
    outcome(answer)
}

fn seeded(prompt: &[u32]) -> Ask {
    let sampling = Sampling { temperature: 0.8, seed: 5, ..Sampling::default() };
    Ask { sampling, logprobs: Some(3), ..Ask::greedy(prompt, 40) }
}

#[test]
fn cold_and_warm_and_after_a_restart_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for ask in [Ask::greedy(&prompt(200, 3), 40), seeded(&prompt(200, 4))] {
        let expected = alone(&ask, 40, 2000);
        let mut first = started(Toy::new(40), dir.path(), 2);
        let cold = one(&mut first, &ask);
        assert_eq!(cold.said(), expected.said());
        assert_eq!((usage(&cold).cached_tokens, usage(&cold).disk_tokens), (0, 0));
        let warm = one(&mut first, &ask);
        assert_eq!(warm.said(), expected.said());
        assert_eq!((usage(&warm).cached_tokens, usage(&warm).disk_tokens), (199, 0));
        first.flush();
        drop(first);
        let mut second = started(Toy::new(40), dir.path(), 2);
        let restored = one(&mut second, &ask);
        assert_eq!(restored.said(), expected.said());
        assert_eq!((usage(&restored).cached_tokens, usage(&restored).disk_tokens), (192, 192));
        assert_eq!(second.stats().totals.disk_tokens, 192);
        assert_eq!(restored.cached, Some(192));
        // From here on it is in memory like anything else.
        assert_eq!(usage(&one(&mut second, &ask)).disk_tokens, 0);
        // The answer's own blocks were kept as well.
        let mut longer = ask.clone();
        longer.prompt.extend(&cold.tokens);
        assert_eq!(usage(&one(&mut second, &longer)).cached_tokens, 239);
        drop(second);
    }
}

/// What falls out of a small memory comes back from disk, without a restart.
#[test]
fn what_no_longer_fits_into_memory_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = started(Toy::new(12), dir.path(), 1);
    let asks: Vec<Ask> = (0..6).map(|salt| Ask::greedy(&prompt(300, salt), 4)).collect();
    for ask in &asks {
        assert_eq!(usage(&one(&mut engine, ask)).cached_tokens, 0);
    }
    engine.flush();
    for ask in &asks {
        let found = one(&mut engine, ask);
        assert_eq!(found.said(), alone(ask, 12, 2000).said());
        let usage = usage(&found);
        assert_eq!((usage.cached_tokens, usage.disk_tokens), (288, 288));
    }
    let stats = engine.stats().disk.unwrap();
    assert_eq!((stats.dropped, stats.damaged), (0, 0));
}

/// Many that begin alike bring the beginning back once.
#[test]
fn what_several_wait_for_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let start = prompt(256, 1);
    let mut first = started(Toy::new(40), dir.path(), 8);
    one(&mut first, &Ask::greedy(&start, 2));
    first.flush();
    drop(first);
    let mut engine = started(Toy::new(80), dir.path(), 8);
    let ask = |salt| Ask::greedy(&[&start[..], &prompt(20, salt)].concat(), 5);
    let answers: Vec<Answer> = (0..8).map(|salt| submit(&mut engine, &ask(salt))).collect();
    run(&mut engine);
    for (salt, answer) in (0..).zip(answers) {
        let found = outcome(answer);
        assert_eq!(found.said(), alone(&ask(salt), 80, 2000).said());
        assert_eq!(usage(&found).cached_tokens, 256);
    }
    assert_eq!(engine.stats().disk.unwrap().read, 8);
    assert_eq!(engine.stats().totals.disk_tokens, 256);
}

/// While large blocks come back, an answer that flows gets its token in every step.
#[test]
fn an_answer_that_flows_is_not_held_up() {
    let big = || Toy::with_padding(60, 3 << 20);
    let dir = tempfile::tempdir().unwrap();
    let long = Ask::greedy(&prompt(40 * BLOCK as u32 + 1, 2), 3);
    let mut first = started(big(), dir.path(), 2);
    one(&mut first, &long);
    first.flush();
    drop(first);
    let mut engine = started(big(), dir.path(), 2);
    let flowing = submit(&mut engine, &Ask::greedy(&prompt(5, 9), 400));
    engine.step();
    let restored = submit(&mut engine, &long);
    let mut n_steps = 0;
    while engine.stats().totals.disk_tokens < 40 * BLOCK as u64 {
        let before = engine.stats().totals;
        engine.step();
        let after = engine.stats().totals;
        // One more when the other begins to answer.
        assert!(after.generated_tokens > before.generated_tokens);
        assert!(after.disk_tokens - before.disk_tokens <= 3 * BLOCK as u64);
        n_steps += 1;
    }
    assert!(n_steps >= 40 / 3);
    drop(flowing);
    run(&mut engine);
    assert_eq!(outcome(restored).said(), alone(&long, 60, 2000).said());
}

#[test]
fn clearing_removes_it_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let ask = Ask::greedy(&prompt(100, 3), 4);
    let mut engine = started(Toy::new(20), dir.path(), 1);
    one(&mut engine, &ask);
    engine.flush();
    let cleared = engine.clear_cache();
    let disk = cleared.disk.unwrap();
    // Only full blocks go to disk.
    assert_eq!((cleared.blocks, disk.blocks, disk.segments), (4, 3, 1));
    assert!(disk.bytes > 3 * 12 * BLOCK as u64);
    assert_eq!(usage(&one(&mut engine, &ask)).cached_tokens, 0);
    engine.clear_cache();
    drop(engine);
    assert_eq!(usage(&one(&mut started(Toy::new(20), dir.path(), 1), &ask)).cached_tokens, 0);
}

#[test]
fn where_nothing_can_be_kept_everything_is_still_answered() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let blocked = disk(&file);
    let tiny = DiskOptions { max_bytes: 100, ..disk(dir.path()) };
    let mut plain = engine(Toy::new(20), limits(64, 1, 500));
    assert!(matches!(plain.keep_on_disk(&blocked), Err(DiskError::Io { .. })));
    assert!(matches!(plain.keep_on_disk(&tiny), Err(DiskError::TooSmall { .. })));
    let full = DiskOptions { min_free_bytes: u64::MAX, ..disk(dir.path()) };
    let ask = Ask::greedy(&prompt(100, 3), 4);
    for (options, has_disk) in [(blocked, false), (tiny, false), (full, true)] {
        let handle = start_with_disk(Box::new(Toy::new(20)), limits(64, 1, 500), &options);
        let (request, answer) = ask.request();
        handle.submit(request).unwrap();
        assert_eq!(outcome(answer).said(), alone(&ask, 20, 500).said());
        handle.flush().unwrap();
        let stats = handle.stats().disk;
        assert_eq!(stats.is_some(), has_disk);
        if let Some(stats) = stats {
            assert_eq!((stats.written, stats.write_errors, stats.dropped), (0, 1, 3));
        }
        handle.shutdown();
    }
}

/// A server that is stopped keeps what it computed.
#[test]
fn stopping_writes_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let ask = Ask::greedy(&prompt(300, 3), 100);
    let answer_of = |handle: &hearth_engine::Handle| {
        let (request, answer) = ask.request();
        handle.submit(request).unwrap();
        answer
    };
    let handle = start_with_disk(Box::new(Toy::new(40)), limits(64, 1, 500), &disk(dir.path()));
    let answer = answer_of(&handle);
    handle.shutdown();
    let expected = outcome(answer);
    let handle = start_with_disk(Box::new(Toy::new(40)), limits(64, 1, 500), &disk(dir.path()));
    handle.flush().unwrap();
    let again = outcome(answer_of(&handle));
    assert_eq!(again.said(), expected.said());
    assert_eq!(usage(&again).disk_tokens, 288);
    handle.shutdown();
    // Without a disk nothing is kept, and flushing is nothing to do.
    let handle = start(Box::new(Toy::new(40)), limits(64, 1, 500));
    handle.flush().unwrap();
    assert_eq!(usage(&outcome(answer_of(&handle))).disk_tokens, 0);
}

/// After a pass that broke off nobody knows what blocks in memory hold; those on disk are right.
#[test]
fn a_failed_device_spoils_nothing_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let ask = Ask::greedy(&prompt(200, 3), 30);
    let failing = Toy::with_accident(40, 9, Accident::DeviceError);
    let mut engine = started(failing, dir.path(), 1);
    assert!(matches!(one(&mut engine, &ask).end, End::Failed(_)));
    let again = one(&mut engine, &ask);
    assert_eq!(again.said(), alone(&ask, 40, 2000).said());
    drop(engine);
    let restored = one(&mut started(Toy::new(40), dir.path(), 1), &ask);
    assert_eq!(restored.said(), alone(&ask, 40, 2000).said());
}

/// What happens to a server, in order.
#[derive(Clone, Debug)]
enum Happening {
    Arrival(Box<Ask>),
    /// Whoever listens to the latest arrival leaves.
    Departure,
    Steps(usize),
    /// Some time without work, in which blocks are copied out.
    Idle,
    /// Another server takes over while this one still writes what it has.
    Restart,
    Clear,
}

fn asks() -> impl Strategy<Value = Ask> {
    let lengths = prop::sample::select(vec![5u32, 32, 33, 64, 96, 97, 130]);
    let samplings = prop_oneof![
        Just(Sampling::default()),
        (0..3u64).prop_map(|seed| Sampling { temperature: 0.8, seed, ..Sampling::default() }),
    ];
    (0..3u32, lengths, 0..3u32, 0..50usize, samplings).prop_map(
        |(salt, n, tail, max_tokens, sampling)| {
            let prompt = [prompt(n, salt), prompt(tail * 9 + 1, tail)].concat();
            Ask { sampling, ..Ask::greedy(&prompt, max_tokens) }
        },
    )
}

fn layers() -> impl Strategy<Value = Layers> {
    let windows = prop::sample::select(vec![1usize, 20, 32, 70]);
    prop_oneof![
        2 => Just(Layers::Full),
        2 => windows.clone().prop_map(Layers::Mixed),
        1 => windows.prop_map(Layers::Windowed),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        6 => asks().prop_map(|ask| Happening::Arrival(Box::new(ask))),
        1 => Just(Happening::Departure),
        4 => (1..9usize).prop_map(Happening::Steps),
        2 => Just(Happening::Idle),
        2 => Just(Happening::Restart),
        1 => Just(Happening::Clear),
    ];
    prop::collection::vec(one, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_request_alone(
        happenings in happenings(), n_blocks in prop::sample::select(vec![6usize, 9, 30]),
        max_bytes in prop::sample::select(vec![3000u64, 20_000, 1 << 30]),
        // `None`: a model without states.
        n_slots in prop::option::of(prop::sample::select(vec![6usize, 8, 40])),
        layers in layers(),
        more_panes in prop::sample::select(vec![0usize, 2, 30]),
    ) {
        let toy = || {
            let toy = n_slots.map_or_else(|| Toy::new(n_blocks), |n| Toy::hybrid(n_blocks, n));
            let least = layers.window().map_or(0, |window| window.div_ceil(BLOCK) + 1 + more_panes);
            toy.with_window(layers, least.min(n_blocks))
        };
        let dir = tempfile::tempdir().unwrap();
        let begin = || {
            let mut engine = engine(toy(), limits(24, 3, 180));
            engine.keep_on_disk(&DiskOptions { max_bytes, ..disk(dir.path()) }).unwrap();
            engine.flush();
            engine
        };
        let mut engine = begin();
        let mut listeners: Vec<(Ask, Answer)> = Vec::new();
        let check = |listeners: &mut Vec<(Ask, Answer)>| -> Result<(), TestCaseError> {
            for (ask, answer) in listeners.drain(..) {
                let expected = alone_on(toy(), &ask, 180);
                let found = outcome(answer);
                prop_assert_eq!(found.said(), expected.said(), "{:?}", ask);
            }
            Ok(())
        };
        for happening in happenings {
            match happening {
                Happening::Arrival(ask) => {
                    let answer = submit(&mut engine, &ask);
                    listeners.push((*ask, answer));
                }
                Happening::Departure => drop(listeners.pop()),
                Happening::Steps(n) => for _ in 0..n {
                    engine.step();
                    prop_assert_eq!(engine.faults(), None);
                },
                Happening::Idle => {
                    run(&mut engine);
                    check(&mut listeners)?;
                    engine.flush();
                }
                Happening::Restart => {
                    listeners.clear();
                    engine = begin();
                }
                Happening::Clear => drop(engine.clear_cache()),
            }
        }
        run(&mut engine);
        check(&mut listeners)?;
    }
}
