//! What a model some of whose layers see only a window holds, finds in the cache and brings back.
//!
//! On a toy; that answers stay what they are on real arithmetic is tested beside other models.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use hearth_engine::{DiskOptions, Engine, Miss, Panes, Usage};

const CONTEXT: usize = 4000;
const N_BLOCKS: usize = 130;
/// Two blocks and some.
const WINDOW: usize = 70;
/// Blocks of a window and the one that is being written.
const LEAST: usize = 4;
const MIXED: Layers = Layers::Mixed(WINDOW);

fn prompt(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 7 + i / 5 + salt) % VOCAB as u32).collect()
}

fn windowed(seqs: usize, n_windowed: usize) -> Engine {
    engine(Toy::windowed(N_BLOCKS, MIXED, n_windowed), limits(64, seqs, CONTEXT))
}

fn usage(outcome: &Outcome) -> Usage {
    match outcome.end {
        End::Done(_, usage) => usage,
        _ => panic!("not done: {outcome:?}"),
    }
}

/// The answer of an engine that has seen nothing and never gives up a block.
fn expected(layers: Layers, ask: &Ask) -> Outcome {
    alone_on(Toy::windowed(N_BLOCKS, layers, N_BLOCKS), ask, CONTEXT)
}

/// Asks, and compares.
fn one(engine: &mut Engine, ask: &Ask) -> Outcome {
    let answer = submit(engine, ask);
    run(engine);
    let found = outcome(answer);
    assert_eq!(found.said(), expected(MIXED, ask).said());
    found
}

/// Tokens that came from the cache, and why no more did.
fn cached(engine: &mut Engine, prompt: &[u32]) -> (usize, Option<Miss>) {
    let usage = usage(&one(engine, &Ask::greedy(prompt, 3)));
    (usage.cached_tokens, usage.miss)
}

/// However long a sequence is, it holds the blocks of its window and of the rows of a pass.
#[test]
fn what_is_behind_the_window_is_given_up() {
    for layers in [MIXED, Layers::Windowed(WINDOW)] {
        for n_windowed in [LEAST, LEAST + 2, N_BLOCKS] {
            let toy = Toy::windowed(N_BLOCKS, layers, n_windowed);
            let mut engine = engine(toy, limits(64, 1, CONTEXT));
            let ask = Ask::greedy(&prompt(1000, 0), 200);
            let answer = submit(&mut engine, &ask);
            let mut most = 0;
            while !engine.is_idle() {
                engine.step();
                assert_eq!(engine.faults(), None);
                most = most.max(engine.stats().panes.held);
            }
            assert_eq!(outcome(answer).said(), expected(layers, &ask).said());
            assert!(most <= LEAST, "{most} are held between passes");
            let Panes { free, kept, held } = engine.stats().panes;
            assert_eq!((free + kept, held), (n_windowed, 0));
        }
    }
}

#[test]
fn the_next_turn_and_the_same_prompt_go_on_from_their_ends() {
    let mut engine = windowed(1, 3 * LEAST);
    let first = prompt(600, 0);
    let answer = one(&mut engine, &Ask::greedy(&first, 61));
    assert_eq!(usage(&answer).miss, Some(Miss::Cold));
    // All of it but one token: its last block is begun with a copy, panes and all.
    assert_eq!(cached(&mut engine, &first).0, 599);
    let next = [&first[..], &answer.tokens, &prompt(30, 5)].concat();
    assert_eq!(cached(&mut engine, &next).0, 660);
}

#[test]
fn where_prompts_part_is_known_the_second_time() {
    let mut engine = windowed(1, 4 * LEAST);
    let start = prompt(500, 0);
    let other = |salt| [&start[..], &prompt(600, salt)].concat();
    assert_eq!(cached(&mut engine, &other(1)), (0, Some(Miss::Cold)));
    assert_eq!(cached(&mut engine, &other(2)), (0, Some(Miss::NoWindow { block: 0 })));
    assert_eq!(cached(&mut engine, &other(3)).0, 480);
    // As long as there is room, it is known the first time.
    let mut engine = windowed(1, N_BLOCKS);
    assert_eq!(cached(&mut engine, &other(1)).0, 0);
    assert_eq!(cached(&mut engine, &other(2)).0, 500);
}

#[test]
fn windows_are_kept_where_the_request_says_so() {
    let mut engine = windowed(1, 4 * LEAST);
    let start = prompt(500, 0);
    let other = |salt| [&start[..], &prompt(600, salt)].concat();
    one(&mut engine, &Ask { marks: vec![5, 500, 9000], pin: 70, ..Ask::greedy(&other(1), 3) });
    assert_eq!(cached(&mut engine, &other(2)).0, 480);
    assert_eq!(cached(&mut engine, &[&start[..75], &prompt(60, 7)].concat()).0, 64);
}

/// What is pinned outlasts windows that were used later.
#[test]
fn windows_of_pinned_beginnings_go_last() {
    let mut engine = windowed(1, 3 * LEAST);
    let system = prompt(200, 1);
    let ask = |salt| [&system[..], &prompt(20, salt)].concat();
    one(&mut engine, &Ask { pin: 200, ..Ask::greedy(&ask(0), 2) });
    for salt in 2..8 {
        one(&mut engine, &Ask::greedy(&prompt(300, salt), 2));
    }
    assert_eq!(cached(&mut engine, &ask(9)).0, 192);
}

