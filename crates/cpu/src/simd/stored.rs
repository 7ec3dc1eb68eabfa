//! Keys and values of one block and head, as pages keep them: what each [`KvFormat`] is made of, and
//! how one number of it is read.
//!
//! A block has its numbers in lines of equal length: keys by column, values by row. Eight-bit codes
//! have their scales before them, one bf16 for every group of columns and position, and keys the base
//! before that, in bf16. Sixteen-bit codes have one scale for every position; two lines are interlaced,
//! number by number, so that their products with a pair of codes are added by the instruction that takes
//! them, and an odd last line is followed by one of zeros:
//!
//! ```text
//! 16-bit codes:   | scales [BLOCK] | lines 0 and 1 | lines 2 and 3 | ...
//! f16:            | line 0 | line 1 | ...
//! 8-bit values:   | scales of group 0 [BLOCK] | group 1 | ... | line 0 | line 1 | ...
//! 8-bit keys:     | base [columns] | scales of group 0 [BLOCK] | group 1 | ... | line 0 | ...
//! ```

use backend::{BLOCK, KEY_GROUP, KvFormat, VALUE_GROUP};

use crate::float::f16_at;

/// The keys of a block and head, by column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys<'a> {
    Int16(Wholes<'a>),
    F16(Halfs<'a>),
    Int8(Deltas<'a>),
}

/// The values of a block and head, by row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    Int16(Wholes<'a>),
    F16(Halfs<'a>),
    Int8(Codes<'a>),
}

/// Numbers in 16 bits with a scale per position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wholes<'a> {
    /// bf16, little endian.
    pub(crate) scales: &'a [u8],
    /// Signed, little endian, two lines interlaced.
    pub(crate) codes: &'a [u8],
}

/// Numbers in f16, little endian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halfs<'a>(pub(crate) &'a [u8]);

/// Numbers in 8 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codes<'a> {
    /// bf16, little endian.
    pub(crate) scales: &'a [u8],
    /// Signed.
    pub(crate) codes: &'a [u8],
}

/// Numbers in 8 bits that are differences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deltas<'a> {
    /// What they are differences from, one bf16 per column, little endian.
    pub(crate) base: &'a [u8],
    pub(crate) codes: Codes<'a>,
}

/// Bytes of one number, without scales.
fn unit(format: KvFormat) -> usize {
    match format {
        KvFormat::Int16 | KvFormat::F16 => 2,
        KvFormat::Int8 => 1,
    }
}

/// Bytes of the numbers of one column that lie together in a block of values.
pub(crate) fn value_cell(format: KvFormat) -> usize {
    match format {
        KvFormat::Int16 => 2 * unit(format),
        KvFormat::F16 | KvFormat::Int8 => unit(format),
    }
}

/// Bytes before the lines of a block of keys of `cols` columns.
pub(crate) fn keys_head(format: KvFormat, cols: usize) -> usize {
    format.base_bytes(cols) + scales_len(format, cols, KEY_GROUP)
}

/// Bytes before the lines of a block of values of `cols` columns.
pub(crate) fn values_head(format: KvFormat, cols: usize) -> usize {
    scales_len(format, cols, VALUE_GROUP)
}

fn scales_len(format: KvFormat, cols: usize, group: usize) -> usize {
    match format {
        KvFormat::Int16 => 2 * BLOCK,
        KvFormat::F16 => 0,
        KvFormat::Int8 => 2 * BLOCK * cols.div_ceil(group),
    }
}

/// Bytes of a block of keys of `cols` columns.
pub(crate) fn keys_len(format: KvFormat, cols: usize) -> usize {
    let lines = match format {
        KvFormat::Int16 => cols.next_multiple_of(2),
        KvFormat::F16 | KvFormat::Int8 => cols,
    };
    keys_head(format, cols) + unit(format) * BLOCK * lines
}

/// Bytes of a block of values of `cols` columns.
pub(crate) fn values_len(format: KvFormat, cols: usize) -> usize {
    values_head(format, cols) + unit(format) * BLOCK * cols
}

