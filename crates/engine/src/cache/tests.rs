//! The books' promises, over hand-made and random traffic.

use backend::{BLOCK, TokenId};
use proptest::prelude::*;

use super::{CacheBook, Charge, Room, SeqKey};
use crate::Miss;

mod panes;
mod states;

const LONGEST: usize = 1 << 20;

fn tokens(n: usize, salt: u32) -> Vec<TokenId> {
    (0..n as u32).map(|i| i * 3 + salt).collect()
}

/// Opens a sequence with room for its prompt, runs all of it and closes it. Returns how many
/// tokens had to be computed.
fn run(book: &mut CacheBook, prompt: &[TokenId]) -> usize {
    let key = open(book, prompt, 1);
    let rows = prompt.len() - book.len(key);
    advance(book, key, rows, prompt);
    book.close(key);
    assert_eq!(book.faults(), None);
    rows
}

fn open(book: &mut CacheBook, prompt: &[TokenId], max_tokens: usize) -> SeqKey {
    book.open(prompt, Charge::new(prompt.len(), max_tokens, LONGEST), 0).unwrap()
}

fn advance(book: &mut CacheBook, key: SeqKey, rows: usize, tokens: &[TokenId]) {
    assert_eq!(book.reserve(key, rows), rows);
    book.commit(key, rows, tokens);
}

/// An exact repeat computes at least one token and at most the last block (K01).
#[test]
fn a_repeated_prompt_is_never_free_and_never_dear() {
    for (n, expected) in [(1, 1), (31, 31), (32, 32), (33, 1), (40, 8), (64, 32), (65, 1)] {
        let mut book = CacheBook::new(Room::of_blocks(8));
        assert_eq!(run(&mut book, &tokens(n, 0)), n);
        assert_eq!(run(&mut book, &tokens(n, 0)), expected, "{n} tokens");
    }
}

/// Whole blocks that are equal from the first token on, and no others (K02).
#[test]
fn reuse_goes_as_far_as_the_prompts_are_equal() {
    let check = |shared: usize, expected: usize| {
        let mut book = CacheBook::new(Room::of_blocks(16));
        run(&mut book, &tokens(100, 0));
        let mut second = tokens(shared, 0);
        second.extend(tokens(120 - shared, 1));
        assert_eq!(120 - run(&mut book, &second), expected, "{shared} tokens in common");
    };
    check(0, 0);
    check(31, 0);
    check(32, 32);
    check(63, 32);
    check(96, 96);
    // The same block after another one is not the same block.
    let mut book = CacheBook::new(Room::of_blocks(16));
    let (first, second) = (tokens(32, 0), tokens(32, 5));
    run(&mut book, &[&first[..], &second, &[1]].concat());
    assert_eq!(run(&mut book, &[&second[..], &second, &[1]].concat()), 65);
}

#[test]
fn what_is_still_being_written_is_not_shared() {
    let mut book = CacheBook::new(Room::of_blocks(16));
    let prompt = tokens(80, 0);
    let writer = open(&mut book, &prompt, 1);
    advance(&mut book, writer, 50, &prompt);
    let reader = open(&mut book, &prompt, 1);
    assert_eq!(book.len(reader), BLOCK);
    assert_eq!(book.blocks(reader), &book.blocks(writer)[..1]);
    // Both go on and fill the same block; one copy stays.
    advance(&mut book, writer, 30, &prompt);
    advance(&mut book, reader, 40, &prompt);
    assert_eq!(book.blocks(reader)[..2], book.blocks(writer)[..2]);
    assert_ne!(book.blocks(reader)[2], book.blocks(writer)[2]);
    assert_eq!(book.counts().held, 4);
    book.close(writer);
    book.close(reader);
    assert_eq!(book.faults(), None);
    let counts = book.counts();
    // Two full ones, and the longer of two beginnings.
    assert_eq!((counts.free, counts.cached, counts.held), (13, 3, 0));
}

/// Of two beginnings of one block the shorter one goes as soon as the longer one is seen.
#[test]
fn a_beginning_that_another_block_goes_beyond_is_not_kept() {
    let mut book = CacheBook::new(Room::of_blocks(16));
    let prompt = tokens(80, 0);
    let [short, long] = [(); 2].map(|()| open(&mut book, &prompt, 1));
    advance(&mut book, short, 68, &prompt);
    advance(&mut book, long, 80, &prompt);
    advance(&mut book, short, 4, &prompt);
    [short, long].into_iter().for_each(|key| book.close(key));
    assert_eq!((book.faults(), book.counts().cached), (None, 3));
}

/// Who waited takes over what was computed meanwhile, also when it had begun a block itself.
#[test]
fn what_others_computed_is_taken_over() {
    let mut book = CacheBook::new(Room::of_blocks(16));
    let prompt = tokens(100, 0);
    let [leader, follower, late] = [(); 3].map(|()| open(&mut book, &prompt, 1));
    advance(&mut book, follower, 10, &prompt);
    advance(&mut book, leader, 70, &prompt);
    assert_eq!((book.adopt(follower, &prompt), book.adopt(late, &prompt)), (54, 64));
    assert_eq!(book.blocks(follower), &book.blocks(leader)[..2]);
    assert_eq!(book.adopt(late, &prompt), 0);
    // One token is always left to compute.
    advance(&mut book, leader, 30, &prompt);
    assert_eq!((book.adopt(late, &prompt[..96]), book.adopt(late, &prompt[..97])), (0, 32));
    assert_eq!(book.faults(), None);
    [leader, follower, late].into_iter().for_each(|key| book.close(key));
    assert_eq!((book.faults(), book.counts().cached), (None, 4));
}

