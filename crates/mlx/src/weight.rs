//! Weights as MLX likes them: packed in groups where MLX has the packing, plain numbers where not.
//!
//! Elements that MLX reads as a file has them stay in the file's mapped memory where a GPU can read it
//! there (`ffi/lent.rs`), unless neighbours become one matrix.
//!
//! What a file's packing becomes is decided here; how the bits of GGUF blocks get in order is in
//! `repack.rs`.

use std::ffi::CStr;

use weights::{Float, Matrix, Packing};

use crate::ffi::{Array, Constant, Dtype, Fault, Packed, Unit, about, concatenate, lend};
use crate::repack::{Groups, groups_of};
use crate::{Mlx, bytes_of};

/// Rows of one or more matrices, one after the other.
#[derive(Debug)]
pub struct Weight {
    /// Neighbours differ in their packing.
    parts: Vec<Part>,
    pub(crate) portion: Portion,
}

/// What of a matrix is here; peers have the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    Whole,
    /// Some columns: what comes of them is a part of a sum.
    Columns,
    /// Some rows: what comes of them lies beside what comes of the others.
    Rows,
}

#[derive(Debug)]
struct Part {
    rows: usize,
    numbers: Numbers,
}

/// `[rows, ...]` each.
#[derive(Debug)]
enum Numbers {
    Plain(Constant),
    Packed { form: Form, data: Constant, scales: Constant, biases: Option<Constant> },
}

/// A packing of MLX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) group: usize,
    pub(crate) bits: usize,
    pub(crate) mode: &'static CStr,
}

/// What a matrix becomes, before it is computed.
enum Planned {
    Plain(Array),
    Packed { form: Form, data: Array, scales: Array, biases: Option<Array> },
}

/// A stack of equally many rows each, as matrices.
pub(crate) enum Stack {
    /// `[n, rows, cols]`.
    Plain(Array),
    Packed {
        form: Form,
        data: Array,
        scales: Array,
        biases: Option<Array>,
    },
}

impl Mlx {
    /// A weight. It has no rows where MLX has no memory for it.
    pub(crate) fn take_over(&self, parts: &[Matrix], portion: Portion) -> Weight {
        let make = || -> Result<Weight, Fault> {
            let mut merged: Vec<Part> = Vec::new();
            let planned = parts.iter().map(|matrix| planned(matrix, self.dtype));
            let planned = planned.collect::<Result<Vec<_>, Fault>>()?;
            for run in planned.chunk_by(Planned::is_like) {
                merged.push(Part::of(run)?);
            }
            Ok(Weight { parts: merged, portion })
        };
        let bytes = parts.iter().map(Matrix::n_bytes).sum();
        self.roomy(make(), ("a weight", bytes)).unwrap_or(Weight { parts: Vec::new(), portion })
    }
}

fn planned(matrix: &Matrix, dtype: Dtype) -> Result<Planned, Fault> {
    let (rows, cols) = (matrix.rows, matrix.cols);
    let float = |float: Float| match float {
        Float::F32 => Dtype::F32,
        Float::F16 => Dtype::F16,
        Float::Bf16 => Dtype::Bf16,
    };
    let packed = |group: usize, bits: usize, mode, scales: Dtype| -> Result<Planned, Fault> {
        let data = lend(matrix.data.clone(), &[rows, cols * bits / 32], Dtype::U32)?;
        let shape = [rows, cols / group];
        let numbers = |bytes: &[u8]| Array::new(bytes, &shape, scales);
        let biases = if matrix.biases.is_empty() { None } else { Some(numbers(&matrix.biases)?) };
        let form = Form { group, bits, mode };
        Ok(Planned::Packed { form, data, scales: numbers(&matrix.scales)?, biases })
    };
    match matrix.packing {
        Packing::Plain(of) => {
            let plain = lend(matrix.data.clone(), &[rows, cols], float(of))?;
            Ok(Planned::Plain(plain.astype(dtype)?))
        }
        Packing::Affine { bits, group, scale } => {
            // Scales in the activations' type, or every product would be cast.
            let plan = packed(group as usize, bits as usize, c"affine", float(scale))?;
            plan.with_scales(dtype)
        }
        Packing::Mxfp4 => packed(32, 4, c"mxfp4", Dtype::U8),
        Packing::Mxfp8 => packed(32, 8, c"mxfp8", Dtype::U8),
        Packing::Nvfp4 => packed(16, 4, c"nvfp4", Dtype::U8),
        Packing::Gguf(_) | Packing::Int8 { .. } => match groups_of(matrix) {
            Some(groups) => affine(groups, rows, dtype),
            None => unpacked(matrix, dtype),
        },
        Packing::DividedNvfp4(_) | Packing::Fp8Blocks { .. } => unpacked(matrix, dtype),
    }
}