impl<'a> Keys<'a> {
    /// A block of `cols` columns.
    pub(crate) fn new(format: KvFormat, cols: usize, block: &'a [u8]) -> Keys<'a> {
        match format {
            KvFormat::Int16 => Keys::Int16(Wholes::new(block)),
            KvFormat::F16 => Keys::F16(Halfs(block)),
            KvFormat::Int8 => {
                let (head, codes) = block.split_at(keys_head(format, cols));
                let (base, scales) = head.split_at(format.base_bytes(cols));
                Keys::Int8(Deltas { base, codes: Codes { scales, codes } })
            }
        }
    }

    /// Column `column` of the key in `slot`.
    pub(crate) fn number(&self, column: usize, slot: usize) -> f32 {
        let at = column * BLOCK + slot;
        match self {
            Keys::Int16(wholes) => {
                f32::from(wholes.key_code(column, slot)) * bf16_at(wholes.scales, slot)
            }
            Keys::F16(Halfs(bytes)) => f16_at(bytes, 2 * at),
            Keys::Int8(Deltas { base, codes }) => {
                let (code, scale) = codes.parts(at, column / KEY_GROUP * BLOCK + slot);
                code.mul_add(scale, bf16_at(base, column))
            }
        }
    }
}

impl<'a> Values<'a> {
    /// A block of `cols` columns.
    pub(crate) fn new(format: KvFormat, cols: usize, block: &'a [u8]) -> Values<'a> {
        match format {
            KvFormat::Int16 => Values::Int16(Wholes::new(block)),
            KvFormat::F16 => Values::F16(Halfs(block)),
            KvFormat::Int8 => {
                let (scales, codes) = block.split_at(values_head(format, cols));
                Values::Int8(Codes { scales, codes })
            }
        }
    }

    /// Column `column` of the value in `slot`, in a block of `cols` columns.
    pub(crate) fn number(&self, column: usize, slot: usize, cols: usize) -> f32 {
        let at = slot * cols + column;
        match self {
            Values::Int16(wholes) => {
                f32::from(wholes.value_code(column, slot, cols)) * bf16_at(wholes.scales, slot)
            }
            Values::F16(Halfs(bytes)) => f16_at(bytes, 2 * at),
            Values::Int8(codes) => {
                let (code, scale) = codes.parts(at, column / VALUE_GROUP * BLOCK + slot);
                code * scale
            }
        }
    }
}

impl<'a> Wholes<'a> {
    fn new(block: &'a [u8]) -> Wholes<'a> {
        let (scales, codes) = block.split_at(2 * BLOCK);
        Wholes { scales, codes }
    }

    /// Whether this is a whole block of `cols` columns.
    pub(super) fn holds(self, cols: usize) -> bool {
        self.scales.len() == 2 * BLOCK && self.codes.len() == 2 * BLOCK * cols
    }

    /// Code of a column of the key in `slot`.
    pub(super) fn key_code(self, column: usize, slot: usize) -> i16 {
        self.code(paired(column, slot, BLOCK))
    }

    /// Code of a column of the value in `slot`, in a block of `cols` columns.
    pub(super) fn value_code(self, column: usize, slot: usize, cols: usize) -> i16 {
        self.code(paired(slot, column, cols))
    }

    fn code(self, at: usize) -> i16 {
        i16::from_le_bytes([self.codes[2 * at], self.codes[2 * at + 1]])
    }
}

/// Where number `at` of a line is, of lines of `len` numbers of which two are interlaced.
pub(crate) fn paired(line: usize, at: usize, len: usize) -> usize {
    line / 2 * 2 * len + 2 * at + line % 2
}

impl Codes<'_> {
    fn parts(&self, code: usize, scale: usize) -> (f32, f32) {
        (f32::from(self.codes[code] as i8), bf16_at(self.scales, scale))
    }
}

/// The little-endian bf16 number `index`.
#[inline(always)]
pub(super) fn bf16_at(bytes: &[u8], index: usize) -> f32 {
    f32::from_le_bytes([0, 0, bytes[2 * index], bytes[2 * index + 1]])
}