#[test]
fn the_least_recently_used_goes_first_and_beginnings_last() {
    let check = |n_more: u32, first: usize, second: usize| {
        let mut book = CacheBook::new(Room::of_blocks(6));
        run(&mut book, &tokens(96, 0));
        run(&mut book, &tokens(96, 1));
        // Uses the first one again; its last block is computed anew.
        assert_eq!(run(&mut book, &tokens(96, 0)), 32);
        (0..n_more).for_each(|salt| assert_eq!(run(&mut book, &tokens(32, 10 + salt)), 32));
        let mut cached = |salt| {
            let key = open(&mut book, &tokens(97, salt), 0);
            let len = book.len(key);
            book.close(key);
            len
        };
        assert_eq!((cached(0), cached(1)), (first, second), "{n_more} more");
    };
    check(0, 96, 96);
    check(1, 96, 64);
    check(2, 96, 32);
    check(3, 96, 0);
    check(4, 64, 0);
    check(5, 32, 0);
    check(6, 0, 0);
}

#[test]
fn rows_that_were_reserved_and_not_kept_leave_nothing_behind() {
    let mut book = CacheBook::new(Room::of_blocks(8));
    let all = tokens(200, 0);
    let key = open(&mut book, &all[..40], 160);
    assert_eq!(book.reserve(key, 130), 130);
    assert_eq!(book.blocks(key).len(), 5);
    book.commit(key, 40, &all);
    assert_eq!((book.len(key), book.blocks(key).len()), (40, 2));
    advance(&mut book, key, 24, &all);
    book.close(key);
    assert_eq!(run(&mut book, &all[..65]), 1);
}

/// Why the book says that `prompt` is not all there.
fn miss(book: &mut CacheBook, prompt: &[TokenId]) -> Option<Miss> {
    let key = open(book, prompt, 1);
    let miss = book.miss(key, prompt);
    book.close(key);
    miss
}

#[test]
fn beginnings_of_blocks_are_forked() {
    let mut book = CacheBook::new(Room::of_blocks(4));
    run(&mut book, &tokens(50, 0));
    let own = [tokens(45, 0), tokens(40, 9)].concat();
    let key = open(&mut book, &own, 1);
    let fork = book.fork(key, &own).unwrap();
    assert_eq!((book.len(key), book.blocks(key)[1]), (45, fork.to));
    assert_eq!(book.fork(key, &own), None, "nothing more to gain");
    advance(&mut book, key, 40, &own);
    // Two of its own, one shared, one that was forked from.
    assert_eq!((book.counts().held, book.counts().cached), (3, 1));
    // Somebody else has the block that would be needed: no fork, and nothing lost.
    let again = open(&mut book, &own[..40], 1);
    assert_eq!(book.reserve(key, 40), 40);
    assert_eq!((book.fork(again, &own[..40]), book.len(again)), (None, 32));
    book.commit(key, 0, &own);
    // One token is left to compute, also of what is there.
    assert!(book.fork(again, &own[..40]).is_some());
    assert_eq!(book.len(again), 39);
    [key, again].into_iter().for_each(|key| book.close(key));
    assert_eq!((book.faults(), book.counts().held), (None, 0));
}

#[test]
fn misses_have_reasons() {
    let mut book = CacheBook::new(Room::of_blocks(8));
    assert_eq!(miss(&mut book, &tokens(32, 0)), Some(Miss::TooShort));
    assert_eq!(miss(&mut book, &tokens(33, 0)), Some(Miss::Cold));
    run(&mut book, &tokens(100, 0));
    assert_eq!(miss(&mut book, &tokens(100, 0)), None);
    // It goes on from everything that is known.
    assert_eq!(miss(&mut book, &tokens(200, 0)), None);
    assert_eq!(miss(&mut book, &tokens(100, 1)), Some(Miss::Cold));
    let fork = [tokens(64, 0), tokens(50, 9)].concat();
    assert_eq!(miss(&mut book, &fork), Some(Miss::Diverged { block: 2 }));
    // Six blocks of others leave two of the three.
    run(&mut book, &tokens(192, 7));
    assert_eq!(miss(&mut book, &tokens(100, 0)), Some(Miss::Evicted { block: 2 }));
    assert_eq!(miss(&mut book, &tokens(192, 7)), None);
    run(&mut book, &tokens(100, 0));
    assert_eq!(miss(&mut book, &tokens(100, 0)), None);
    assert_eq!(book.clear(), 8);
    assert_eq!(miss(&mut book, &tokens(100, 0)), Some(Miss::Cold));
    assert_eq!(book.counts().free, 8);
}

