//! The books of a model with recurrent states.

use std::collections::HashMap;

use backend::{BLOCK, SlotId, TokenId};
use proptest::prelude::*;

use super::super::{CacheBook, Charge, Room, SeqKey, Stay, Stop};
use super::{LONGEST, open, tokens};
use crate::{Miss, States};

/// Books, and what is in the slots: the tokens before each state.
struct Books {
    book: CacheBook,
    slots: HashMap<SlotId, Vec<TokenId>>,
}

impl Books {
    fn new(blocks: usize, slots: usize) -> Books {
        let room = Room { slots: Some(slots), ..Room::of_blocks(blocks) };
        Books { book: CacheBook::new(room), slots: HashMap::new() }
    }

    /// A pass of one sequence, which reads the state that it has to read.
    fn pass(&mut self, key: SeqKey, rows: usize, tokens: &[TokenId], stops: &[Stop]) {
        self.passes(&[(key, rows, tokens, stops)]);
    }

    /// A pass of several sequences.
    fn passes(&mut self, turns: &[(SeqKey, usize, &[TokenId], &[Stop])]) {
        let mut read = Vec::new();
        let mut written = HashMap::new();
        for (key, rows, tokens, stops) in turns {
            let len = self.book.len(*key);
            assert_eq!(self.book.reserve(*key, *rows), *rows);
            let lease = self.book.lease_states(*key, *rows, stops).unwrap();
            let before = lease.state_in.map(|slot| &self.slots[&slot][..]);
            assert_eq!(before.unwrap_or_default(), &tokens[..len], "goes on from where it is");
            read.extend(lease.state_in);
            assert!(lease.states_out.is_sorted_by_key(|(row, _)| row));
            assert_eq!(lease.states_out.last().map(|(row, _)| row + 1), Some(*rows));
            for (row, slot) in lease.states_out {
                let state = tokens[..len + row + 1].to_vec();
                assert!(written.insert(slot, state).is_none(), "written once");
            }
        }
        assert!(read.iter().all(|slot| !written.contains_key(slot)), "what is read is not written");
        self.slots.extend(written);
        for (key, rows, tokens, _) in turns {
            self.book.commit(*key, *rows, tokens);
            assert_eq!(self.book.faults(), None);
        }
    }

    /// Runs all of a prompt in one pass. Returns how many tokens had to be computed.
    fn run(&mut self, prompt: &[TokenId], stops: &[Stop]) -> usize {
        let key = open(&mut self.book, prompt, 1);
        let len = self.book.len(key);
        let stops: Vec<Stop> = stops.iter().copied().filter(|stop| stop.at > len).collect();
        self.pass(key, prompt.len() - len, prompt, &stops);
        self.book.close(key);
        assert_eq!(self.book.faults(), None);
        prompt.len() - len
    }

    /// Where a sequence of `prompt` would go on from.
    fn cached(&mut self, prompt: &[TokenId]) -> usize {
        let key = open(&mut self.book, prompt, 1);
        let len = self.book.len(key);
        self.book.close(key);
        len
    }
}

fn stop(at: usize, stay: Stay) -> Stop {
    Stop { at, stay }
}

#[test]
fn a_sequence_goes_on_from_the_last_state_that_is_kept() {
    let mut books = Books::new(16, 6);
    let prompt = tokens(150, 0);
    books.run(&prompt, &[stop(32, Stay::Lasting), stop(96, Stay::Passing)]);
    assert_eq!(books.book.state_counts(), States { free: 4, kept: 2, held: 0 });
    assert_eq!(books.cached(&prompt), 96);
    assert_eq!(books.cached(&prompt[..96]), 32, "one token is left to compute");
    // Blocks are there as far as the prompts are equal, and a state is not.
    let other = [tokens(90, 0), tokens(20, 9)].concat();
    let key = open(&mut books.book, &other, 1);
    assert_eq!((books.book.len(key), books.book.memory(key, &other).known), (32, 64));
    assert_eq!(books.book.miss(key, &other), Some(Miss::NoState { block: 1 }));
    assert_eq!(books.book.fork(key, &other), None);
    // What is computed again is not kept twice.
    books.pass(key, 78, &other, &[stop(64, Stay::Lasting)]);
    books.book.close(key);
    assert_eq!(books.book.counts().cached, 5, "110 tokens are four blocks, three of them shared");
    assert_eq!(books.cached(&other), 64);
    let key = open(&mut books.book, &tokens(150, 0), 1);
    assert_eq!(books.book.miss(key, &tokens(150, 0)), Some(Miss::NoState { block: 3 }));
    books.book.close(key);
}

