//! Keys and values of one layer as MLX arrays: a row for every position of every block, stored as
//! [`KvFormat`] says. Not the attention over them, which is in `attention.rs`.

use std::ops::Range;

use backend::{Attention, BLOCK, BlockId, KEY_GROUP, KvFormat, KvGroup, VALUE_GROUP, Values};
use backend::{QUERY_LENGTH, WHOLE_CODE, WHOLE_LENGTH};

use crate::ffi::{Array, Dtype, Fault, concatenate};

/// Below this a group of 8-bit codes counts as zeros.
const SMALLEST: f32 = 1e-35;
/// Likewise a key or value of 16-bit codes.
const SMALLEST_WHOLE: f32 = 1e-15;

/// Keys and values of one layer.
#[derive(Debug)]
pub struct Pages {
    /// What queries are rounded for.
    pub(crate) format: KvFormat,
    /// Whose table says where its blocks are.
    pub(crate) group: KvGroup,
    /// None where values are the keys' first columns.
    pub(crate) keys: Option<Store>,
    pub(crate) values: Store,
}

/// Rows of pages.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    Range(Range<usize>),
    Places(Array),
}

/// How numbers of one position and head are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Half,
    /// 16-bit codes with one scale.
    Whole,
    /// 8-bit codes with a scale for every so many columns.
    Grouped(usize),
    /// Likewise of the difference to the base of a block.
    Based(usize),
}

/// Numbers of `[positions, heads, columns]`.
#[derive(Debug)]
pub(crate) struct Store {
    coding: Coding,
    cols: usize,
    /// What the coding keeps: numbers or codes, scales, bases. The last are one row per block.
    arrays: Vec<Array>,
}

impl Pages {
    pub(crate) fn new(spec: &Attention, format: KvFormat, n_blocks: usize) -> Result<Pages, Fault> {
        let format = spec.kept_in(format);
        let (keys, values) = match format {
            KvFormat::F16 => (Coding::Half, Coding::Half),
            KvFormat::Int16 => (Coding::Whole, Coding::Whole),
            KvFormat::Int8 => (Coding::Based(KEY_GROUP), Coding::Grouped(VALUE_GROUP)),
        };
        let store = |coding, cols| Store::new(coding, (n_blocks, spec.kv_heads, cols));
        let (keys, value_cols) = match spec.values {
            Values::Own(cols) => (Some(store(keys, spec.head_dim)?), cols),
            Values::OfKeys(_) => (None, spec.head_dim),
        };
        Ok(Pages { format, group: spec.group(), keys, values: store(values, value_cols)? })
    }

    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store> {
        self.keys.iter().chain([&self.values])
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.stores().map(Store::block_bytes).sum()
    }

    pub(crate) fn read_block(&self, block: BlockId, out: &mut [u8]) -> Result<(), Fault> {
        let mut at = 0;
        for (array, rows) in self.stores().flat_map(|store| store.block(block)) {
            array.slice(0, rows)?.read(|bytes| {
                out[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            })?;
        }
        assert_eq!(at, out.len(), "a whole block is read");
        Ok(())
    }

    pub(crate) fn write_block(&mut self, block: BlockId, mut bytes: &[u8]) -> Result<(), Fault> {
        assert_eq!(bytes.len(), self.block_bytes(), "a whole block is written");
        for store in self.keys.iter_mut().chain([&mut self.values]) {
            let places: Vec<_> = store.block(block).map(|(_, rows)| rows).collect();
            for (array, rows) in store.arrays.iter_mut().zip(places) {
                let mut shape = array.shape();
                shape[0] = rows.len();
                let n = shape.iter().product::<usize>() * array.dtype().n_bytes();
                let (head, rest) = bytes.split_at(n);
                *array = array.with_rows(rows.start, &Array::new(head, &shape, array.dtype())?)?;
                bytes = rest;
            }
        }
        Ok(())
    }
}

impl Store {
    fn new(coding: Coding, (n_blocks, heads, cols): (usize, usize, usize)) -> Result<Store, Fault> {
        let rows = n_blocks * BLOCK;
        let zeros = |rows, cols, dtype| Array::zeros(&[rows, heads, cols], dtype);
        let arrays = match coding {
            Coding::Half => vec![zeros(rows, cols, Dtype::F16)?],
            Coding::Whole => {
                vec![zeros(rows, cols, Dtype::I16)?, zeros(rows, 1, Dtype::Bf16)?]
            }
            Coding::Grouped(group) => {
                vec![zeros(rows, cols, Dtype::I8)?, zeros(rows, cols.div_ceil(group), Dtype::Bf16)?]
            }
            Coding::Based(group) => vec![
                zeros(rows, cols, Dtype::I8)?,
                zeros(rows, cols.div_ceil(group), Dtype::Bf16)?,
                zeros(n_blocks, cols, Dtype::Bf16)?,
            ],
        };
        // At once, and for whichever thread comes: pages are made where a model is loaded.
        crate::ffi::compute(&arrays.iter().collect::<Vec<_>>())?;
        Ok(Store { coding, cols, arrays })
    }

