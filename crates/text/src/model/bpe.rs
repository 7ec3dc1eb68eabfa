//! Byte-pair encoding of one word: its characters become tokens, and neighbours join in the order of
//! their ranks. Ids equal those of the `tokenizers` crate's BPE without dropout, prefix and suffix;
//! `tests/bpe.rs` compares them.
//!
//! It neither cuts texts into words nor knows special tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::merging::{Join, Merging};
use super::vocab::Vocab;

/// The small settings of tokenizer.json's model.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// Stands for characters that have no token.
    pub(crate) unk_token: Option<String>,
    /// Several of those in a row become one.
    pub(crate) fuse_unk: bool,
    /// A character without a token becomes `<0xNN>` tokens where all of its bytes have one.
    pub(crate) byte_fallback: bool,
    /// A word that is a token is that token, whatever the merges make of it.
    pub(crate) ignore_merges: bool,
}

/// Characters below this are found without hashing: those of byte-level spellings and most scripts of
/// Europe.
const N_DIRECT: usize = 0x180;

/// The direct table's entry for a character that is no token.
const NONE: u32 = u32::MAX;

/// A model: vocabulary, merging rule, settings.
pub(crate) struct Bpe {
    vocab: Vocab,
    merging: Merging,
    options: Options,
    /// Ids of the first characters.
    direct: Vec<u32>,
    unk: Option<u32>,
    /// By byte; empty without byte fallback.
    bytes: Vec<Option<u32>>,
}

/// Memory that is used again from word to word.
pub(crate) struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
    pairs: Pairs,
    ids: Vec<u32>,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let known = vec![Known { pair: (END, END), join: None }; N_PAIRS];
        let pairs = Pairs { known, text: String::new() };
        Scratch { symbols: Vec::new(), queue: BinaryHeap::new(), pairs, ids: Vec::new() }
    }
}

/// What pairs make, as far as they were asked for lately: texts repeat themselves, and this is closer
/// than the vocabulary.
struct Pairs {
    /// Each pair has one place here, which others share.
    known: Vec<Known>,
    text: String,
}

/// Places in [`Pairs`], a power of two: as many as stay in a processor's cache.
const N_PAIRS: usize = 1 << 13;

#[derive(Clone, Copy)]
struct Known {
    pair: (u32, u32),
    join: Option<Join>,
}

impl Pairs {
    fn join(&mut self, bpe: &Bpe, left: u32, right: u32) -> Option<Join> {
        let mixed = left.wrapping_mul(0x9E37_79B1) ^ right.wrapping_mul(0x85EB_CA77);
        let place = &mut self.known[(mixed >> (u32::BITS - N_PAIRS.ilog2())) as usize];
        if place.pair != (left, right) {
            let join = bpe.merging.join(&bpe.vocab, left, right, &mut self.text);
            *place = Known { pair: (left, right), join };
        }
        place.join
    }
}

/// A token of the word, in a doubly linked list.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    /// Place of the symbol before; [`END`] for none.
    before: u32,
    /// Place of the symbol after; [`END`] for none.
    after: u32,
    /// It has been joined to the one before it.
    gone: bool,
}

const END: u32 = u32::MAX;

/// A join that may happen: the lowest rank first, then the leftmost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u64,
    /// Place of the left symbol.
    at: u32,
    joined: u32,
    /// The two tokens it is about. A join only makes tokens longer, so when either has changed, this
    /// is out of date.
    pair: (u32, u32),
}

impl Bpe {
    pub(crate) fn new(vocab: Vocab, merging: Merging, options: Options) -> Bpe {
        let single = |c: char| vocab.id(c.encode_utf8(&mut [0; 4]));
        let direct = (0..N_DIRECT as u32).map(|code| char::from_u32(code).and_then(single));
        let direct = direct.map(|id| id.unwrap_or(NONE)).collect();
        let unk = options.unk_token.as_deref().and_then(|unk| vocab.id(unk));
        let n_bytes = if options.byte_fallback { 256 } else { 0 };
        let bytes = (0..n_bytes).map(|byte| vocab.id(&format!("<0x{byte:02X}>"))).collect();
        Bpe { vocab, merging, options, direct, unk, bytes }
    }