/// An exact repeat computes what comes after the last state, and one token at least (K01 b and c).
#[test]
fn a_repeated_prompt_is_computed_from_its_last_state_on() {
    for (n, state, expected) in [(40, 32, 8), (64, 64, 64), (65, 64, 1)] {
        let mut books = Books::new(16, 6);
        books.run(&tokens(n, 0), &[stop(state, Stay::Lasting)]);
        assert_eq!(books.run(&tokens(n, 0), &[]), expected, "{n} tokens, a state after {state}");
    }
}

/// A sequence leaves the state of its last whole block behind, one at a time.
#[test]
fn a_state_goes_along() {
    let mut books = Books::new(16, 4);
    let all = tokens(200, 0);
    let key = open(&mut books.book, &all[..10], 190);
    for end in [10, 40, 70, 100, 101, 130] {
        let at = end / BLOCK * BLOCK;
        let len = books.book.len(key);
        let trail = [stop(at, Stay::Trailing)];
        books.pass(key, end - len, &all, if at > len { &trail } else { &[] });
        assert_eq!(books.book.state_counts().kept, usize::from(at > 0));
    }
    assert_eq!(books.cached(&all), 128);
    books.pass(key, 40, &all, &[stop(160, Stay::Trailing)]);
    // Somebody had gone on from it, so it stays.
    assert_eq!(books.cached(&all[..150]), 128);
    books.book.close(key);
    assert_eq!(books.cached(&all), 160);
    assert_eq!(books.book.state_counts(), States { free: 2, kept: 2, held: 0 });
}

/// A state that would save little does not drive out one that saves much.
#[test]
fn no_room_is_made_for_a_state_that_is_worth_less() {
    let mut books = Books::new(60, 4);
    let long = [0, 1, 2].map(|salt| tokens(300, salt));
    for prompt in &long {
        assert_eq!(books.run(prompt, &[stop(288, Stay::Lasting)]), 300);
    }
    assert_eq!(books.book.state_counts(), States { free: 1, kept: 3, held: 0 });
    // Its pass takes the one slot that is free.
    books.run(&tokens(40, 3), &[stop(32, Stay::Passing)]);
    assert_eq!(long.map(|prompt| books.cached(&prompt)), [288; 3]);
    assert_eq!(books.cached(&tokens(40, 3)), 0);
    // One that would save as much has its place: the oldest goes.
    books.run(&tokens(400, 4), &[stop(384, Stay::Passing)]);
    assert_eq!([0, 1, 2].map(|salt| books.cached(&tokens(300, salt))), [0, 288, 288]);
}

/// Who waited goes on from what others have computed, also when it had begun itself.
#[test]
fn states_that_others_left_are_taken_over() {
    let mut books = Books::new(16, 6);
    let prompt = tokens(100, 0);
    let [leader, follower] = [(); 2].map(|()| open(&mut books.book, &prompt, 1));
    books.pass(follower, 10, &prompt, &[]);
    books.pass(leader, 70, &prompt, &[]);
    assert_eq!(books.book.adopt(follower, &prompt), 0, "blocks without a state are of no use");
    let stops = [stop(96, Stay::Trailing)];
    books.pass(leader, 30, &prompt, &stops);
    assert_eq!(books.book.adopt(follower, &prompt), 86);
    books.pass(follower, 4, &prompt, &[]);
    [leader, follower].into_iter().for_each(|key| books.book.close(key));
    assert_eq!(books.book.faults(), None);
}