fn affine(groups: Groups, rows: usize, dtype: Dtype) -> Result<Planned, Fault> {
    let Groups { group, bits, codes, scales, biases } = groups;
    let numbers = |x: &[f32]| {
        let bytes = bytes_of(x, f32::to_le_bytes);
        Array::new(&bytes, &[rows, x.len() / rows], Dtype::F32)
    };
    let data = Array::new(&codes, &[rows, codes.len() / 4 / rows], Dtype::U32)?;
    let form = Form { group, bits, mode: c"affine" };
    let (scales, biases) = (numbers(&scales)?, Some(numbers(&biases)?));
    Planned::Packed { form, data, scales, biases }.with_scales(dtype)
}

/// As plain numbers, for what MLX has no packing for.
fn unpacked(matrix: &Matrix, dtype: Dtype) -> Result<Planned, Fault> {
    let mut rows = vec![0.0; matrix.rows * matrix.cols];
    for (row, out) in rows.chunks_exact_mut(matrix.cols.max(1)).enumerate() {
        matrix.dequantize_row(row, out);
    }
    let plain = crate::floats(&rows, &[matrix.rows, matrix.cols])?;
    Ok(Planned::Plain(plain.astype(dtype)?))
}

impl Planned {
    fn with_scales(self, dtype: Dtype) -> Result<Planned, Fault> {
        match self {
            Planned::Packed { form, data, scales, biases } => {
                let biases = biases.map(|biases| biases.astype(dtype)).transpose()?;
                Ok(Planned::Packed { form, data, scales: scales.astype(dtype)?, biases })
            }
            plain => Ok(plain),
        }
    }

    /// Whether both can be one matrix.
    fn is_like(&self, other: &Planned) -> bool {
        match (self, other) {
            (Planned::Plain(_), Planned::Plain(_)) => true,
            (Planned::Packed { form, .. }, Planned::Packed { form: other, .. }) => form == other,
            _ => false,
        }
    }

    /// What is read for every element, then its scales and biases.
    fn arrays(&self) -> [Option<&Array>; 3] {
        match self {
            Planned::Plain(plain) => [Some(plain), None, None],
            Planned::Packed { data, scales, biases, .. } => {
                [Some(data), Some(scales), biases.as_ref()]
            }
        }
    }
}

impl Part {
    /// One of some that are alike.
    fn of(run: &[Planned]) -> Result<Part, Fault> {
        let joined = |which: usize| -> Result<Option<Constant>, Fault> {
            let arrays: Vec<&Array> = run.iter().filter_map(|plan| plan.arrays()[which]).collect();
            match arrays[..] {
                [] => Ok(None),
                // As it came, or as it was made.
                [array] => Ok(Some(array.clone().row_major()?)),
                _ => Ok(Some(concatenate(&arrays, 0)?.constant()?)),
            }
        };
        let nothing = || Fault("a weight without numbers".to_owned());
        let data = joined(0)?.ok_or_else(nothing)?;
        let rows = data.dim(0);
        let numbers = match &run[0] {
            Planned::Plain(_) => Numbers::Plain(data),
            Planned::Packed { form, .. } => {
                let (scales, biases) = (joined(1)?.ok_or_else(nothing)?, joined(2)?);
                Numbers::Packed { form: *form, data, scales, biases }
            }
        };
        Ok(Part { rows, numbers })
    }

    /// `x . part^T`.
    fn multiply(&self, x: &Array) -> Result<Array, Fault> {
        match &self.numbers {
            Numbers::Plain(plain) => x.matmul(&plain.transpose(&[1, 0])?),
            Numbers::Packed { form, data, scales, biases } => {
                x.packed_matmul(&form.packed(data, scales, biases.as_deref()), true)
            }
        }
    }

