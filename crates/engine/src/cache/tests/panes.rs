//! The books of a model some of whose layers see only a window.

use std::collections::HashMap;

use backend::{BLOCK, BlockId, TokenId};
use proptest::prelude::*;

use super::super::panes::{first_pane, least_panes};
use super::super::{CacheBook, Charge, PaneRoom, Room, SeqKey, Stay, Stop};
use super::{open, tokens};
use crate::{Miss, Panes};

/// Books, and what is in the panes: all tokens up to the last one of it.
struct Books {
    book: CacheBook,
    window: usize,
    panes: HashMap<BlockId, Vec<TokenId>>,
}

impl Books {
    fn new(blocks: usize, panes: usize, window: usize) -> Books {
        let room = Room { panes: Some(PaneRoom { panes, window }), ..Room::of_blocks(blocks) };
        Books { book: CacheBook::new(room), window, panes: HashMap::new() }
    }

    /// A pass of one sequence, which reads what its rows see and writes what is theirs.
    fn pass(&mut self, key: SeqKey, rows: usize, tokens: &[TokenId], stops: &[Stop]) {
        let len = self.book.len(key);
        self.book.mark(key, stops);
        let table: Vec<Option<BlockId>> = self.book.panes(key).collect();
        let seen = (len + 1).saturating_sub(self.window)..len;
        let table = |blocks: std::ops::Range<usize>| blocks.clone().zip(table[blocks].to_vec());
        for (idx, pane) in table(seen.start / BLOCK..seen.end.div_ceil(BLOCK)) {
            let end = ((idx + 1) * BLOCK).min(len);
            let pane = pane.expect("a pane that is seen is there");
            assert_eq!(self.panes[&pane][..end], tokens[..end], "it is what it should be");
        }
        for (idx, pane) in table(len / BLOCK..(len + rows).div_ceil(BLOCK)) {
            let end = ((idx + 1) * BLOCK).min(len + rows);
            let pane = pane.expect("a pane that is written to is there");
            self.panes.insert(pane, tokens[..end].to_vec());
        }
        self.book.commit(key, rows, tokens);
        assert_eq!(self.book.faults(), None);
    }

    /// Runs all of a prompt, some rows at a time. Returns how many tokens had to be computed.
    fn run(&mut self, prompt: &[TokenId], stops: &[Stop]) -> usize {
        let key = open(&mut self.book, prompt, 1);
        let len = self.book.len(key);
        while self.book.len(key) < prompt.len() {
            let at = self.book.len(key);
            let rows = self.book.reserve(key, 48.min(prompt.len() - at));
            assert!(rows > 0);
            let inside =
                stops.iter().copied().filter(|stop| (at + 1..=at + rows).contains(&stop.at));
            self.pass(key, rows, prompt, &inside.collect::<Vec<_>>());
        }
        self.book.close(key);
        assert_eq!(self.book.faults(), None);
        prompt.len() - len
    }
}

fn stop(at: usize) -> Stop {
    Stop { at, stay: Stay::Lasting }
}

#[test]
fn a_window_reaches_back_from_the_end_of_a_whole_block() {
    let check = |len, window, first| assert_eq!(first_pane(len, window), first, "{len} {window}");
    check(0, 5, 0);
    check(31, 5, 0);
    // From position 64 on, five positions are 60 to 64.
    check(64, 5, 1);
    check(95, 5, 1);
    check(64, 1, 2);
    check(64, 33, 1);
    check(64, 34, 0);
    check(960, usize::MAX, 0);
    assert_eq!([1, 32, 33, 512].map(least_panes), [2, 2, 3, 17]);
}

#[test]
fn panes_behind_the_window_are_given_away_and_those_at_stops_last() {
    let mut books = Books::new(40, 8, 40);
    let prompt = tokens(500, 0);
    assert_eq!(books.run(&prompt, &[stop(96), stop(256)]), 500);
    let Panes { free, kept, held } = books.book.pane_counts();
    assert_eq!((free, kept, held), (0, 8, 0));
    let cached = |books: &mut Books, n: usize| {
        let own = [tokens(n, 0), tokens(40, 9)].concat();
        let key = open(&mut books.book, &own, 1);
        let found = (books.book.len(key), books.book.miss(key, &own));
        books.book.close(key);
        found
    };
    assert_eq!(cached(&mut books, 270).0, 256);
    assert_eq!(cached(&mut books, 255), (96, Some(Miss::NoWindow { block: 3 })));
    assert_eq!(cached(&mut books, 95), (0, Some(Miss::NoWindow { block: 0 })));
    let key = open(&mut books.book, &prompt, 1);
    assert_eq!(books.book.len(key), 480);
    books.book.close(key);
    // Their blocks take them along.
    books.book.clear();
    assert_eq!(books.book.pane_counts(), Panes { free: 8, kept: 0, held: 0 });
}

/// A window that somebody went on from has proven itself: it outlives those that nobody used.
#[test]
fn a_window_that_was_of_use_stays_longer() {
    let mut books = Books::new(60, 12, 40);
    let prompt = tokens(200, 0);
    let on_from_128 = |n: usize, salt| [&prompt[..130], &tokens(n, salt)].concat();
    books.run(&prompt, &[]);
    assert_eq!(books.run(&on_from_128(170, 9), &[]), 300 - 128);
    books.run(&tokens(600, 5), &[]);
    assert_eq!(books.run(&on_from_128(20, 11), &[]), 150 - 128);
}

/// Two that computed the same keep one block, and a pane of one of them.
#[test]
fn a_block_without_a_pane_gets_that_of_whoever_computes_it_again() {
    let mut books = Books::new(40, 6, 40);
    let prompt = tokens(400, 0);
    books.run(&prompt, &[]);
    let start = [&prompt[..200], &tokens(10, 7)].concat();
    assert_eq!(books.run(&start, &[stop(192)]), 210, "no window is left there");
    assert_eq!(books.book.counts().cached, 13 + 1, "the blocks are the old ones");
    assert_eq!(books.run(&start, &[]), 210 - 192);
}

