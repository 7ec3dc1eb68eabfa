//! A batch where the plans can read it: tokens, and the rows of pages that belong to positions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use backend::{BLOCK, Batch, BlockId, KvGroup, Span};

use crate::ffi::{Array, Dtype, Fault};
use crate::indices;
use crate::pages::Rows;

/// A batch, and arrays that several layers make of it alike.
#[derive(Debug, Default)]
pub struct Staged {
    pub(crate) batch: Batch,
    arrays: Option<Arrays>,
    /// Places of a span's positions from one on, and what windows let its rows see.
    made: RefCell<HashMap<Key, Array>>,
}

#[derive(Debug)]
struct Arrays {
    tokens: Array,
    want: Array,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Places { group: KvGroup, span: usize, first: usize },
    Seen { span: usize, window: usize },
}

/// Row of the pages where `position` of a sequence is, by its table of blocks.
fn place(table: &[BlockId], position: usize) -> u32 {
    table[position / BLOCK] * BLOCK as u32 + (position % BLOCK) as u32
}

impl Staged {
    pub(crate) fn new(batch: &Batch) -> Result<Staged, Fault> {
        let arrays = Arrays { tokens: indices(&batch.tokens)?, want: indices(&batch.want)? };
        Ok(Staged { batch: batch.clone(), arrays: Some(arrays), made: RefCell::default() })
    }

    fn arrays(&self) -> Result<&Arrays, Fault> {
        self.arrays.as_ref().ok_or_else(|| Fault("no batch was staged".to_owned()))
    }

    pub(crate) fn tokens(&self) -> Result<&Array, Fault> {
        Ok(&self.arrays()?.tokens)
    }

    pub(crate) fn want(&self) -> Result<&Array, Fault> {
        Ok(&self.arrays()?.want)
    }

    /// Row of a group's pages where each row's key and value go.
    pub(crate) fn places(&self, group: KvGroup) -> Vec<u32> {
        let own = |span: &'_ Span| {
            let positions = span.start..span.start + span.rows.len();
            positions.map(|position| place(span.table(group), position)).collect::<Vec<_>>()
        };
        self.batch.spans.iter().flat_map(own).collect()
    }

    fn once(&self, key: Key, make: impl FnOnce() -> Result<Array, Fault>) -> Result<Array, Fault> {
        if let Some(array) = self.made.borrow().get(&key) {
            return Ok(array.clone());
        }
        let array = make()?;
        self.made.borrow_mut().insert(key, array.clone());
        Ok(array)
    }

    /// Where `positions` of a span's sequence are: one range if its blocks follow each other.
    pub(crate) fn rows(
        &self,
        (group, span): (KvGroup, usize),
        positions: Range<usize>,
    ) -> Result<Rows, Fault> {
        let (first, table) = (positions.start, self.batch.spans[span].table(group));
        let blocks = &table[first / BLOCK..positions.end.div_ceil(BLOCK)];
        if blocks.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            let start = place(table, first) as usize;
            return Ok(Rows::Range(start..start + positions.len()));
        }
        let places = || indices(&positions.map(|p| place(table, p)).collect::<Vec<_>>());
        Ok(Rows::Places(self.once(Key::Places { group, span, first }, places)?))
    }

    /// Which of the positions from `first` on each row of a span sees through a window: `[rows,
    /// positions]`.
    pub(crate) fn seen(&self, span: usize, first: usize, window: usize) -> Result<Array, Fault> {
        let Span { rows, start, .. } = &self.batch.spans[span];
        let (n, end) = (rows.len(), start + rows.len());
        let sees = |row: usize, key: usize| {
            let position = start + row;
            key <= position && key + window > position
        };
        let make = || {
            let bytes: Vec<u8> = (0..n)
                .flat_map(|row| (first..end).map(move |key| u8::from(sees(row, key))))
                .collect();
            Array::new(&bytes, &[n, end - first], Dtype::Bool)
        };
        self.once(Key::Seen { span, window }, make)
    }
}
