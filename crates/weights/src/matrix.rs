//! A named matrix: bytes that stay where they are (usually in a mapped file) and how to read them.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Error, Float, Packing,
    float::{E2M1, e4m3, e8m0},
    gguf,
};

/// `rows x cols` numbers, row major, `rows` being the output features of a linear layer.
///
/// Cloning is cheap: the bytes are shared and usually belong to a mapped file.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Where it comes from, for messages.
    pub name: String,
    /// Output features. Stacked experts are stacked along this axis.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// How `data`, `scales` and `biases` are to be read.
    pub packing: Packing,
    /// The packed elements, `rows * packing.row_bytes(cols)` bytes.
    pub data: Bytes,
    /// Scales that lie apart from the elements; empty where the packing has none.
    pub scales: Bytes,
    /// Affine biases; empty for every other packing.
    pub biases: Bytes,
}

impl Matrix {
    /// Bytes of the elements with their scales and biases.
    pub fn n_bytes(&self) -> usize {
        self.data.len() + self.scales.len() + self.biases.len()
    }

    /// The matrix of these rows alone. Shares the bytes (only the scales of FP8 blocks that the
    /// range cuts are copied).
    pub fn rows_range(&self, range: Range<usize>) -> Matrix {
        let Range { start, end } = range;
        assert!(start <= end && end <= self.rows, "rows {start}..{end} of {}", self.rows);
        let slice = |bytes: &Bytes, row: usize| bytes.slice(start * row..end * row);
        let row_scales = self.packing.row_scale_bytes(self.cols);
        let (packing, scales) = match self.packing {
            Packing::Fp8Blocks { rows, cols } => self.fp8_rows(start..end, rows, cols),
            packing => (packing, slice(&self.scales, row_scales)),
        };
        let biases = match self.packing {
            Packing::Affine { .. } => slice(&self.biases, row_scales),
            _ => Bytes::new(),
        };
        let data = slice(&self.data, self.packing.row_bytes(self.cols));
        Matrix {
            name: self.name.clone(),
            rows: end - start,
            cols: self.cols,
            packing,
            data,
            scales,
            biases,
        }
    }

    /// Columns that are packed together, from the first on.
    fn together(&self) -> usize {
        match self.packing {
            Packing::Fp8Blocks { cols, .. } => cols as usize,
            packing => packing.granule(),
        }
    }

    /// Whether [`Matrix::cols_range`] can take these columns.
    ///
    /// # Errors
    /// The range cuts through columns that are packed together.
    pub fn check_cols(&self, range: &Range<usize>) -> Result<(), Error> {
        let Range { start, end } = *range;
        assert!(start <= end && end <= self.cols, "columns {start}..{end} of {}", self.cols);
        let together = self.together();
        let is_between = |col: usize| col.is_multiple_of(together) || col == self.cols;
        if is_between(start) && is_between(end) {
            return Ok(());
        }
        Err(Error::Unsupported {
            file: self.name.clone().into(),
            what: format!(
                "a cut at columns {start} and {end} through groups of {together} columns"
            ),
            advice: "split the model by layers, or over another number of machines".into(),
        })
    }

    /// The matrix of these columns alone, in memory of its own.
    ///
    /// # Errors
    /// As [`Matrix::check_cols`].
    pub fn cols_range(&self, range: Range<usize>) -> Result<Matrix, Error> {
        self.cols_of(&[range])
    }

    /// The matrix of the columns of these ranges alone, which are in ascending order. In memory of its
    /// own.
    ///
    /// # Errors
    /// As [`Matrix::check_cols`].
    pub fn cols_of(&self, ranges: &[Range<usize>]) -> Result<Matrix, Error> {
        ranges.iter().try_for_each(|range| self.check_cols(range))?;
        let together = self.together();
        // Some bytes of every line.
        let cut = |bytes: &Bytes, line: usize, at: &dyn Fn(usize) -> usize| -> Bytes {
            if line == 0 {
                return Bytes::new();
            }
            let mut some = Vec::new();
            for line in bytes.chunks_exact(line) {
                ranges.iter().for_each(|cols| {
                    some.extend_from_slice(&line[at(cols.start)..at(cols.end)]);
                });
            }
            some.into()
        };
        let of_scales = |bytes: &Bytes| {
            let at = |col| self.packing.row_scale_bytes(col);
            cut(bytes, at(self.cols), &at)
        };
        let scales = match self.packing {
            Packing::Fp8Blocks { .. } => {
                let at = |col: usize| col.div_ceil(together) * Float::F32.n_bytes();
                cut(&self.scales, at(self.cols), &at)
            }
            _ => of_scales(&self.scales),
        };
        let biases = match self.packing {
            Packing::Affine { .. } => of_scales(&self.biases),
            _ => Bytes::new(),
        };
        let at = |col| self.packing.row_bytes(col);
        let data = cut(&self.data, at(self.cols), &at);
        let cols = ranges.iter().map(Range::len).sum();
        Ok(Matrix { cols, data, scales, biases, ..self.clone() })
    }

