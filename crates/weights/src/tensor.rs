//! One named array of a model file, as stored. It knows its bytes and their type, not what the
//! model uses it for: that is [`crate::Matrix`].

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use crate::{Float, GgufType};

/// A stored array. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name, in Hugging Face terms.
    pub name: String,
    /// Sizes, slowest axis first. Packed words count as stored (`cols * bits / 32` for MLX); for
    /// GGUF blocks the sizes count numbers.
    pub shape: Vec<usize>,
    /// How the bytes are to be read.
    pub dtype: Dtype,
    /// The elements, row major, little endian, with no alignment promised.
    pub data: Bytes,
    /// The file it comes from, for messages.
    pub file: Arc<Path>,
}

/// The element type of a stored array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// A float type that can be computed with.
    Float(Float),
    /// FP8 with four exponent bits, no infinities.
    F8E4m3,
    /// A power of two as its biased exponent.
    F8E8m0,
    /// Bytes: scales of the small float packings.
    U8,
    /// Signed bytes.
    I8,
    /// Words that hold packed elements.
    U32,
    /// Signed words, which hold packed elements too.
    I32,
    /// Long integers: sizes.
    I64,
    /// llama.cpp blocks.
    Gguf(GgufType),
    /// A type nothing here computes with; it may lie in a file unused.
    Other {
        /// Bits of one element.
        bits: u8,
    },
}

impl Dtype {
    /// Bytes of an array of this type and shape. `None` where the product overflows, the elements do
    /// not fill whole bytes, or the rows do not fill whole blocks.
    pub fn n_bytes(self, shape: &[usize]) -> Option<usize> {
        let n = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size))?;
        match self {
            Dtype::Float(float) => n.checked_mul(float.n_bytes()),
            Dtype::F8E4m3 | Dtype::F8E8m0 | Dtype::U8 | Dtype::I8 => Some(n),
            Dtype::U32 | Dtype::I32 => n.checked_mul(4),
            Dtype::I64 => n.checked_mul(8),
            Dtype::Gguf(ty) => {
                let (len, bytes) = ty.block();
                let cols = shape.last().copied().unwrap_or(1);
                if cols % len != 0 {
                    return None;
                }
                (n / len).checked_mul(bytes)
            }
            Dtype::Other { bits } => {
                let bits = n.checked_mul(bits as usize)?;
                (bits % 8 == 0).then_some(bits / 8)
            }
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dtype::Float(Float::F32) => f.write_str("F32"),
            Dtype::Float(Float::F16) => f.write_str("F16"),
            Dtype::Float(Float::Bf16) => f.write_str("BF16"),
            Dtype::F8E4m3 => f.write_str("F8_E4M3"),
            Dtype::F8E8m0 => f.write_str("F8_E8M0"),
            Dtype::U8 => f.write_str("U8"),
            Dtype::I8 => f.write_str("I8"),
            Dtype::I32 => f.write_str("I32"),
            Dtype::I64 => f.write_str("I64"),
            Dtype::U32 => f.write_str("U32"),
            Dtype::Gguf(ty) => write!(f, "{ty:?}"),
            Dtype::Other { bits } => write!(f, "a {bits}-bit type"),
        }
    }
}

impl Tensor {
    /// An array that lies in no file.
    pub fn new(
        name: impl Into<String>,
        shape: &[usize],
        dtype: Dtype,
        data: impl Into<Bytes>,
    ) -> Tensor {
        let (name, data) = (name.into(), data.into());
        Tensor { name, shape: shape.to_vec(), dtype, data, file: Path::new("memory").into() }
    }

    /// An array of f32 that lies in no file.
    pub fn from_f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(name, shape, Dtype::Float(Float::F32), bytes)
    }

    /// Type and shape as messages show them.
    pub fn describe(&self) -> String {
        format!("{} {:?}", self.dtype, self.shape)
    }
}