#[test]
fn what_many_share_is_computed_once() {
    let start = prompt(256, 1);
    let ask = |salt| Ask::greedy(&[&start[..], &prompt(20, salt)].concat(), 5);
    let mut engine = windowed(8, 8 * LEAST);
    let answers: Vec<_> = (0..8).map(|salt| submit(&mut engine, &ask(salt))).collect();
    run(&mut engine);
    for (salt, answer) in (0..).zip(answers) {
        assert_eq!(outcome(answer).said(), expected(MIXED, &ask(salt)).said());
    }
    let rows = engine.stats().totals.prompt_rows;
    assert!(rows <= 256 + 8 * 20, "{rows} rows");
}

/// Room for the windows of one and a half: somebody is parked, and says the same later.
#[test]
fn whoever_finds_no_room_for_a_window_is_parked() {
    let mut engine = windowed(3, LEAST + 2);
    let asks = [1, 2, 3].map(|salt| Ask::greedy(&prompt(30 * salt, salt), 400));
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    run(&mut engine);
    for (ask, answer) in asks.iter().zip(answers) {
        assert_eq!(outcome(answer).said(), expected(MIXED, ask).said());
    }
    // A more urgent one gets the room of another.
    let slow = submit(&mut engine, &Ask::greedy(&prompt(200, 7), 300));
    (0..20).for_each(|_| engine.step());
    let before = engine.stats().totals.preemptions;
    let urgent = Ask { priority: -1, ..Ask::greedy(&prompt(200, 8), 300) };
    let quick = submit(&mut engine, &urgent);
    (0..20).for_each(|_| engine.step());
    assert!(engine.stats().totals.preemptions > before);
    run(&mut engine);
    assert_eq!(outcome(quick).said(), expected(MIXED, &urgent).said());
    assert_eq!(outcome(slow).tokens.len(), 300);
}

fn started(dir: &Path, layers: Layers, n_windowed: usize) -> Engine {
    let toy = Toy::windowed(N_BLOCKS, layers, n_windowed);
    let mut engine = engine(toy, limits(64, 1, CONTEXT));
    let (dir, fingerprint) = (dir.to_owned(), [1; 32]);
    let disk = DiskOptions { dir, max_bytes: 1 << 30, min_free_bytes: 0, fingerprint };
    engine.keep_on_disk(&disk).unwrap();
    engine.flush();
    engine
}

/// Files below a directory, with their bytes.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push((path.clone(), std::fs::read(path).unwrap())),
        }
    }
    files
}

/// Whichever record is damaged, of a block or of a window, what it held is computed anew.
#[test]
fn a_damaged_window_on_disk_is_computed_anew() {
    for layers in [MIXED, Layers::Windowed(WINDOW)] {
        let dir = tempfile::tempdir().unwrap();
        let ask = Ask::greedy(&prompt(470, 0), 3);
        let mut engine = started(dir.path(), layers, 4 * LEAST);
        let answer = submit(&mut engine, &ask);
        run(&mut engine);
        outcome(answer);
        engine.flush();
        let n_written = engine.stats().disk.unwrap().written as usize;
        drop(engine);
        let whole = files(dir.path());
        let (path, bytes) = whole.iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
        let mut n_damaged = 0;
        for record in 0..n_written {
            let mut damaged = bytes.clone();
            damaged[(2 * record + 1) * bytes.len() / (2 * n_written)] ^= 0x10;
            std::fs::write(path, damaged).unwrap();
            let mut engine = started(dir.path(), layers, 4 * LEAST);
            let answer = submit(&mut engine, &ask);
            run(&mut engine);
            assert_eq!(
                outcome(answer).said(),
                expected(layers, &ask).said(),
                "{layers:?} {record}"
            );
            n_damaged += engine.stats().disk.unwrap().damaged;
            // What was computed anew was written too.
            drop(engine);
            files(dir.path()).iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
            whole.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        }
        assert!(n_damaged > n_written as u64 / 2, "{layers:?}: {n_damaged} of {n_written} seen");
    }
}

/// From disk comes every block, and of layers with a window those of the last one.
#[test]
fn only_the_last_window_comes_back() {
    // A pane of the toy takes three records where there is something beside it, else one.
    for (layers, records) in [(MIXED, 30 + 3 * 3), (Layers::Windowed(WINDOW), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let mut engine = started(dir.path(), layers, 4 * LEAST);
        let ask = Ask::greedy(&prompt(970, 0), 3);
        let answer = submit(&mut engine, &ask);
        run(&mut engine);
        outcome(answer);
        engine.flush();
        let written = engine.stats().disk.unwrap().written;
        assert!(written <= records + 3, "windows on the way are not written: {written}");
        drop(engine);
        let mut engine = started(dir.path(), layers, LEAST + 1);
        let answer = submit(&mut engine, &ask);
        run(&mut engine);
        let found = outcome(answer);
        assert_eq!(found.said(), expected(layers, &ask).said());
        assert_eq!((usage(&found).cached_tokens, usage(&found).disk_tokens), (960, 960));
        assert_eq!(engine.stats().disk.unwrap().read, records, "{layers:?}");
    }
}
