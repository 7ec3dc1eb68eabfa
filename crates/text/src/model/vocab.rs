//! Spellings and their ids, packed: one text, one span per id, one hash table of ids. Opening a model
//! builds this from hundreds of thousands of spellings, so nothing is allocated per token.
//!
//! How spellings join is not here.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Ids may be this much sparser than tokens are many; beyond, a table by id would waste memory.
const MAX_SPARSE: usize = 4;

/// The start of an id's spelling where the id has none.
const HOLE: u32 = u32::MAX;

/// Spellings in the order they were read, before they are known to fit together.
#[derive(Debug, Default)]
pub(crate) struct Spellings {
    text: Vec<u8>,
    /// Where each one ends in `text`.
    ends: Vec<usize>,
}

impl Spellings {
    /// Adds one.
    pub(crate) fn push(&mut self, spelling: &[u8]) {
        self.text.extend_from_slice(spelling);
        self.ends.push(self.text.len());
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The one at this place.
    pub(crate) fn get(&self, nth: usize) -> &[u8] {
        let start = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[nth]]
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|nth| self.get(nth))
    }
}

/// Why spellings and ids make no vocabulary of this form.
#[derive(Debug, PartialEq)]
pub(crate) enum Clash {
    /// Two ids are spelled alike.
    Spelling(u32, u32, String),
    /// An id has two spellings, or is far above the number of tokens.
    Id(u32),
    /// A spelling is not UTF-8.
    Text(u32),
    /// The spellings take more bytes than are counted here.
    Size,
}

/// Where a spelling lies in the text.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

/// Spellings by id and ids by spelling.
pub(crate) struct Vocab {
    text: String,
    /// By id.
    spans: Vec<Span>,
    /// Ids by the hash of their spelling.
    index: HashTable<u32>,
    /// Seeded at random, so that no file can be made whose tokens all collide.
    state: RandomState,
    n_tokens: usize,
    longest: usize,
}

impl Vocab {
    /// Spellings whose place is their id.
    pub(crate) fn in_order(spellings: Spellings) -> Result<Vocab, Clash> {
        let n = u32::try_from(spellings.len()).map_err(|_| Clash::Size)?;
        Vocab::new(spellings, 0..n).map_err(|(clash, _)| clash)
    }

    /// Spellings with one id each, in any order. Gives them back where they clash.
    pub(crate) fn new(
        spellings: Spellings,
        ids: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Result<Vocab, (Clash, Spellings)> {
        let mut vocab = Vocab {
            text: String::new(),
            spans: Vec::new(),
            index: HashTable::new(),
            state: RandomState::default(),
            n_tokens: ids.len(),
            longest: 0,
        };
        let Spellings { text, ends } = spellings;
        let text = match String::from_utf8(text) {
            Ok(text) => text,
            Err(error) => {
                let bad = error.utf8_error().valid_up_to();
                let nth = ends.partition_point(|&end| end <= bad);
                let clash = Clash::Text(ids.clone().nth(nth).unwrap_or_default());
                return Err((clash, Spellings { text: error.into_bytes(), ends }));
            }
        };
        match vocab.fill(&text, &ends, ids) {
            Ok(()) => Ok(Vocab { text, ..vocab }),
            Err(clash) => Err((clash, Spellings { text: text.into_bytes(), ends })),
        }
    }

    /// Everything but the text.
    fn fill(
        &mut self,
        text: &str,
        ends: &[usize],
        ids: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Result<(), Clash> {
        let highest = ids.clone().max().unwrap_or(0);
        let n_ids = highest as usize + 1;
        if u32::try_from(text.len()).is_err() {
            return Err(Clash::Size);
        }
        if n_ids / MAX_SPARSE > ids.len() {
            return Err(Clash::Id(highest));
        }
        self.spans.resize(n_ids, Span { start: HOLE, len: 0 });
        self.index = HashTable::with_capacity(ids.len());
        let mut start = 0;
        for (id, &end) in ids.zip(ends) {
            // Two halves of a character in two tokens are UTF-8 only together.
            let spelling = text.get(start..end).ok_or(Clash::Text(id))?;
            self.insert(text, id, start, spelling)?;
            start = end;
        }
        Ok(())
    }

    fn insert(&mut self, text: &str, id: u32, start: usize, spelling: &str) -> Result<(), Clash> {
        if self.spans[id as usize].start != HOLE {
            return Err(Clash::Id(id));
        }
        // Both fit: the length of the whole text does.
        self.spans[id as usize] = Span { start: start as u32, len: spelling.len() as u32 };
        self.longest = self.longest.max(spelling.len());
        let Vocab { spans, index, state, .. } = self;
        let eq = |&other: &u32| read(text, spans[other as usize]) == spelling;
        let rehash = |&other: &u32| hash(state, read(text, spans[other as usize]));
        match index.entry(hash(state, spelling), eq, rehash) {
            Entry::Occupied(other) => Err(Clash::Spelling(*other.get(), id, spelling.to_owned())),
            Entry::Vacant(free) => {
                free.insert(id);
                Ok(())
            }
        }
    }

    /// The id of a spelling.
    pub(crate) fn id(&self, spelling: &str) -> Option<u32> {
        if spelling.len() > self.longest {
            return None;
        }
        let eq = |&id: &u32| read(&self.text, self.spans[id as usize]) == spelling;
        self.index.find(hash(&self.state, spelling), eq).copied()
    }

    /// The spelling of an id.
    pub(crate) fn spelling(&self, id: u32) -> Option<&str> {
        let span = self.spans.get(id as usize)?;
        (span.start != HOLE).then(|| read(&self.text, *span))
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.n_tokens
    }

    /// One more than the highest id.
    pub(crate) fn n_ids(&self) -> usize {
        self.spans.len()
    }

    /// All tokens, by ascending id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(&self.spans).filter_map(|(id, _)| self.spelling(id).map(|text| (id, text)))
    }

    /// Bytes of the longest spelling.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }
}

fn read(text: &str, span: Span) -> &str {
    &text[span.start as usize..][..span.len as usize]
}

fn hash(state: &RandomState, spelling: &str) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(spelling.as_bytes());
    hasher.finish()
}