    pub(crate) fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The arrays, and which of their rows a block has.
    fn block(&self, block: BlockId) -> impl Iterator<Item = (&Array, Range<usize>)> {
        let block = block as usize;
        self.arrays.iter().enumerate().map(move |(i, array)| {
            (array, if i == 2 { block..block + 1 } else { block * BLOCK..(block + 1) * BLOCK })
        })
    }

    fn block_bytes(&self) -> usize {
        let bytes = |(i, array): (usize, &Array)| {
            let row: usize = array.shape()[1..].iter().product();
            row * array.dtype().n_bytes() * if i == 2 { 1 } else { BLOCK }
        };
        self.arrays.iter().enumerate().map(bytes).sum()
    }

    /// Stores `x`, `[rows, heads, columns]`, at `places`, of which none is named twice.
    pub(crate) fn write(&mut self, x: &Array, places: &[u32]) -> Result<(), Fault> {
        let at = crate::indices(places)?;
        let fresh = match self.coding {
            Coding::Half => vec![x.astype(Dtype::F16)?],
            Coding::Whole => whole(&x.astype(Dtype::F32)?)?.to_vec(),
            Coding::Grouped(group) => grouped(&x.astype(Dtype::F32)?, group)?.to_vec(),
            Coding::Based(group) => {
                let x = x.astype(Dtype::F32)?;
                self.write_bases(&x, places)?;
                grouped(&x.subtract(&self.bases(&blocks_of(places)?)?)?, group)?.to_vec()
            }
        };
        for (array, fresh) in self.arrays.iter_mut().zip(fresh) {
            *array = array.with_rows_at(&at, &fresh)?;
        }
        Ok(())
    }

    /// Keys at the first positions of blocks become their bases.
    fn write_bases(&mut self, x: &Array, places: &[u32]) -> Result<(), Fault> {
        let first = |(_, place): &(u32, &u32)| (**place as usize).is_multiple_of(BLOCK);
        let firsts: Vec<(u32, &u32)> = (0..).zip(places).filter(first).collect();
        if firsts.is_empty() {
            return Ok(());
        }
        let rows = crate::indices(&firsts.iter().map(|(row, _)| *row).collect::<Vec<_>>())?;
        let blocks = blocks_of(&firsts.iter().map(|(_, place)| **place).collect::<Vec<_>>())?;
        let bases = x.take(&rows, 0)?.astype(Dtype::Bf16)?;
        self.arrays[2] = self.arrays[2].with_rows_at(&blocks, &bases)?;
        Ok(())
    }

    fn bases(&self, blocks: &Array) -> Result<Array, Fault> {
        self.arrays[2].take(blocks, 0)?.astype(Dtype::F32)
    }