/// When slots run out, the state that saves the fewest tokens goes, and what nobody uses in the end.
#[test]
fn what_saves_little_goes_first() {
    let lasting = |at| stop(at, Stay::Lasting);
    let mut books = Books::new(64, 6);
    let long = tokens(700, 0);
    books.run(&long, &[lasting(320), lasting(352), lasting(640)]);
    books.run(&tokens(150, 1), &[lasting(128)]);
    // One of four has to go: that which is 32 tokens behind another.
    books.run(&tokens(400, 2), &[lasting(192), lasting(384)]);
    let longest = |books: &mut Books| [330, 360, 700].map(|n| books.cached(&long[..n]));
    assert_eq!(longest(&mut books), [320, 320, 640]);
    // Others that save less come and go, and raise the floor. What is used stays.
    let others = |books: &mut Books, salt: u32| {
        for n in 1..9 {
            books.run(&tokens(150, 1000 * salt + n), &[lasting(128)]);
        }
    };
    for salt in 1..20 {
        others(&mut books, salt);
        assert_eq!(books.cached(&long), 640);
    }
    (20..40).for_each(|salt| others(&mut books, salt));
    assert_eq!(books.cached(&long), 0);
}

#[test]
fn states_of_pinned_beginnings_go_last() {
    let lasting = |at| stop(at, Stay::Lasting);
    let mut books = Books::new(64, 4);
    let system = tokens(64, 0);
    let prompt = [&system[..], &tokens(20, 9)].concat();
    let key = books.book.open(&prompt, Charge::new(84, 1, LONGEST), 64).unwrap();
    books.pass(key, 84, &prompt, &[lasting(64)]);
    books.book.close(key);
    for salt in 1..30 {
        books.run(&tokens(400, salt), &[lasting(192), lasting(384)]);
    }
    assert_eq!(books.cached(&prompt), 64);
    assert_eq!(books.cached(&tokens(400, 29)), 384);
}

/// The slots that sequences need to go on are never given away.
#[test]
fn states_are_kept_only_where_there_is_room() {
    let mut books = Books::new(32, 4);
    let (a, b) = (tokens(100, 0), tokens(100, 1));
    let first = open(&mut books.book, &a, 1);
    assert!(books.book.can_keep());
    let second = open(&mut books.book, &b, 1);
    assert!(books.book.can_keep(), "neither has begun");
    let stops = [32, 64, 96].map(|at| stop(at, Stay::Lasting));
    books.passes(&[(first, 99, &a, &stops), (second, 99, &b, &stops)]);
    assert_eq!(books.book.state_counts(), States { free: 0, kept: 2, held: 2 });
    assert!(!books.book.can_keep());
    assert!(books.book.open(&a, Charge::new(100, 1, LONGEST), 0).is_err(), "no third one");
    books.passes(&[(first, 1, &a, &[]), (second, 1, &b, &[])]);
    assert_eq!(books.book.state_counts().kept, 0);
    [first, second].into_iter().for_each(|key| books.book.close(key));
    assert_eq!(books.book.state_counts(), States { free: 4, kept: 0, held: 0 });
    // What is dropped with its block frees its slot.
    books.run(&a, &[stop(96, Stay::Lasting)]);
    assert_eq!((books.book.clear(), books.book.state_counts().free), (6, 4));
}

