//! How the numbers of a matrix are packed into bytes. Data only: no unpacking happens here.

/// A floating-point element or scale type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
}

/// The packing of one [`crate::Matrix`].
///
/// Rows are always packed one after the other and never share a byte, so any range of rows is a
/// matrix of the same packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// One float per element.
    Plain(Float),
    /// MLX affine groups: `w = scale * q + bias`, `q` unsigned, a little-endian bit stream per row.
    /// `scales` and `biases` hold one `scale` float per group of `group` elements.
    Affine {
        /// 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// 32, 64 or 128 elements.
        group: u16,
        /// Type of the scales and biases.
        scale: Float,
    },
    /// E2M1 elements, low nibble first; one E8M0 scale byte per 32 elements.
    Mxfp4,
    /// E4M3 elements; one E8M0 scale byte per 32 elements.
    Mxfp8,
    /// E2M1 elements, low nibble first; one E4M3 scale byte per 16 elements.
    Nvfp4,
    /// As [`Packing::Nvfp4`], but every scale byte is first divided by this number.
    DividedNvfp4(F32Bits),
    /// Signed bytes, `w = scale * q`. `scales` holds one `scale` float per group of `group` elements.
    Int8 {
        /// 32, 64 or 128 elements.
        group: u16,
        /// Type of the scales.
        scale: Float,
    },
    /// E4M3 elements; one f32 multiplier per block of `rows` x `cols` elements, the blocks row
    /// major in `scales`, the blocks at the right and lower edge cut short.
    Fp8Blocks {
        /// Rows of one block.
        rows: u32,
        /// Columns of one block.
        cols: u32,
    },
    /// A llama.cpp block format: scales lie inside `data`, in every block.
    Gguf(GgufType),
}

/// An f32 by its bits, so that two of them are equal or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct F32Bits(u32);

impl F32Bits {
    /// The bits of `value`.
    pub fn new(value: f32) -> F32Bits {
        F32Bits(value.to_bits())
    }

    /// The number.
    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

/// The quantised tensor types of GGUF that this program reads.
#[allow(missing_docs, reason = "the names are llama.cpp's own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GgufType {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Mxfp4,
}

impl Float {
    /// Bytes of one element.
    pub const fn n_bytes(self) -> usize {
        match self {
            Float::F32 => 4,
            Float::F16 | Float::Bf16 => 2,
        }
    }
}

impl GgufType {
    /// Elements per block and bytes per block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            GgufType::Q4_0 | GgufType::Iq4Nl => (32, 18),
            GgufType::Q4_1 => (32, 20),
            GgufType::Q5_0 => (32, 22),
            GgufType::Q5_1 => (32, 24),
            GgufType::Q8_0 => (32, 34),
            GgufType::Mxfp4 => (32, 17),
            GgufType::Q2K => (256, 84),
            GgufType::Q3K => (256, 110),
            GgufType::Q4K => (256, 144),
            GgufType::Q5K => (256, 176),
            GgufType::Q6K => (256, 210),
        }
    }
}

impl Packing {
    /// A row's length must be a multiple of this many elements.
    pub const fn granule(self) -> usize {
        match self {
            Packing::Plain(_) | Packing::Fp8Blocks { .. } => 1,
            Packing::Affine { group, .. } | Packing::Int8 { group, .. } => group as usize,
            Packing::Mxfp4 | Packing::Mxfp8 => 32,
            Packing::Nvfp4 | Packing::DividedNvfp4(_) => 16,
            Packing::Gguf(ty) => ty.block().0,
        }
    }

    /// Bytes of one row of `cols` elements in `data`.
    pub const fn row_bytes(self, cols: usize) -> usize {
        match self {
            Packing::Plain(float) => cols * float.n_bytes(),
            Packing::Affine { bits, .. } => cols * bits as usize / 8,
            Packing::Mxfp4 | Packing::Nvfp4 | Packing::DividedNvfp4(_) => cols / 2,
            Packing::Mxfp8 | Packing::Int8 { .. } | Packing::Fp8Blocks { .. } => cols,
            Packing::Gguf(ty) => cols / ty.block().0 * ty.block().1,
        }
    }

    /// Bytes of one row of `cols` elements in `scales` (and in `biases`, for affine packings). Zero
    /// where the scales are not per row.
    pub const fn row_scale_bytes(self, cols: usize) -> usize {
        match self {
            Packing::Affine { group, scale, .. } | Packing::Int8 { group, scale } => {
                cols / group as usize * scale.n_bytes()
            }
            Packing::Mxfp4 | Packing::Mxfp8 => cols / 32,
            Packing::Nvfp4 | Packing::DividedNvfp4(_) => cols / 16,
            Packing::Plain(_) | Packing::Fp8Blocks { .. } | Packing::Gguf(_) => 0,
        }
    }
}
