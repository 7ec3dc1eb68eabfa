//! Packed weights as the kernels want them: a [`CodePanel`] of small unsigned integers with a scale
//! and at most one minimum per group, or a [`FloatPanel`] of f32.
//!
//! The bytes of a model stay as they lie in its file. A panel is [`LANES`] rows of a weight by some
//! columns, unpacked into the L1 cache just before it is multiplied with every row of activations
//! there is. **A format is one function** that unpacks some blocks of one row (in the files of this
//! module) plus its line in [`Coding::of`] and in [`unpack_row`]; the multiplying knows none of them.
//!
//! Not the definition of any format: that is [`Matrix::dequantize_row`], and the tests compare.

mod affine;
mod bytes;
mod fp4;
mod k;
mod legacy;
mod widen;

use std::ops::Range;

use weights::{GgufType, Matrix, Packing};

use crate::{Weight, simd};

pub(crate) use widen::widen_row;

/// Rows of a panel: one lane of the kernels each.
pub(crate) const LANES: usize = 16;
/// Most columns of a [`CodePanel`]: codes, scales and minimums together leave half of a 32 KiB cache
/// to the activations.
pub(crate) const CODE_COLS: usize = 768;
/// Most columns of a [`FloatPanel`].
pub(crate) const FLOAT_COLS: usize = 256;
/// Rows that are unpacked before they are interleaved.
pub(crate) const STAGED_ROWS: usize = 8;

/// How the codes of a packing stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    /// The largest code, from which a kernel knows how many products fit 16 bits.
    pub(crate) max: u8,
    /// Columns that share a scale, as the kernels see it.
    pub(crate) group: Group,
    /// Where zero lies.
    pub(crate) level: Level,
}

/// Columns that share a scale. Longer groups repeat their scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// A whole group of activations.
    Of32,
    /// Half a group of activations.
    Of16,
}

/// What a code of zero means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// `w = scale * (code - zero)`.
    Zero(i32),
    /// `w = scale * code + min`.
    Min,
}

/// [`LANES`] rows as codes. Four columns of every lane lie together, as the dot product
/// instructions take them.
#[repr(C, align(64))]
pub(crate) struct CodePanel {
    /// `codes[c / 4][4 * lane + c % 4]`.
    pub(crate) codes: [[u8; 4 * LANES]; CODE_COLS / 4],
    /// One line per group of the coding.
    pub(crate) scales: [[f32; LANES]; CODE_COLS / 16],
    /// As `scales`, where the coding has minimums.
    pub(crate) mins: [[f32; LANES]; CODE_COLS / 16],
    /// Columns in use, a multiple of 32.
    pub(crate) cols: usize,
    /// How to read them.
    pub(crate) coding: Coding,
}

/// [`LANES`] rows as f32, `values[column][lane]`.
#[repr(C, align(64))]
pub(crate) struct FloatPanel {
    /// One line per column.
    pub(crate) values: [[f32; LANES]; FLOAT_COLS],
    /// Columns in use.
    pub(crate) cols: usize,
}

/// Some rows (at most [`LANES`]) and columns of a matrix. The columns start and end at blocks of the
/// packing and, for codes, at multiples of 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) rows: Range<usize>,
    pub(crate) cols: Range<usize>,
}

/// Where a format puts one row of a [`CodePanel`].
pub(crate) struct RowOut<'a> {
    /// One code per column, in order.
    pub(crate) codes: &'a mut [u8],
    scales: &'a mut [[f32; LANES]],
    mins: &'a mut [[f32; LANES]],
    lane: usize,
}