/// A sequence that gets its state back goes on from it, or from where it was.
#[test]
fn a_state_that_is_brought_back_goes_with_its_blocks() {
    for comes in [true, false] {
        let mut books = Books::new(16, 4);
        let prompt = tokens(100, 0);
        books.run(&prompt[..40], &[stop(32, Stay::Lasting)]);
        let key = open(&mut books.book, &prompt, 1);
        assert_eq!(books.book.len(key), 32);
        for _ in 0..2 {
            assert_eq!(books.book.reserve(key, BLOCK), BLOCK);
            books.book.commit(key, BLOCK, &prompt);
        }
        assert_eq!((books.book.len(key), books.book.sound(key)), (96, 32));
        match comes {
            true => {
                let slot = books.book.lease_restored(key).unwrap();
                books.slots.insert(slot, prompt[..96].to_vec());
                books.book.commit(key, 0, &prompt);
            }
            false => books.book.rewind(key),
        }
        let len = if comes { 96 } else { 32 };
        assert_eq!((books.book.len(key), books.book.sound(key)), (len, len));
        assert_eq!((books.book.faults(), books.book.counts().cached), (None, (96 - len) / BLOCK));
        books.pass(key, 100 - len, &prompt, &[]);
        books.book.close(key);
        assert_eq!(books.cached(&prompt), len);
    }
}

/// A sequence in the random traffic below.
struct Live {
    key: SeqKey,
    tokens: Vec<TokenId>,
    most: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, the books balance, and whoever goes on does so from the state it needs.
    #[test]
    fn everybody_goes_on_from_the_right_state(
        n_blocks in 6..24usize,
        n_slots in 2..12usize,
        traffic in prop::collection::vec((0..7u8, 0..3u32, 1..90usize, 1..400usize), 1..100),
    ) {
        let mut books = Books::new(n_blocks, n_slots);
        let longest = n_blocks * BLOCK + 1;
        let mut live: Vec<Live> = Vec::new();
        for (what, salt, size, max_tokens) in traffic {
            match what {
                0 => {
                    let prompt = tokens((2 * size).min(longest - 1), salt);
                    let charge = Charge::new(prompt.len(), max_tokens, longest);
                    let most = (prompt.len() + max_tokens).min(longest) - 1;
                    match books.book.open(&prompt, charge, size % 70) {
                        Ok(key) => live.push(Live { key, tokens: prompt, most }),
                        Err(_) => prop_assert!(!live.is_empty(), "whoever is alone gets in"),
                    }
                }
                1 if !live.is_empty() => {
                    let gone = live.remove(size % live.len());
                    books.book.close(gone.key);
                }
                2 => for seq in &mut live {
                    let before = books.book.len(seq.key);
                    let gained = books.book.adopt(seq.key, &seq.tokens);
                    prop_assert_eq!(books.book.len(seq.key), before + gained);
                    prop_assert!(gained == 0 || before + gained < seq.tokens.len());
                },
                3 => for seq in &mut live {
                    let before = books.book.len(seq.key);
                    books.book.follow(seq.key, &seq.tokens, before / BLOCK * BLOCK + size);
                    if size % 2 == 0 && let Some(slot) = books.book.lease_restored(seq.key) {
                        let len = books.book.len(seq.key);
                        books.slots.insert(slot, seq.tokens[..len].to_vec());
                        books.book.commit(seq.key, 0, &seq.tokens);
                    }
                    books.book.rewind(seq.key);
                    prop_assert!(books.book.len(seq.key) >= before);
                },
                _ => for seq in &mut live {
                    let at = books.book.len(seq.key);
                    let rows = books.book.reserve(seq.key, size.min(seq.most - at));
                    seq.tokens.extend(tokens(seq.most, salt).split_off(seq.tokens.len().min(seq.most)));
                    let stays = [Stay::Trailing, Stay::Passing, Stay::Lasting];
                    let ends = (at + 1..=at + rows).filter(|end| end.is_multiple_of(BLOCK));
                    let stops: Vec<Stop> = ends.map(|at| stop(at, stays[(at / BLOCK + size) % 3])).collect();
                    books.book.commit(seq.key, 0, &seq.tokens);
                    if rows > 0 {
                        books.pass(seq.key, rows, &seq.tokens, &stops);
                    }
                },
            }
            prop_assert_eq!(books.book.faults(), None);
        }
        live.into_iter().for_each(|seq| books.book.close(seq.key));
        prop_assert_eq!(books.book.faults(), None);
        prop_assert_eq!((books.book.counts().held, books.book.state_counts().held), (0, 0));
    }
}
