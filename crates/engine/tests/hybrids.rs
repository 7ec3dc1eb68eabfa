//! What a model with recurrent states finds in the cache, and what it is spared by that.
//!
//! On a toy; that answers stay what they are on real arithmetic is tested beside other models.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use hearth_engine::{Answer, DiskOptions, Engine, Miss, Usage};

const CONTEXT: usize = 8000;

fn prompt(n: u32, salt: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 7 + i / 5 + salt) % VOCAB as u32).collect()
}

fn hybrid(seqs: usize, n_slots: usize) -> Engine {
    engine(Toy::hybrid(400, n_slots), limits(64, seqs, CONTEXT))
}

fn usage(outcome: &Outcome) -> Usage {
    match outcome.end {
        End::Done(_, usage) => usage,
        _ => panic!("not done: {outcome:?}"),
    }
}

/// Asks, and compares with the answer of an engine that has seen nothing.
fn one(engine: &mut Engine, ask: &Ask) -> Outcome {
    let answer = submit(engine, ask);
    run(engine);
    let found = outcome(answer);
    assert_eq!(found.said(), alone_on(Toy::hybrid(400, 2), ask, CONTEXT).said());
    found
}

/// Tokens that came from the cache, and why no more did.
fn cached(engine: &mut Engine, prompt: &[u32]) -> (usize, Option<Miss>) {
    let usage = usage(&one(engine, &Ask::greedy(prompt, 3)));
    (usage.cached_tokens, usage.miss)
}

#[test]
fn the_next_turn_and_the_same_prompt_go_on_from_their_ends() {
    let mut engine = hybrid(1, 12);
    let first = prompt(100, 0);
    let answer = one(&mut engine, &Ask::greedy(&first, 61));
    assert_eq!(usage(&answer).miss, Some(Miss::Cold));
    assert_eq!(cached(&mut engine, &first), (96, None));
    let next = [&first[..], &answer.tokens, &prompt(30, 5)].concat();
    assert_eq!(cached(&mut engine, &next).0, 160);
    // A prompt that ends with a block is found one block before: a token is left to compute.
    let whole = prompt(128, 3);
    one(&mut engine, &Ask::greedy(&whole, 1));
    assert_eq!(cached(&mut engine, &whole).0, 96);
    assert_eq!(cached(&mut engine, &[&whole[..], &[1]].concat()).0, 128);
}

#[test]
fn where_prompts_part_is_known_the_second_time() {
    let mut engine = hybrid(1, 12);
    let start = prompt(200, 0);
    let other = |salt| [&start[..], &prompt(60, salt)].concat();
    assert_eq!(cached(&mut engine, &other(1)), (0, Some(Miss::Cold)));
    assert_eq!(cached(&mut engine, &other(2)), (0, Some(Miss::NoState { block: 0 })));
    assert_eq!(cached(&mut engine, &other(3)), (192, Some(Miss::Diverged { block: 6 })));
}

#[test]
fn states_are_kept_where_the_request_says_so() {
    let mut engine = hybrid(1, 12);
    let start = prompt(200, 0);
    let other = |salt| [&start[..], &prompt(60, salt)].concat();
    let marked = Ask { marks: vec![5, 200, 9000], pin: 70, ..Ask::greedy(&other(1), 3) };
    one(&mut engine, &marked);
    assert_eq!(cached(&mut engine, &other(2)).0, 192);
    assert_eq!(cached(&mut engine, &[&start[..75], &prompt(60, 7)].concat()).0, 64);
}

#[test]
fn long_prompts_keep_states_on_their_way() {
    let mut engine = hybrid(1, 24);
    let long = prompt(5000, 0);
    one(&mut engine, &Ask::greedy(&long, 2));
    assert_eq!(cached(&mut engine, &[&long[..3100], &prompt(60, 7)].concat()).0, 3072);
    // With few slots they are further apart, so that not all of them are for one prompt.
    let mut engine = hybrid(1, 8);
    one(&mut engine, &Ask::greedy(&long, 2));
    assert_eq!(cached(&mut engine, &[&long[..3100], &prompt(60, 7)].concat()).0, 2528);
}