impl Coding {
    /// How a packing becomes codes, if it does: plain floats and 8-bit floats do not.
    pub(crate) fn of(packing: Packing) -> Option<Coding> {
        use Group::{Of16, Of32};
        use Level::{Min, Zero};
        let (max, group, level) = match packing {
            Packing::Plain(_) | Packing::Mxfp8 | Packing::Fp8Blocks { .. } => return None,
            Packing::Affine { bits, .. } => (u8::MAX >> (8 - bits.clamp(1, 8)), Of32, Min),
            Packing::Mxfp4 | Packing::Gguf(GgufType::Mxfp4) => (2 * fp4::ZERO, Of32, fp4::LEVEL),
            Packing::Nvfp4 => (2 * fp4::ZERO, Of16, fp4::LEVEL),
            Packing::Gguf(ty) => match ty {
                GgufType::Q4_0 => (15, Of32, Zero(8)),
                GgufType::Q4_1 => (15, Of32, Min),
                GgufType::Q5_0 => (31, Of32, Zero(16)),
                GgufType::Q5_1 => (31, Of32, Min),
                GgufType::Q8_0 | GgufType::Iq4Nl => (255, Of32, Zero(128)),
                GgufType::Q2K => (3, Of16, Min),
                GgufType::Q3K => (7, Of16, Zero(4)),
                GgufType::Q4K => (15, Of32, Min),
                GgufType::Q5K => (31, Of32, Min),
                GgufType::Q6K => (63, Of16, Zero(32)),
                GgufType::Mxfp4 => (2 * fp4::ZERO, Of32, fp4::LEVEL),
            },
        };
        Some(Coding { max, group, level })
    }
}

impl CodePanel {
    /// A panel of nothing.
    pub(crate) fn new() -> CodePanel {
        CodePanel {
            codes: [[0; 4 * LANES]; CODE_COLS / 4],
            scales: [[0.0; LANES]; CODE_COLS / 16],
            mins: [[0.0; LANES]; CODE_COLS / 16],
            cols: 0,
            coding: Coding { max: 0, group: Group::Of32, level: Level::Min },
        }
    }
}

impl FloatPanel {
    /// A panel of nothing.
    pub(crate) fn new() -> FloatPanel {
        FloatPanel { values: [[0.0; LANES]; FLOAT_COLS], cols: 0 }
    }
}

impl RowOut<'_> {
    #[inline(always)]
    fn scale(&mut self, group: usize, scale: f32) {
        self.scales[group][self.lane] = scale;
    }

    #[inline(always)]
    fn scale_and_min(&mut self, group: usize, scale: f32, min: f32) {
        self.scales[group][self.lane] = scale;
        self.mins[group][self.lane] = min;
    }
}

/// Fills `panel` with `piece`, whose columns are at most [`CODE_COLS`]; lanes without a row hold
/// leftovers. The bytes of `next` are asked for meanwhile. `interleave` moves rows of codes to where
/// the panel has its lanes from the given one on.
#[inline(always)]
pub(crate) fn fill_codes(
    matrix: &Matrix,
    Piece { rows, cols }: &Piece,
    next: &Piece,
    panel: &mut CodePanel,
    interleave: impl Fn(&[[u8; CODE_COLS]; STAGED_ROWS], usize, &mut [[u8; 4 * LANES]]),
) {
    panel.cols = cols.len();
    panel.coding = Coding::of(matrix.packing).unwrap_or_else(|| {
        unreachable!("{:?} has no codes; the caller takes the float path", matrix.packing)
    });
    let mut staged = [[0; CODE_COLS]; STAGED_ROWS];
    for first in (0..rows.len()).step_by(STAGED_ROWS) {
        let n = (rows.len() - first).min(STAGED_ROWS);
        for (i, staged) in staged[..n].iter_mut().enumerate() {
            let CodePanel { scales, mins, .. } = &mut *panel;
            let lane = first + i;
            let out = RowOut { codes: &mut staged[..cols.len()], scales, mins, lane };
            unpack_row(matrix, rows.start + lane, cols.clone(), out);
            if next.rows.len() > lane {
                simd::prefetch(data_of(matrix, next.rows.start + lane, &next.cols));
            }
        }
        interleave(&staged, first, &mut panel.codes[..cols.len() / 4]);
    }
}