    /// The rows that `places` names, or all of them.
    fn rows_of(&self, places: Option<&Array>, dtype: Dtype) -> Result<Array, Fault> {
        let taken = |array: &Array| match places {
            Some(places) => array.take(places, 0),
            None => Ok(array.clone()),
        };
        match &self.numbers {
            Numbers::Plain(plain) => taken(plain),
            Numbers::Packed { form, data, scales, biases } => {
                let (data, scales) = (taken(data)?, taken(scales)?);
                let biases = biases.as_deref().map(taken).transpose()?;
                form.packed(&data, &scales, biases.as_ref()).unpacked(dtype)
            }
        }
    }
}

impl Form {
    fn packed<'a>(
        self,
        data: &'a Array,
        scales: &'a Array,
        biases: Option<&'a Array>,
    ) -> Packed<'a> {
        let Form { group, bits, mode } = self;
        Packed { data, scales, biases, group, bits, mode }
    }
}

impl Weight {
    pub(crate) fn n_rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// `x . w^T`, `[rows, w's rows]`.
    pub(crate) fn multiply(&self, x: &Array) -> Result<Array, Fault> {
        if x.dim(0) == 0 {
            return Array::zeros(&[0, self.n_rows()], x.dtype());
        }
        let products = self.parts.iter().map(|part| part.multiply(x));
        let products = products.collect::<Result<Vec<_>, Fault>>()?;
        concatenate(&products.iter().collect::<Vec<_>>(), 1)
    }

    /// Rows as numbers.
    pub(crate) fn rows_of(&self, places: &Array, dtype: Dtype) -> Result<Array, Fault> {
        match &self.parts[..] {
            [part] => part.rows_of(Some(places), dtype),
            _ => self.all(dtype)?.take(places, 0),
        }
    }

    /// All rows as numbers.
    fn all(&self, dtype: Dtype) -> Result<Array, Fault> {
        let rows = self.parts.iter().map(|part| part.rows_of(None, dtype));
        let rows = rows.collect::<Result<Vec<_>, Fault>>()?;
        concatenate(&rows.iter().collect::<Vec<_>>(), 0)
    }

    /// As `n` matrices of equally many rows.
    pub(crate) fn stack(&self, n: usize, dtype: Dtype) -> Result<Stack, Fault> {
        let cut = |array: &Array| {
            let (rows, cols) = (array.dim(0), array.dim(1));
            array.reshape(&[n, rows / n, cols])
        };
        match &self.parts[..] {
            [Part { numbers: Numbers::Packed { form, data, scales, biases }, .. }] => {
                let biases = biases.as_deref().map(cut).transpose()?;
                Ok(Stack::Packed { form: *form, data: cut(data)?, scales: cut(scales)?, biases })
            }
            _ => Ok(Stack::Plain(cut(&self.all(dtype)?)?)),
        }
    }
}

impl Stack {
    /// `x` is `[n, rows, cols]`: matrix by matrix, times its transpose.
    pub(crate) fn multiply(&self, x: &Array) -> Result<Array, Fault> {
        match self {
            Stack::Plain(plain) => x.matmul(&plain.transpose(&[0, 2, 1])?),
            Stack::Packed { form, data, scales, biases } => {
                x.packed_matmul(&form.packed(data, scales, biases.as_ref()), true)
            }
        }
    }

    /// As [`Stack::multiply`], not transposed.
    pub(crate) fn multiply_plain(&self, x: &Array) -> Result<Array, Fault> {
        match self {
            Stack::Plain(plain) => x.matmul(plain),
            Stack::Packed { form, data, scales, biases } => {
                x.packed_matmul(&form.packed(data, scales, biases.as_ref()), false)
            }
        }
    }

    /// `x` is `[rows, 1 or k, 1, cols]`, `which` `[rows, k]`: each with the transposes of its own
    /// matrices, `[rows, k, 1, ...]`.
    pub(crate) fn gather(&self, x: &Array, which: &Array) -> Result<Array, Fault> {
        match self {
            // MLX has such products on a processor in f32 alone.
            Stack::Plain(plain) if about().2 == Unit::Cpu && x.dtype() != Dtype::F32 => {
                let exact = plain.astype(Dtype::F32)?.transpose(&[0, 2, 1])?;
                x.astype(Dtype::F32)?.gather_matmul(&exact, which)?.astype(x.dtype())
            }
            Stack::Plain(plain) => x.gather_matmul(&plain.transpose(&[0, 2, 1])?, which),
            Stack::Packed { form, data, scales, biases } => {
                x.gather_packed(&form.packed(data, scales, biases.as_ref()), which)
            }
        }
    }
}
