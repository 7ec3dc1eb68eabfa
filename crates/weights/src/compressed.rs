//! Weights as the compressed-tensors library stores them: integers packed into words with scales and
//! zero points per group, signed bytes, four-bit floats.
//!
//! Which of them a module has shows in the types and shapes of its tensors, so the config's groups,
//! targets and exceptions need not be read. Elements stay where they are; scales that have no place
//! in our packings, and the minimums that follow from zero points, are made anew. Floats of eight bits
//! are not here: they are those of everybody else.

use bytes::Bytes;

use crate::{
    Checkpoint, Dtype, Error, F32Bits, Float, Matrix, Packing, Tensor,
    checkpoint::mismatch,
    modules::{Shape, plain_unchecked},
};

/// Columns of a group in a packing, the largest first.
const GROUPS: [usize; 3] = [128, 64, 32];

/// Scales of equal groups along the rows.
struct Scales<'a> {
    tensor: &'a Tensor,
    float: Float,
    /// One per group, rows one after the other.
    values: Vec<f32>,
    /// Groups of a row.
    per_row: usize,
    /// Columns that share a scale in the packing: a part of a group.
    group: usize,
    /// So many of them are a group.
    repeat: usize,
}

impl Checkpoint {
    /// The weight of `module`, whose elements are in the tensor called `packed`.
    pub(crate) fn compressed(
        &self,
        module: &str,
        packed: &str,
        shape: Shape,
    ) -> Result<Matrix, Error> {
        let weight = self.sound(packed)?;
        let scales = self.sound(&format!("{module}.weight_scale"))?;
        match (weight.dtype, scales.dtype) {
            (Dtype::I32, Dtype::Float(_)) => self.packed_integers(module, weight, shape),
            (Dtype::U8, Dtype::F8E4m3) => self.nvfp4(module, weight, (shape, scales)),
            (Dtype::U8, Dtype::U8 | Dtype::F8E8m0) => {
                let packing = Packing::Mxfp4;
                check_fp4(weight, packing, (shape, scales))?;
                Ok(Matrix {
                    packing,
                    scales: scales.data.clone(),
                    ..plain_unchecked(weight, shape)
                })
            }
            _ => Err(mismatch(
                weight,
                "I32 with float scales, or U8 with F8_E4M3 or U8 scales".into(),
                format!("{} with {}", weight.describe(), scales.describe()),
            )),
        }
    }

    fn nvfp4(
        &self,
        module: &str,
        weight: &Tensor,
        (shape, scales): (Shape, &Tensor),
    ) -> Result<Matrix, Error> {
        check_fp4(weight, Packing::Nvfp4, (shape, scales))?;
        let [by] = self.vector(&format!("{module}.weight_global_scale"), 1)?[..] else {
            unreachable!("one number was asked for");
        };
        if !(by.is_finite() && by > 0.0) {
            let global = self.sound(&format!("{module}.weight_global_scale"))?;
            return Err(mismatch(global, "a number above 0".into(), by.to_string()));
        }
        let packing = Packing::DividedNvfp4(F32Bits::new(by));
        Ok(Matrix { packing, scales: scales.data.clone(), ..plain_unchecked(weight, shape) })
    }

    /// A stream of integers, the first in the lowest bits: the words of affine groups,
    /// `w = scale * (q - zero)`.
    fn packed_integers(
        &self,
        module: &str,
        weight: &Tensor,
        shape: Shape,
    ) -> Result<Matrix, Error> {
        let words = weight.shape.last().copied().unwrap_or(0);
        let n_bits = words.checked_mul(32);
        let bits =
            [2, 3, 4, 5, 6, 8].into_iter().find(|bits| n_bits == shape.cols.checked_mul(*bits));
        let Some(bits) = bits.filter(|_| weight.shape == shape.with(shape.rows, words)) else {
            let expected = format!("{:?} of 2 to 8 bits", shape.with(shape.rows, shape.cols));
            return Err(mismatch(weight, expected, weight.describe()));
        };
        let scales = self.scales(module, shape)?;
        self.refuse_order(module, &scales)?;
        let zeros = self.zeros(module, bits, (shape, &scales))?;
        let mins: Vec<f32> = scales.values.iter().zip(zeros).map(|(s, zero)| -zero * s).collect();
        let is_exact = mins.iter().all(|min| scales.float.round(*min) == *min);
        let scale = if is_exact { scales.float } else { Float::F32 };
        Ok(Matrix {
            packing: Packing::Affine { bits: bits as u8, group: scales.group as u16, scale },
            scales: scales.bytes(&scales.values, scale),
            biases: scales.bytes(&mins, scale),
            ..plain_unchecked(weight, shape)
        })
    }

    /// Signed bytes with a scale for all, one per row, or one per group.
    pub(crate) fn int8(
        &self,
        module: &str,
        weight: &Tensor,
        shape: Shape,
    ) -> Result<Matrix, Error> {
        let expected = shape.with(shape.rows, shape.cols);
        if weight.shape != expected {
            return Err(mismatch(weight, format!("I8 {expected:?}"), weight.describe()));
        }
        if let Some(zeros) = self.tensor(&format!("{module}.weight_zero_point"))
            && zeros.data.iter().any(|zero| *zero != 0)
        {
            return Err(unsupported(zeros, "bytes with zero points"));
        }
        let scales = self.scales(module, shape)?;
        Ok(Matrix {
            packing: Packing::Int8 { group: scales.group as u16, scale: scales.float },
            scales: scales.bytes(&scales.values, scales.float),
            ..plain_unchecked(weight, shape)
        })
    }