/// As [`fill_codes`], for a piece of at most [`FLOAT_COLS`] columns.
#[inline(always)]
pub(crate) fn fill_floats(
    matrix: &Matrix,
    Piece { rows, cols }: &Piece,
    next: &Piece,
    panel: &mut FloatPanel,
    interleave: impl Fn(&[[f32; FLOAT_COLS]; STAGED_ROWS], usize, &mut [[f32; LANES]]),
) {
    panel.cols = cols.len();
    let mut staged = [[0.0; FLOAT_COLS]; STAGED_ROWS];
    for first in (0..rows.len()).step_by(STAGED_ROWS) {
        let n = (rows.len() - first).min(STAGED_ROWS);
        for (i, staged) in staged[..n].iter_mut().enumerate() {
            let lane = first + i;
            widen_row(matrix, rows.start + lane, cols.clone(), &mut staged[..cols.len()]);
            if next.rows.len() > lane {
                simd::prefetch(data_of(matrix, next.rows.start + lane, &next.cols));
            }
        }
        interleave(&staged, first, &mut panel.values[..cols.len()]);
    }
}

/// Row `row` of a weight as f32, bit for bit as [`Matrix::dequantize_row`] has it.
pub(crate) fn row_f32(weight: &Weight, row: usize, out: &mut [f32]) {
    for (part, rows) in weight.parts(row..row + 1) {
        weight.part(part).dequantize_row(rows.start, out);
    }
}

#[inline(always)]
fn unpack_row(matrix: &Matrix, row: usize, cols: Range<usize>, out: RowOut<'_>) {
    let packing = matrix.packing;
    let data = data_of(matrix, row, &cols);
    let place = (row, matrix.cols);
    let scale_bytes = |cols| packing.row_scale_bytes(cols);
    let scales = part_of_row(&matrix.scales, place, &cols, scale_bytes);
    match packing {
        Packing::Affine { bits, group, scale } => {
            let mins = part_of_row(&matrix.biases, place, &cols, scale_bytes);
            affine::unpack(bits, data, out.codes);
            affine::scales(scale, usize::from(group), (scales, mins), out);
        }
        Packing::Mxfp4 => fp4::mxfp4(data, scales, out),
        Packing::Nvfp4 => fp4::nvfp4(data, scales, out),
        Packing::Gguf(ty) => match ty {
            GgufType::Q4_0 => legacy::q4_0(data, out),
            GgufType::Q4_1 => legacy::q4_1(data, out),
            GgufType::Q5_0 => legacy::q5_0(data, out),
            GgufType::Q5_1 => legacy::q5_1(data, out),
            GgufType::Q8_0 => legacy::q8_0(data, out),
            GgufType::Iq4Nl => legacy::iq4_nl(data, out),
            GgufType::Mxfp4 => fp4::gguf_mxfp4(data, out),
            GgufType::Q2K => k::q2_k(data, out),
            GgufType::Q3K => k::q3_k(data, out),
            GgufType::Q4K => k::q4_k(data, out),
            GgufType::Q5K => k::q5_k(data, out),
            GgufType::Q6K => k::q6_k(data, out),
        },
        Packing::Plain(_) | Packing::Mxfp8 | Packing::Fp8Blocks { .. } => {
            unreachable!("{packing:?} has no codes")
        }
    }
}

/// The packed elements of some columns of a row.
#[inline(always)]
fn data_of<'a>(matrix: &'a Matrix, row: usize, cols: &Range<usize>) -> &'a [u8] {
    let packing = matrix.packing;
    part_of_row(&matrix.data, (row, matrix.cols), cols, |cols| packing.row_bytes(cols))
}

/// The bytes of `cols` out of row `row` of rows of `n_cols` columns, `bytes_of` saying how many so
/// many columns take. Blocks are not cut, so that is linear, which saves two divisions per row.
#[inline(always)]
fn part_of_row<'a>(
    bytes: &'a [u8],
    (row, n_cols): (usize, usize),
    cols: &Range<usize>,
    bytes_of: impl Fn(usize) -> usize,
) -> &'a [u8] {
    let start = row * bytes_of(n_cols);
    &bytes[start + bytes_of(cols.start)..start + bytes_of(cols.end)]
}