/// As much as all kinds of layers can go on from, in units of blocks (K02 b to f).
#[test]
fn reuse_goes_as_far_as_windows_and_states_do() {
    /// Blocks of the cached prompt, those that another one has in common with it, and those that are
    /// found; with states at the ends of blocks 16 and 32 if there are states.
    fn check(room: Room, cached: usize, shared: usize, expected: usize) {
        let mut book = CacheBook::new(room);
        let prompt = tokens(cached * BLOCK, 0);
        let key = open(&mut book, &prompt, 1);
        while book.len(key) < prompt.len() {
            let at = book.len(key);
            assert_eq!(book.reserve(key, BLOCK), BLOCK);
            let is_stop = [16, 32].contains(&(at / BLOCK + 1));
            let stops: Vec<Stop> = is_stop.then_some(stop(at + BLOCK)).into_iter().collect();
            book.mark(key, &stops);
            book.lease_states(key, BLOCK, &stops);
            book.commit(key, BLOCK, &prompt);
        }
        book.close(key);
        // Others need room for panes meanwhile.
        let other = tokens(8 * BLOCK, 5);
        let key = open(&mut book, &other, 1);
        for _ in 0..8 {
            assert_eq!(book.reserve(key, BLOCK), BLOCK);
            book.lease_states(key, BLOCK, &[]);
            book.commit(key, BLOCK, &other);
        }
        book.close(key);
        let longer = [tokens(shared * BLOCK, 0), tokens(2 * BLOCK, 9)].concat();
        let key = open(&mut book, &longer, 1);
        assert_eq!(book.len(key), expected * BLOCK, "{shared} of {cached}");
        book.close(key);
        assert_eq!(book.faults(), None);
    }
    let blocks = Room::of_blocks(64);
    let window = 8 * BLOCK;
    // Room for the window that is used, and for the one at the end.
    let few = Some(PaneRoom { panes: 19, window });
    let slots = Some(8);
    check(Room { panes: few, ..blocks }, 30, 21, 0);
    check(Room { panes: Some(PaneRoom { panes: 25, window }), ..blocks }, 6, 5, 5);
    check(Room { slots, ..blocks }, 40, 27, 16);
    // Both, and the windows at the stops are kept.
    let more = Some(PaneRoom { panes: 64, window });
    check(Room { slots, panes: more, ..blocks }, 40, 33, 32);
    check(Room { panes: few, ..blocks }, 30, 30, 30);
}

/// A sequence in the random traffic below.
struct Live {
    key: SeqKey,
    tokens: Vec<TokenId>,
    most: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, the books balance, and whoever goes on sees what it should.
    #[test]
    fn everybody_sees_its_window(
        n_blocks in 4..24usize,
        window in prop::sample::select(vec![1usize, 7, 32, 33, 64, 90, 2000]),
        more in 0..12usize,
        traffic in prop::collection::vec((0..7u8, 0..3u32, 1..90usize, 1..400usize), 1..100),
    ) {
        let n_panes = n_blocks.min(least_panes(window) + more);
        let mut books = Books::new(n_blocks, n_panes, window);
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
                // What comes back from disk: blocks, and panes as far as there is room.
                3 => for seq in &mut live {
                    let before = books.book.len(seq.key);
                    let end = (before / BLOCK * BLOCK + 2 * size) / BLOCK * BLOCK;
                    loop {
                        let len = books.book.len(seq.key);
                        books.book.follow(seq.key, &seq.tokens, len + BLOCK);
                        let at = books.book.len(seq.key);
                        if at == len || at > end {
                            break;
                        }
                        if at / BLOCK > first_pane(end, window) && !books.book.hold_last_pane(seq.key) {
                            let Some(pane) = books.book.take_last_pane(seq.key) else { break };
                            books.panes.insert(pane, seq.tokens[..at].to_vec());
                        }
                        prop_assert_eq!(books.book.faults(), None);
                    }
                    if !books.book.settle_restored(seq.key) {
                        books.book.rewind(seq.key);
                    }
                    prop_assert!(books.book.len(seq.key) >= before);
                },
                4 => for seq in &mut live {
                    let before = books.book.len(seq.key);
                    let fork = books.book.fork(seq.key, &seq.tokens);
                    let len = books.book.len(seq.key);
                    prop_assert_eq!(fork.is_some(), len > before);
                    if let Some((from, to)) = fork.and_then(|fork| fork.panes) {
                        let copied = books.panes[&from].clone();
                        prop_assert_eq!(&copied[..len], &seq.tokens[..len]);
                        books.panes.insert(to, copied);
                    }
                },
                _ => for seq in &mut live {
                    let at = books.book.len(seq.key);
                    let rows = books.book.reserve(seq.key, size.min(seq.most - at));
                    seq.tokens.extend(tokens(seq.most, salt).split_off(seq.tokens.len().min(seq.most)));
                    let ends = (at + 1..=at + rows).filter(|end| end.is_multiple_of(BLOCK));
                    let stops: Vec<Stop> = ends.filter(|at| (at / BLOCK + size).is_multiple_of(3)).map(stop).collect();
                    books.pass(seq.key, rows, &seq.tokens, &stops);
                },
            }
            prop_assert_eq!(books.book.faults(), None);
        }
        live.into_iter().for_each(|seq| books.book.close(seq.key));
        prop_assert_eq!(books.book.faults(), None);
        prop_assert_eq!((books.book.counts().held, books.book.pane_counts().held), (0, 0));
    }
}
