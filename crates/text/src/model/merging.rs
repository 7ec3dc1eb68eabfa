//! Which two neighbouring tokens join into which third, and what joins first.
//!
//! Nothing is stored per pair: what two tokens make is a question to the vocabulary, by their joint
//! spelling, and the answer's rank lies with the token that comes out. So a list of merges is read
//! without looking up their halves.
//!
//! Applying it to a word is not here.

use super::vocab::Vocab;

/// A join: how early it happens (lower is earlier) and what comes out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Join {
    pub(crate) rank: u64,
    pub(crate) joined: u32,
}

/// The rule of a vocabulary.
pub(crate) enum Merging {
    /// Listed pairs, the first joins first.
    Ranked(Ranked),
    /// Whatever spells a token joins, the token with the best score first.
    Scored(Scored),
}

impl Merging {
    /// What these two make, if anything. `scratch` is overwritten.
    pub(crate) fn join(
        &self,
        vocab: &Vocab,
        left: u32,
        right: u32,
        scratch: &mut String,
    ) -> Option<Join> {
        if let Merging::Scored(scored) = self {
            scored.place(left).and(scored.place(right))?;
        }
        let (first, second) = (vocab.spelling(left)?, vocab.spelling(right)?);
        if first.len() + second.len() > vocab.longest() {
            return None;
        }
        scratch.clear();
        scratch.extend([first, second]);
        let joined = vocab.id(scratch)?;
        let rank = match self {
            Merging::Ranked(ranked) => ranked.rank(joined, first.len())?,
            // Of the ways to make one token, that with the shorter left half comes first.
            Merging::Scored(scored) => {
                u64::from(scored.place(joined)?) << u32::BITS | first.len() as u64
            }
        };
        Some(Join { rank, joined })
    }
}

/// Listed pairs.
pub(crate) struct Ranked {
    /// By token and one more: where its ways begin. As long as the vocabulary.
    starts: Vec<u32>,
    /// The ways to make each token, in the order of the list.
    ways: Vec<Way>,
}

/// A way to make a token out of two.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Bytes of the left half.
    left: u32,
    rank: u32,
}

impl Ranked {
    /// The pairs by their spellings. A pair with a half that is no token is never asked for; errors
    /// with the place of the first pair that spells no token.
    pub(crate) fn new<'a>(
        vocab: &Vocab,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Ranked, (usize, &'a [u8], &'a [u8])> {
        let mut starts = vec![0; vocab.n_ids() + 1];
        let mut made = Vec::new();
        let mut finder = Finder::default();
        for (place, (left, right)) in pairs.enumerate() {
            let wrong = (place, left, right);
            let joined = finder.find(vocab, left, right).ok_or(wrong)?;
            let rank = u32::try_from(place).map_err(|_| wrong)?;
            // No token is longer than a vocabulary's text, which is counted in 32 bits.
            made.push((joined, Way { left: left.len() as u32, rank }));
            starts[joined as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut free = starts.clone();
        let mut ways = vec![Way::default(); made.len()];
        for (joined, way) in made {
            let at = &mut free[joined as usize];
            ways[*at as usize] = way;
            *at += 1;
        }
        Ok(Ranked { starts, ways })
    }

    /// The rank of making a token with a left half of so many bytes. Of a pair that is listed twice,
    /// the later place counts.
    fn rank(&self, joined: u32, left: usize) -> Option<u64> {
        let at = joined as usize;
        let ways = &self.ways[self.starts[at] as usize..self.starts[at + 1] as usize];
        let way = ways.iter().rev().find(|way| way.left as usize == left)?;
        Some(way.rank.into())
    }
}

/// Finds the tokens that pairs spell. Most vocabularies list tokens in the order of their merges, so
/// the last one found and its successor are tried before the hash table.
#[derive(Default)]
struct Finder {
    last: u32,
    text: Vec<u8>,
}

impl Finder {
    fn find(&mut self, vocab: &Vocab, left: &[u8], right: &[u8]) -> Option<u32> {
        let is_it = |&id: &u32| {
            let rest = vocab.spelling(id).and_then(|text| text.as_bytes().strip_prefix(left));
            rest == Some(right)
        };
        let guesses = [self.last.saturating_add(1), self.last];
        let id = guesses.into_iter().find(is_it).or_else(|| {
            self.text.clear();
            self.text.extend_from_slice(left);
            self.text.extend_from_slice(right);
            vocab.id(std::str::from_utf8(&self.text).ok()?)
        })?;
        self.last = id;
        Some(id)
    }
}

/// SentencePiece's rule: scores instead of pairs.
pub(crate) struct Scored {
    /// By id: how many tokens have a better score, or [`NEVER`].
    places: Vec<u32>,
}

/// Neither joins nor comes out of a join.
const NEVER: u32 = u32::MAX;

impl Scored {
    /// Tokens that join, best score first; ids beyond the vocabulary are passed over.
    pub(crate) fn new(vocab: &Vocab, best_first: &[u32]) -> Scored {
        let mut places = vec![NEVER; vocab.n_ids()];
        for (place, &id) in (0..NEVER).zip(best_first) {
            if let Some(slot) = places.get_mut(id as usize) {
                *slot = place;
            }
        }
        Scored { places }
    }

    fn place(&self, id: u32) -> Option<u32> {
        self.places.get(id as usize).copied().filter(|&place| place != NEVER)
    }
}