    /// Packing and scales of some rows in blocks of `rows x cols`. A range that starts inside a
    /// block gets blocks of one row.
    fn fp8_rows(&self, range: Range<usize>, rows: u32, cols: u32) -> (Packing, Bytes) {
        let block_rows = rows as usize;
        let line = self.cols.div_ceil(cols as usize) * Float::F32.n_bytes();
        if range.start.is_multiple_of(block_rows) {
            let blocks = range.start / block_rows..range.end.div_ceil(block_rows);
            let scales = self.scales.slice(blocks.start * line..blocks.end * line);
            return (Packing::Fp8Blocks { rows, cols }, scales);
        }
        let scales: Vec<u8> = range
            .flat_map(|row| &self.scales[row / block_rows * line..][..line])
            .copied()
            .collect();
        (Packing::Fp8Blocks { rows: 1, cols }, scales.into())
    }

    /// Rows and columns exchanged, in memory of its own.
    ///
    /// # Errors
    /// A packing that has several numbers of a row together.
    pub fn transposed(&self) -> Result<Matrix, Error> {
        let Packing::Plain(float) = self.packing else {
            return Err(Error::Unsupported {
                file: self.name.clone().into(),
                what: "a packed matrix with a row for each input".into(),
                advice: "use an unquantized version of the model, or one that MLX has converted"
                    .into(),
            });
        };
        let (rows, cols, len) = (self.rows, self.cols, float.n_bytes());
        let mut data = vec![0; self.data.len()];
        for (row, numbers) in self.data.chunks_exact((cols * len).max(1)).enumerate() {
            for (col, number) in numbers.chunks_exact(len).enumerate() {
                data[(col * rows + row) * len..][..len].copy_from_slice(number);
            }
        }
        Ok(Matrix { rows: cols, cols: rows, data: data.into(), ..self.clone() })
    }

    /// One row as f32: the definition of every packing. Products and sums are rounded to f32 one by
    /// one, whatever the type of the scales; rounded to that type, the results are those of MLX.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.cols, "columns");
        let line = |bytes: &'_ Bytes, len: usize| bytes.slice(row * len..(row + 1) * len);
        let data = line(&self.data, self.packing.row_bytes(self.cols));
        let row_scales = self.packing.row_scale_bytes(self.cols);
        match self.packing {
            Packing::Plain(float) => float.read(&data, out),
            Packing::Affine { bits, group, scale } => {
                let (scales, biases) =
                    (line(&self.scales, row_scales), line(&self.biases, row_scales));
                let bits = bits as usize;
                for (g, out) in out.chunks_exact_mut(group as usize).enumerate() {
                    let (s, b) = (scale.get(&scales, g), scale.get(&biases, g));
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = s * unsigned(&data, (g * group as usize + i) * bits, bits) + b;
                    }
                }
            }
            Packing::Mxfp4 => {
                fp4(&data, out);
                scale_groups(out, &line(&self.scales, row_scales), e8m0);
            }
            Packing::Nvfp4 => {
                fp4(&data, out);
                scale_groups(out, &line(&self.scales, row_scales), e4m3);
            }
            Packing::DividedNvfp4(by) => {
                fp4(&data, out);
                scale_groups(out, &line(&self.scales, row_scales), |byte| e4m3(byte) / by.get());
            }
            Packing::Int8 { group, scale } => {
                let scales = line(&self.scales, row_scales);
                let groups = out.chunks_exact_mut(group as usize).zip(data.chunks(group as usize));
                for (g, (out, data)) in groups.enumerate() {
                    let s = scale.get(&scales, g);
                    out.iter_mut().zip(data).for_each(|(out, q)| *out = s * f32::from(*q as i8));
                }
            }
            Packing::Mxfp8 => {
                fp8(&data, out);
                scale_groups(out, &line(&self.scales, row_scales), e8m0);
            }
            Packing::Fp8Blocks { rows, cols } => {
                let per_line = self.cols.div_ceil(cols as usize);
                fp8(&data, out);
                for (i, out) in out.chunks_mut(cols as usize).enumerate() {
                    let s = Float::F32.get(&self.scales, row / rows as usize * per_line + i);
                    out.iter_mut().for_each(|out| *out *= s);
                }
            }
            Packing::Gguf(ty) => gguf::blocks::dequantize(ty, &data, out),
        }
    }
}

/// The `bits` bits at bit `at` of a little-endian stream, as a number.
fn unsigned(stream: &[u8], at: usize, bits: usize) -> f32 {
    let low = u32::from(stream[at / 8]);
    let high = stream.get(at / 8 + 1).map_or(0, |&byte| u32::from(byte));
    ((low | high << 8) >> (at % 8) & ((1 << bits) - 1)) as f32
}

fn fp4(data: &[u8], out: &mut [f32]) {
    for (out, &byte) in out.chunks_exact_mut(2).zip(data) {
        out[0] = E2M1[(byte & 15) as usize];
        out[1] = E2M1[(byte >> 4) as usize];
    }
}

fn fp8(data: &[u8], out: &mut [f32]) {
    for (out, &byte) in out.iter_mut().zip(data) {
        *out = e4m3(byte);
    }
}

/// Multiplies equal groups of `out`, one per scale byte.
fn scale_groups(out: &mut [f32], scales: &[u8], value: impl Fn(u8) -> f32) {
    if scales.is_empty() {
        return;
    }
    for (out, &scale) in out.chunks_exact_mut(out.len() / scales.len()).zip(scales) {
        out.iter_mut().for_each(|out| *out *= value(scale));
    }
}
