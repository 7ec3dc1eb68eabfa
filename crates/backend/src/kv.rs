//! How keys and values are stored, as plain data. How a device lays them out is its own business.

/// Neighbouring columns of a key that share a scale in [`KvFormat::Int8`]; the last ones of a head may
/// be fewer.
pub const KEY_GROUP: usize = 8;
/// Likewise of a value.
pub const VALUE_GROUP: usize = 32;

/// What becomes of a key or value when it is stored, and what attention therefore sees. That depends
/// on the key or value itself and, in 8 bits, on the key of the first position of its block, which is
/// stored before it and stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// Rounded to the nearest f16, ties to even.
    #[default]
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
    pub const ALL: [KvFormat; 2] = [KvFormat::F16, KvFormat::Int8];

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
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
            KvFormat::F16 => 0,
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
            KvFormat::F16 => 2 * cols,
            KvFormat::Int8 => cols + 2 * cols.div_ceil(group),
        }
    }
}