    pub(crate) fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The ids of a word. Errors when a character needs the unknown token and there is none of that
    /// name.
    pub(crate) fn encode<'s>(
        &self,
        word: &str,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [u32], String> {
        scratch.ids.clear();
        let whole = self.options.ignore_merges.then(|| self.vocab.id(word)).flatten();
        if whole.is_some() {
            scratch.ids.extend(whole);
            return Ok(&scratch.ids);
        }
        scratch.symbols.clear();
        self.characters(word, &mut scratch.symbols)?;
        self.join_all(scratch)?;
        let left = scratch.symbols.iter().filter(|symbol| !symbol.gone);
        scratch.ids.extend(left.map(|symbol| symbol.id));
        Ok(&scratch.ids)
    }

    /// The tokens of the single characters.
    fn characters(&self, word: &str, symbols: &mut Vec<Symbol>) -> Result<(), String> {
        // An unknown character waits for the next known one; bytes go before it, as in the crate.
        let mut unknown = None;
        for c in word.chars() {
            if let Some(id) = self.character(c) {
                symbols.extend(unknown.take().map(Symbol::alone));
                symbols.push(Symbol::alone(id));
                continue;
            }
            let mut utf8 = [0; 4];
            let utf8 = c.encode_utf8(&mut utf8).as_bytes();
            let byte = |&byte: &u8| self.bytes.get(usize::from(byte)).copied().flatten();
            if utf8.iter().all(|b| byte(b).is_some()) {
                symbols.extend(utf8.iter().filter_map(byte).map(Symbol::alone));
            } else if let Some(name) = &self.options.unk_token {
                let unk = self.unk.ok_or_else(|| {
                    format!("the unknown token {name:?} is not in the vocabulary")
                })?;
                if !self.options.fuse_unk {
                    symbols.extend(unknown.map(Symbol::alone));
                }
                unknown = Some(unk);
            }
        }
        symbols.extend(unknown.map(Symbol::alone));
        Ok(())
    }

    fn character(&self, c: char) -> Option<u32> {
        match self.direct.get(c as usize) {
            Some(&id) => Some(id).filter(|&id| id != NONE),
            None => self.vocab.id(c.encode_utf8(&mut [0; 4])),
        }
    }

    fn join_all(&self, scratch: &mut Scratch) -> Result<(), String> {
        let Scratch { symbols, queue, pairs, .. } = scratch;
        let n = u32::try_from(symbols.len()).map_err(|_| "it is too long".to_owned())?;
        for (at, symbol) in (0..n).zip(symbols.iter_mut()) {
            symbol.before = at.checked_sub(1).unwrap_or(END);
            symbol.after = if at + 1 < n { at + 1 } else { END };
        }
        let mut candidate = |symbols: &[Symbol], left: u32, right: u32| {
            let pair = (symbols[left as usize].id, symbols[right as usize].id);
            let Join { rank, joined } = pairs.join(self, pair.0, pair.1)?;
            Some(Reverse(Candidate { rank, at: left, joined, pair }))
        };
        queue.clear();
        queue.extend((1..n).filter_map(|right| candidate(symbols, right - 1, right)));
        while let Some(Reverse(Candidate { at, joined, pair, .. })) = queue.pop() {
            let Symbol { id, after, gone, before } = symbols[at as usize];
            if gone || after == END || (id, symbols[after as usize].id) != pair {
                continue;
            }
            let beyond = symbols[after as usize].after;
            symbols[after as usize].gone = true;
            symbols[at as usize].id = joined;
            symbols[at as usize].after = beyond;
            if beyond != END {
                symbols[beyond as usize].before = at;
                queue.extend(candidate(symbols, at, beyond));
            }
            if before != END {
                queue.extend(candidate(symbols, before, at));
            }
        }
        Ok(())
    }
}

impl Symbol {
    /// Linked to nothing yet.
    fn alone(id: u32) -> Symbol {
        Symbol { id, before: END, after: END, gone: false }
    }
}