    /// `[rows, heads, columns]`, as they read.
    pub(crate) fn read(&self, rows: &Rows, dtype: Dtype) -> Result<Array, Fault> {
        let part = |array: &Array| match rows {
            Rows::Range(range) => array.slice(0, range.clone()),
            Rows::Places(places) => array.take(places, 0),
        };
        let numbers = |array: &Array| part(array)?.astype(Dtype::F32);
        match self.coding {
            Coding::Half => part(&self.arrays[0])?.astype(dtype),
            Coding::Whole => {
                numbers(&self.arrays[0])?.multiply(&numbers(&self.arrays[1])?)?.astype(dtype)
            }
            Coding::Grouped(group) => {
                let scales = spread(&numbers(&self.arrays[1])?, group, self.cols)?;
                numbers(&self.arrays[0])?.multiply(&scales)?.astype(dtype)
            }
            Coding::Based(group) => {
                let scales = spread(&numbers(&self.arrays[1])?, group, self.cols)?;
                let rest = numbers(&self.arrays[0])?.multiply(&scales)?;
                let blocks = match rows {
                    Rows::Range(range) => {
                        blocks_of(&range.clone().map(|row| row as u32).collect::<Vec<_>>())?
                    }
                    Rows::Places(places) => {
                        let bits = Array::new(&BLOCK.ilog2().to_le_bytes(), &[1], Dtype::U32)?;
                        places.right_shift(&bits)?
                    }
                };
                rest.add(&self.bases(&blocks)?)?.astype(dtype)
            }
        }
    }
}

fn blocks_of(places: &[u32]) -> Result<Array, Fault> {
    crate::indices(&places.iter().map(|place| place / BLOCK as u32).collect::<Vec<_>>())
}

/// A number for every column out of one for every group.
fn spread(scales: &Array, group: usize, cols: usize) -> Result<Array, Fault> {
    let [rows, heads, groups] = scales.shape()[..] else { unreachable!("three axes") };
    let wide = scales.reshape(&[rows, heads, groups, 1])?;
    let wide = wide.broadcast(&[rows, heads, groups, group])?;
    wide.reshape(&[rows, heads, groups * group])?.slice(2, 0..cols)
}

/// The smallest bf16 that is not below `exact`; zero where `is_small` says so, no number where what
/// it is of is not finite.
fn scale_of(exact: &Array, is_small: &Array) -> Result<Array, Fault> {
    let number = |x| Array::number(x, Dtype::F32);
    let just_below = Array::new(&0xffffu32.to_le_bytes(), &[1], Dtype::U32)?;
    let half = Array::new(&16u32.to_le_bytes(), &[1], Dtype::U32)?;
    let bits = exact.view(Dtype::U32)?.add(&just_below)?.right_shift(&half)?;
    let scale = bits.astype(Dtype::U16)?.view(Dtype::Bf16)?.astype(Dtype::F32)?;
    let finite = exact.less(&number(f32::INFINITY)?)?;
    let scale = is_small.choose(&number(0.0)?, &scale)?;
    finite.choose(&scale, &number(f32::NAN)?)
}

/// Codes of `x` for scales, which may be zero or none.
fn codes_of(x: &Array, scale: &Array, dtype: Dtype) -> Result<Array, Fault> {
    let zero = Array::number(0.0, Dtype::F32)?;
    let usable = zero.less(scale)?;
    let inverse = Array::number(1.0, Dtype::F32)?.divide(scale)?;
    let codes = x.multiply(&inverse)?.round()?;
    usable.choose(&codes, &zero)?.astype(dtype)
}

/// Root of the sum of squares.
fn length_of(x: &Array) -> Result<Array, Fault> {
    x.square()?.sum(2)?.sqrt()
}

/// 16-bit codes and scales.
fn whole(x: &Array) -> Result<[Array; 2], Fault> {
    let number = |x| Array::number(x, Dtype::F32);
    let largest = x.abs()?.max(2)?;
    let by_length = length_of(x)?.divide(&number(WHOLE_LENGTH)?)?;
    let exact = by_length.maximum(&largest.divide(&number(WHOLE_CODE)?)?)?;
    let scale = scale_of(&exact, &largest.less(&number(SMALLEST_WHOLE)?)?)?;
    Ok([codes_of(x, &scale, Dtype::I16)?, scale.astype(Dtype::Bf16)?])
}

/// 8-bit codes and scales.
fn grouped(x: &Array, group: usize) -> Result<[Array; 2], Fault> {
    let number = |x| Array::number(x, Dtype::F32);
    let [rows, heads, cols] = x.shape()[..] else { unreachable!("three axes") };
    let groups = cols.div_ceil(group);
    let missing = groups * group - cols;
    let padding = Array::zeros(&[rows, heads, missing], Dtype::F32)?;
    let padded = if missing == 0 { x.clone() } else { concatenate(&[x, &padding], 2)? };
    let padded = padded.reshape(&[rows, heads, groups, group])?;
    let largest = padded.abs()?.max(3)?;
    let small = largest.less(&number(SMALLEST)?)?;
    let scale = scale_of(&largest.divide(&number(127.0)?)?, &small)?;
    let codes = codes_of(&padded, &scale, Dtype::I8)?;
    let codes = codes.reshape(&[rows, heads, groups * group])?.slice(2, 0..cols)?;
    Ok([codes, scale.reshape(&[rows, heads, groups])?.astype(Dtype::Bf16)?])
}

/// What becomes of queries, `[rows, heads, columns]`, before they meet keys of a format.
pub(crate) fn round_queries(q: &Array, format: KvFormat) -> Result<Array, Fault> {
    if format != KvFormat::Int16 {
        return Ok(q.clone());
    }
    let number = |x| Array::number(x, Dtype::F32);
    let x = q.astype(Dtype::F32)?;
    let length = length_of(&x)?;
    let small = length.less(&number(SMALLEST_WHOLE)?)?;
    let codes = x.multiply(&number(QUERY_LENGTH)?.divide(&length)?)?.round()?;
    let rounded = codes.multiply(&length.divide(&number(QUERY_LENGTH)?)?)?;
    small.choose(&number(0.0)?, &rounded)?.astype(q.dtype())
}