    fn scales(&self, module: &str, shape: Shape) -> Result<Scales<'_>, Error> {
        let tensor = self.sound(&format!("{module}.weight_scale"))?;
        let Dtype::Float(float) = tensor.dtype else {
            return Err(mismatch(tensor, "float scales".into(), tensor.describe()));
        };
        let n: usize = tensor.shape.iter().product();
        let bad = || {
            let rows = shape.n_rows();
            let expected = format!("one scale, or as many for each of {rows} rows");
            mismatch(tensor, expected, tensor.describe())
        };
        let per_row = match n {
            1 => 1,
            n if n > 0 && n.is_multiple_of(shape.n_rows()) => n / shape.n_rows(),
            _ => return Err(bad()),
        };
        if !shape.cols.is_multiple_of(per_row) {
            return Err(bad());
        }
        let stored = shape.cols / per_row;
        let Some(group) = GROUPS.into_iter().find(|group| stored.is_multiple_of(*group)) else {
            return Err(unsupported(tensor, &format!("groups of {stored} columns")));
        };
        let mut values = vec![0.0; n];
        float.read(&tensor.data, &mut values);
        if n == 1 {
            values = vec![values[0]; shape.n_rows()];
        }
        Ok(Scales { tensor, float, values, per_row, group, repeat: stored / group })
    }

    /// The code that stands for zero, for each scale. They lie in words too, along the rows.
    fn zeros(
        &self,
        module: &str,
        bits: usize,
        (shape, scales): (Shape, &Scales<'_>),
    ) -> Result<Vec<f32>, Error> {
        let name = format!("{module}.weight_zero_point");
        let Some(tensor) = self.tensor(&name) else {
            return Ok(vec![(1 << (bits - 1)) as f32; scales.values.len()]);
        };
        let (tensor, per_row, per_word) = (self.sound(&tensor.name)?, scales.per_row, 32 / bits);
        let expected = [shape.rows.div_ceil(per_word), per_row];
        if !32usize.is_multiple_of(bits) {
            return Err(unsupported(tensor, "zero points of a width that does not divide a word"));
        }
        if shape.stack.is_some() || tensor.dtype != Dtype::I32 || tensor.shape != expected {
            return Err(mismatch(tensor, format!("I32 {expected:?}"), tensor.describe()));
        }
        let words = tensor.data.as_chunks::<4>().0;
        let zero = |i: usize| {
            let (row, group) = (i / per_row, i % per_row);
            let word = u32::from_le_bytes(words[row / per_word * per_row + group]);
            (word >> (row % per_word * bits) & ((1 << bits) - 1)) as f32
        };
        Ok((0..scales.values.len()).map(zero).collect())
    }

    /// Groups of columns that do not follow one another cannot be read in place.
    fn refuse_order(&self, module: &str, scales: &Scales<'_>) -> Result<(), Error> {
        let Some(order) = self.tensor(&format!("{module}.weight_g_idx")) else { return Ok(()) };
        let group = scales.group * scales.repeat;
        let indices = order.data.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        match indices.enumerate().all(|(col, index)| index as usize == col / group) {
            true => Ok(()),
            false => Err(unsupported(order, "a group order by activations")),
        }
    }
}

impl Scales<'_> {
    /// `values`, one for each scale, as the packing wants them: those of the file, if they are.
    fn bytes(&self, values: &[f32], float: Float) -> Bytes {
        let is_as_stored = values.as_ptr() == self.values.as_ptr()
            && float == self.float
            && self.repeat == 1
            && self.tensor.data.len() == values.len() * float.n_bytes();
        if is_as_stored {
            return self.tensor.data.clone();
        }
        let mut out = Vec::with_capacity(values.len() * self.repeat * float.n_bytes());
        for value in values {
            (0..self.repeat).for_each(|_| float.push(*value, &mut out));
        }
        out.into()
    }
}

/// Checks the sizes of four-bit floats, two in a byte, and of their scales.
fn check_fp4(
    weight: &Tensor,
    packing: Packing,
    (shape, scales): (Shape, &Tensor),
) -> Result<(), Error> {
    let granule = packing.granule();
    if !shape.cols.is_multiple_of(granule) {
        return Err(unsupported(scales, &format!("groups of {granule} in {} columns", shape.cols)));
    }
    for (tensor, cols) in [(weight, shape.cols / 2), (scales, shape.cols / granule)] {
        let expected = shape.with(shape.rows, cols);
        if tensor.shape != expected {
            return Err(mismatch(tensor, format!("{expected:?}"), tensor.describe()));
        }
    }
    Ok(())
}

fn unsupported(tensor: &Tensor, what: &str) -> Error {
    Error::Unsupported {
        file: tensor.file.to_path_buf(),
        what: format!("{what} ({})", tensor.name),
        advice: "use an MLX, GGUF, FP8 or unquantized version of the model".into(),
    }
}