#[test]
fn what_many_share_is_computed_once() {
    let start = prompt(256, 1);
    let ask = |salt| Ask::greedy(&[&start[..], &prompt(20, salt)].concat(), 5);
    for n_slots in [16, 17, 40] {
        let mut engine = hybrid(8, n_slots);
        let answers: Vec<Answer> = (0..8).map(|salt| submit(&mut engine, &ask(salt))).collect();
        run(&mut engine);
        for (salt, answer) in (0..).zip(answers) {
            let expected = alone_on(Toy::hybrid(400, 2), &ask(salt), CONTEXT);
            assert_eq!(outcome(answer).said(), expected.said());
        }
        let rows = engine.stats().totals.prompt_rows;
        assert_eq!(rows, 256 + 8 * 20, "{n_slots} slots");
    }
}

/// A prompt that is given up, or parked, has not been computed in vain.
#[test]
fn what_was_begun_is_not_lost() {
    let mut engine = hybrid(1, 4);
    let long = prompt(1000, 1);
    let answer = submit(&mut engine, &Ask::greedy(&long, 3));
    (0..8).for_each(|_| engine.step());
    drop(answer);
    engine.step();
    assert_eq!(cached(&mut engine, &long).0, 512);

    let mut engine = common::engine(Toy::hybrid(60, 8), limits(64, 2, 1200));
    let asks = [Ask::greedy(&prompt(300, 1), 800), Ask::greedy(&prompt(300, 2), 800)];
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    run(&mut engine);
    for (ask, answer) in asks.iter().zip(answers) {
        assert_eq!(outcome(answer).said(), alone_on(Toy::hybrid(60, 2), ask, 1200).said());
    }
    let totals = engine.stats().totals;
    assert!(totals.preemptions > 0 && totals.resumed > 0);
    assert_eq!(totals.prefix_hits, 288, "whoever was parked found its prompt again");
}

fn disk(dir: &Path) -> DiskOptions {
    DiskOptions { dir: dir.into(), max_bytes: 1 << 30, min_free_bytes: 0, fingerprint: [1; 32] }
}

fn started(dir: &Path, n_slots: usize) -> Engine {
    let mut engine = hybrid(2, n_slots);
    engine.keep_on_disk(&disk(dir)).unwrap();
    engine.flush();
    engine
}

#[test]
fn states_come_back_from_disk_with_their_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let first = prompt(300, 0);
    let mut engine = started(dir.path(), 12);
    let answer = one(&mut engine, &Ask::greedy(&first, 61));
    engine.flush();
    drop(engine);
    let next = [&first[..], &answer.tokens, &prompt(30, 5)].concat();
    let mut engine = started(dir.path(), 12);
    let found = usage(&one(&mut engine, &Ask::greedy(&next, 3)));
    assert_eq!((found.cached_tokens, found.disk_tokens), (352, 352));
    assert_eq!(engine.stats().totals.disk_tokens, 352);
    // The prompt's own state is still there only on disk; its blocks are in memory.
    let found = usage(&one(&mut engine, &Ask::greedy(&first, 3)));
    assert_eq!((found.cached_tokens, found.disk_tokens), (288, 288));
    // Where two part is known over a restart as well.
    let other = |salt| [&first[..200], &prompt(60, salt)].concat();
    let mut engine = started(dir.path(), 12);
    assert_eq!(usage(&one(&mut engine, &Ask::greedy(&other(1), 3))).cached_tokens, 0);
    engine.flush();
    let mut engine = started(dir.path(), 12);
    assert_eq!(usage(&one(&mut engine, &Ask::greedy(&other(2), 3))).disk_tokens, 192);
    // No slot to spare, so what is there is computed anew.
    let mut engine = started(dir.path(), 4);
    let answers =
        [other(1), next].map(|prompt| (submit(&mut engine, &Ask::greedy(&prompt, 90)), prompt));
    run(&mut engine);
    for (answer, prompt) in answers {
        let expected = alone_on(Toy::hybrid(400, 2), &Ask::greedy(&prompt, 90), CONTEXT);
        assert_eq!(outcome(answer).said(), expected.said());
    }
}

