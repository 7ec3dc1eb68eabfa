//! How keys and values are stored, as plain data. How a device lays them out is its own business.

/// Neighbouring columns of a key that share a scale in [`KvFormat::Int8`]; the last ones of a head may
/// be fewer.
pub const KEY_GROUP: usize = 8;
/// Likewise of a value.
pub const VALUE_GROUP: usize = 32;

/// The greatest length that a key or value has in [`KvFormat::Int16`], in steps of its scale: the root
/// of the sum of the squares of its codes.
pub const WHOLE_LENGTH: f32 = 65_535.0;
/// The greatest code there.
pub const WHOLE_CODE: f32 = 32_767.0;
/// The length of a query in codes, where keys are whole numbers: see [`KvFormat::Int16`].
pub const QUERY_LENGTH: f32 = 32_000.0;

/// What becomes of a key or value when it is stored, and what attention therefore sees. That depends
/// on the key or value itself and, in 8 bits, on the key of the first position of its block, which is
/// stored before it and stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// Whole numbers of 16 bits, with one scale for the key or value of a position and head.
    ///
    /// A number reads as `code * scale`, which f32 holds exactly. `scale` is the smallest bf16 that is
    /// not below `length / WHOLE_LENGTH` and `max |x| / WHOLE_CODE`; `code` is `x * (1 / scale)`,
    /// computed in f32 and rounded to the nearest whole number, ties to even. `length` is the root of
    /// the sum of squares, of which column `i` goes to sum `i % 16`, fused and in order; of the 16 sums,
    /// those at a distance of 8, then 4, 2 and 1 are added. What is nowhere as large as 1e-15 counts as
    /// zeros. A key or value whose length is no number or infinite reads as NaNs.
    ///
    /// A query is rounded likewise before it meets such keys: `code` is `x * (QUERY_LENGTH / length)`, its
    /// scale, in f32, `length / QUERY_LENGTH`. A device may round the weights of the values of a
    /// block too, in steps of a 65,000th of their sum or of a [`WHOLE_CODE`]th of the greatest, each weight
    /// taken times its value's scale.
    ///
    /// Where values are columns of keys, [`KvFormat::F16`] takes this one's place
    /// ([`crate::Attention::kept_in`]).
    ///
    /// Of a typical key this keeps 13 or 14 bits and a sign in every column, where f16 keeps 11, and no
    /// product of two such vectors can be larger than that of their lengths (Cauchy and Schwarz): sums
    /// of products can be taken in whole numbers of 32 bits, which no order changes.
    #[default]
    Int16,
    /// Rounded to the nearest f16, ties to even.
    F16,
    /// Whole numbers of 8 bits, with a scale for every group of columns of one position and head:
    /// [`KEY_GROUP`] columns of a key, [`VALUE_GROUP`] of a value.
    ///
    /// A value reads as `code * scale`, which f32 holds exactly. `scale` is the smallest bf16 that is
    /// not below `max |x| / 127` over the group; `code` is `x * (1 / scale)`, computed in f32 and
    /// rounded to the nearest whole number, ties to even: -127 to 127. A group in which everything is
    /// smaller than 1e-35 counts as zeros. One that has an infinity or a NaN reads as NaNs.
    ///
    /// Of a key its difference from the block's base is stored so, computed in f32, and it reads as
    /// `fma(code, scale, base)`. The base is the key of the block's first position, rounded to the
    /// nearest bf16. In most models a few columns of keys are large and hardly change from one position
    /// to the next (KIVI, Liu et al., 2024); rounding what is left loses far less than rounding them.
    ///
    /// A key whose first columns are the value ([`crate::Values::OfKeys`]) is stored as a value is, all
    /// of it.
    Int8,
}

impl KvFormat {
    /// All of them.
    pub const ALL: [KvFormat; 3] = [KvFormat::Int16, KvFormat::F16, KvFormat::Int8];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            KvFormat::Int16 => "i16",
            KvFormat::F16 => "f16",
            KvFormat::Int8 => "q8",
        }
    }

    /// The one with a name.
    pub fn named(name: &str) -> Option<KvFormat> {
        KvFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Bytes of the base of a block and head of `cols` columns.
    pub const fn base_bytes(self, cols: usize) -> usize {
        match self {
            KvFormat::Int16 | KvFormat::F16 => 0,
            KvFormat::Int8 => 2 * cols,
        }
    }

    /// Bytes of the key of one position and head of `cols` columns.
    pub const fn key_bytes(self, cols: usize) -> usize {
        self.number_bytes(cols, KEY_GROUP)
    }

    /// Bytes of the value of one position and head of `cols` columns.
    pub const fn value_bytes(self, cols: usize) -> usize {
        self.number_bytes(cols, VALUE_GROUP)
    }

    const fn number_bytes(self, cols: usize, group: usize) -> usize {
        match self {
            KvFormat::Int16 => 2 * cols + 2,
            KvFormat::F16 => 2 * cols,
            KvFormat::Int8 => cols + 2 * cols.div_ceil(group),
        }
    }
}
