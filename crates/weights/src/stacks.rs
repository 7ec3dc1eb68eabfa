//! Stacks of experts as gpt-oss has them in Hugging Face's files: MXFP4 as blocks of bytes, or floats
//! with inputs and outputs the other way round. What other models do is in [`crate::modules`].

use crate::{Checkpoint, Dtype, Error, Matrix, Packing, Tensor, checkpoint::mismatch};

/// Numbers that share a scale in MXFP4, and bytes they take.
const BLOCK: (usize, usize) = (32, 16);

impl Checkpoint {
    /// Whether the weight of this module is a parameter of its own in Hugging Face's manner, called as
    /// the module.
    pub fn is_parameter(&self, module: &str) -> bool {
        let weight = self.tensor(&format!("{module}.weight"));
        weight.is_some_and(|tensor| !tensor.name.ends_with(".weight"))
    }

    /// The blocks of a module that is stored as such.
    pub(crate) fn blocks(&self, module: &str) -> Option<&Tensor> {
        self.tensor(&format!("{module}_blocks"))
    }

    /// `[n, rows, cols / 32, 16]` bytes and as many scales as blocks, as one matrix of `n * rows` rows.
    pub(crate) fn experts_of_blocks(
        &self,
        module: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, Error> {
        let blocks = self.sound(&format!("{module}_blocks"))?;
        let scales = self.sound(&format!("{module}_scales"))?;
        if !cols.is_multiple_of(BLOCK.0) {
            let expected = format!("blocks of {} that divide {cols} columns", BLOCK.0);
            return Err(mismatch(blocks, expected, blocks.describe()));
        }
        let groups = [n, rows, cols / BLOCK.0];
        let stored = [&groups[..], &[BLOCK.1]].concat();
        for (tensor, shape) in [(blocks, &stored[..]), (scales, &groups[..])] {
            if tensor.dtype != Dtype::U8 || tensor.shape != shape {
                return Err(mismatch(tensor, format!("U8 {shape:?}"), tensor.describe()));
            }
        }
        Ok(Matrix {
            name: blocks.name.clone(),
            rows: n * rows,
            cols,
            packing: Packing::Mxfp4,
            data: blocks.data.clone(),
            scales: scales.data.clone(),
            biases: Default::default(),
        })
    }

    /// `n` stacked experts that are stored as `[n, cols, rows]` floats, as one matrix of `n * rows`
    /// rows. The numbers are copied.
    pub fn experts_transposed(
        &self,
        module: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, Error> {
        let stored = self.sound(&format!("{module}.weight"))?;
        let Dtype::Float(float) = stored.dtype else {
            return Err(mismatch(stored, "F32, F16 or BF16".into(), stored.describe()));
        };
        if stored.shape != [n, cols, rows] {
            let expected = format!("{:?}", [n, cols, rows]);
            return Err(mismatch(stored, expected, stored.describe()));
        }
        let size = float.n_bytes();
        let mut data = vec![0; stored.data.len()];
        let line = (cols * size).max(1);
        for (i, row) in data.chunks_exact_mut(line).enumerate() {
            let expert = &stored.data[i / rows * rows * cols * size..];
            for (col, out) in row.chunks_exact_mut(size).enumerate() {
                out.copy_from_slice(&expert[(col * rows + i % rows) * size..][..size]);
            }
        }
        Ok(Matrix {
            name: stored.name.clone(),
            rows: n * rows,
            cols,
            packing: Packing::Plain(float),
            data: data.into(),
            scales: Default::default(),
            biases: Default::default(),
        })
    }
}