/// What a running request needs of the cache stays in memory, and so comes to disk once more.
#[test]
fn states_in_use_are_written_again_after_clearing() {
    let dir = tempfile::tempdir().unwrap();
    let ask = Ask::greedy(&prompt(200, 0), 100);
    let mut engine = started(dir.path(), 12);
    let answer = submit(&mut engine, &ask);
    (0..30).for_each(|_| engine.step());
    engine.flush();
    let written = engine.stats().disk.unwrap().written;
    assert!(engine.clear_cache().disk.unwrap().blocks > 0);
    run(&mut engine);
    assert_eq!(outcome(answer).said(), alone_on(Toy::hybrid(400, 2), &ask, CONTEXT).said());
    engine.flush();
    assert!(engine.stats().disk.unwrap().written >= 2 * written);
    drop(engine);
    let found = usage(&one(&mut started(dir.path(), 12), &ask));
    assert_eq!((found.cached_tokens, found.disk_tokens), (192, 192));
}

/// The segment of a folder that has one.
fn segment(dir: &Path) -> PathBuf {
    let folder = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let mut segments = std::fs::read_dir(folder).unwrap();
    segments.next().unwrap().unwrap().path()
}

/// A folder that is a copy of another one, whose segment holds these bytes.
fn copy_with(dir: &Path, bytes: &[u8]) -> tempfile::TempDir {
    let (copy, path) = (tempfile::tempdir().unwrap(), segment(dir));
    // The folder's name is the model's.
    let to = copy.path().join(path.parent().unwrap().file_name().unwrap());
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
    copy
}

/// If the newest states are damaged, a sequence goes on from an older one.
#[test]
fn a_damaged_state_falls_back_to_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let long = prompt(300, 0);
    let mut engine = started(dir.path(), 12);
    one(&mut engine, &Ask { marks: vec![100, 200], ..Ask::greedy(&long, 3) });
    engine.flush();
    drop(engine);
    let mut bytes = std::fs::read(segment(dir.path())).unwrap();
    for (n_damaged, newest) in (0..).zip([288u64, 192, 96, 0]) {
        let dir = copy_with(dir.path(), &bytes);
        let mut engine = started(dir.path(), 12);
        let found = usage(&one(&mut engine, &Ask::greedy(&long, 3)));
        assert_eq!((found.cached_tokens, found.disk_tokens), (newest as usize, newest as usize));
        assert_eq!(engine.stats().disk.unwrap().damaged, n_damaged);
        // A toy's state ends with the number of its tokens, and is filled up with zeros.
        let end = [newest.to_le_bytes(), [0; 8]].concat();
        if let Some(at) = bytes.windows(16).position(|window| window == end) {
            bytes[at] ^= 1;
        }
    }
}

/// Wherever a file is spoilt, what is missing is computed anew, and the books balance.
#[test]
fn a_state_that_is_damaged_or_half_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let ask = Ask::greedy(&prompt(130, 0), 70);
    let mut engine = started(dir.path(), 12);
    one(&mut engine, &ask);
    engine.flush();
    drop(engine);
    let whole = std::fs::read(segment(dir.path())).unwrap();
    let mut found = std::collections::BTreeSet::new();
    for at in (0..whole.len()).step_by(61) {
        let mut bytes = whole.clone();
        match at % 2 {
            0 => bytes[at] ^= 0x10,
            _ => bytes.truncate(at),
        }
        let dir = copy_with(dir.path(), &bytes);
        let mut engine = started(dir.path(), 12);
        found.insert(usage(&one(&mut engine, &ask)).cached_tokens);
        let stats = engine.stats().totals;
        assert_eq!(stats.cached_tokens, stats.disk_tokens, "spoilt at {at}");
    }
    assert_eq!(found, [0, 128].into());
}