/// What is pinned outlasts everything that is not, and has a quarter of the pool at most.
#[test]
fn pinned_beginnings_are_dropped_last() {
    let mut book = CacheBook::new(Room::of_blocks(12));
    let pinned = |book: &mut CacheBook, prompt: &[TokenId], pin: usize| {
        let charge = Charge::new(prompt.len(), 1, LONGEST);
        let key = book.open(prompt, charge, pin).unwrap();
        let rows = prompt.len() - book.len(key);
        advance(book, key, rows, prompt);
        book.close(key);
        assert_eq!(book.faults(), None);
        rows
    };
    let system = tokens(70, 0);
    pinned(&mut book, &system, 70);
    assert_eq!(book.counts().pinned, 2);
    for salt in 1..9 {
        pinned(&mut book, &tokens(224, salt), 0);
    }
    assert_eq!(pinned(&mut book, &system, 0), 6, "whole blocks of it are still there");
    // A cached beginning is pinned when somebody asks for it, and the older pin makes room.
    pinned(&mut book, &tokens(64, 30), 0);
    pinned(&mut book, &[&tokens(64, 30)[..], &[1]].concat(), 64);
    assert_eq!(book.counts().pinned, 3);
    for salt in 41..49 {
        pinned(&mut book, &tokens(192, salt), 0);
    }
    assert_eq!(pinned(&mut book, &[&tokens(64, 30)[..], &[1]].concat(), 0), 1);
    assert_eq!(pinned(&mut book, &system, 0), 70 - 32, "half of it was pinned no more");
    // Pins never keep anybody out.
    assert_eq!(run(&mut book, &tokens(12 * BLOCK, 99)), 12 * BLOCK);
    assert_eq!(book.counts().pinned, 0);
}

/// A sequence in the random traffic below.
struct Live {
    key: SeqKey,
    tokens: Vec<TokenId>,
    most: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, the books balance, no two sequences differ in a shared block, and nobody is
    /// refused a block that is there.
    #[test]
    fn books_balance_and_give_what_there_is(
        n_blocks in 3..24usize,
        traffic in prop::collection::vec((0..6u8, 0..3u32, 1..90usize, 1..400usize), 1..120),
    ) {
        let mut book = CacheBook::new(Room::of_blocks(n_blocks));
        let longest = n_blocks * BLOCK + 1;
        let mut live: Vec<Live> = Vec::new();
        for (what, salt, size, max_tokens) in traffic {
            match what {
                0 => {
                    let prompt = tokens(size.min(longest - 1), salt);
                    let charge = Charge::new(prompt.len(), max_tokens, longest);
                    let most = (prompt.len() + max_tokens).min(longest) - 1;
                    let alone = live.is_empty();
                    match book.open(&prompt, charge, size % 70) {
                        Ok(key) => live.push(Live { key, tokens: prompt, most }),
                        Err(_) => prop_assert!(!alone, "whoever is alone gets in"),
                    }
                }
                1 if !live.is_empty() => {
                    let gone = live.remove(size % live.len());
                    book.close(gone.key);
                }
                2 => for seq in &mut live {
                    let before = book.len(seq.key);
                    let gained = book.adopt(seq.key, &seq.tokens);
                    prop_assert_eq!(book.len(seq.key), before + gained);
                    prop_assert!(gained == 0 || before + gained < seq.tokens.len());
                },
                3 => for seq in &mut live {
                    let before = book.len(seq.key);
                    let fork = book.fork(seq.key, &seq.tokens);
                    let len = book.len(seq.key);
                    prop_assert_eq!(fork.is_some(), len > before);
                    prop_assert!(fork.is_none() || len < seq.tokens.len());
                    prop_assert!(fork.is_none_or(|fork| book.blocks(seq.key).last() == Some(&fork.to)));
                },
                _ => for seq in &mut live {
                    let at = book.len(seq.key);
                    let wanted = size.min(seq.most - at);
                    let rows = book.reserve(seq.key, wanted);
                    let counts = book.counts();
                    prop_assert!(rows == wanted || counts.free + counts.cached == 0);
                    seq.tokens.extend(tokens(seq.most, salt).split_off(seq.tokens.len().min(seq.most)));
                    book.commit(seq.key, rows, &seq.tokens);
                },
            }
            prop_assert_eq!(book.faults(), None);
            let mut held: std::collections::HashMap<u32, Vec<TokenId>> = Default::default();
            for seq in &live {
                let full = book.len(seq.key) / BLOCK;
                for (idx, block) in book.blocks(seq.key).iter().enumerate() {
                    let end = if idx < full { (idx + 1) * BLOCK } else { book.len(seq.key) };
                    let prefix = seq.tokens[..end].to_vec();
                    if let Some(other) = held.insert(*block, prefix.clone()) {
                        prop_assert!(idx < full && other == prefix, "block {} is shared", block);
                    }
                }
            }
        }
        live.into_iter().for_each(|seq| book.close(seq.key));
        let counts = book.counts();
        prop_assert_eq!((counts.held, counts.free + counts.cached), (0, n_blocks));
        prop_assert_eq!(book.faults(), None);
    }
}
