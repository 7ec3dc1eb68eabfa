//! Packed weights as the kernels want them: a [`CodePanel`] of small unsigned integers with a scale
//! and at most one minimum per group, or a [`FloatPanel`] of f32.
//!
//! The bytes of a model stay as they lie in its file. A panel is [`LANES`] rows of a weight by some
//! columns, unpacked into the L1 cache just before it is multiplied with every row of activations
//! there is. **A format is one function** that unpacks one block of some rows (in the files of this
//! module) plus its lines in [`Coding::of`] and in [`with_format`]; the multiplying knows none of them.
//! The function is written once, in [`Words`], for every instruction set.
//!
//! Not the definition of any format: that is [`Matrix::dequantize_row`], and the tests compare.

mod affine;
mod fp4;
mod k;
mod legacy;
mod widen;

use std::ops::Range;

use weights::{GgufType, Matrix, Packing};

use crate::Weight;
use crate::simd::{self, Available, CACHE_LINE, Place, Rows, Side, Words};

pub(crate) use widen::widen_row;

/// Rows of a panel: one lane of the kernels each.
pub(crate) const LANES: usize = 16;
/// Most columns of a [`CodePanel`]: codes, scales and minimums together leave half of a 32 KiB cache
/// to the activations.
pub(crate) const CODE_COLS: usize = 768;
/// Most columns of a [`FloatPanel`].
pub(crate) const FLOAT_COLS: usize = 256;
/// Rows of floats that are widened before they are interleaved.
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

impl Group {
    const fn cols(self) -> usize {
        match self {
            Group::Of32 => 32,
            Group::Of16 => 16,
        }
    }
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

/// Where a format puts one block of some rows.
pub(crate) struct Out<'a, C> {
    /// Takes the codes.
    pub(crate) codes: C,
    /// The block's lines of a [`CodePanel`].
    pub(crate) scales: &'a mut [[f32; LANES]],
    pub(crate) mins: &'a mut [[f32; LANES]],
    /// The first row.
    pub(crate) lane: usize,
}

/// What takes the codes of a block, four columns of some rows at a time.
pub(crate) trait Codes<W> {
    /// Columns `4 * line..4 * line + 4` of the block, one per byte.
    fn take(&mut self, line: usize, codes: W);
}

impl Coding {
    /// How a packing becomes codes, if it does: plain floats and 8-bit floats do not.
    pub(crate) fn of(packing: Packing) -> Option<Coding> {
        use Group::{Of16, Of32};
        let (max, group, level) = match packing {
            Packing::Plain(_) | Packing::Mxfp8 | Packing::Fp8Blocks { .. } => return None,
            Packing::Affine { bits, .. } => (u8::MAX >> (8 - bits.clamp(1, 8)), Of32, Level::Min),
            Packing::Mxfp4 => (2 * fp4::ZERO, Of32, fp4::LEVEL),
            Packing::Nvfp4 | Packing::DividedNvfp4(_) => (2 * fp4::ZERO, Of16, fp4::LEVEL),
            Packing::Int8 { .. } => (255, Of32, Level::Zero(128)),
            Packing::Gguf(ty) => return Some(Coding::of_gguf(ty)),
        };
        Some(Coding { max, group, level })
    }

    const fn of_gguf(ty: GgufType) -> Coding {
        use Group::{Of16, Of32};
        use Level::{Min, Zero};
        let (max, group, level) = match ty {
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
        };
        Coding { max, group, level }
    }
}

impl Default for CodePanel {
    /// A panel of nothing.
    fn default() -> CodePanel {
        CodePanel {
            codes: [[0; 4 * LANES]; CODE_COLS / 4],
            scales: [[0.0; LANES]; CODE_COLS / 16],
            mins: [[0.0; LANES]; CODE_COLS / 16],
            cols: 0,
            coding: Coding { max: 0, group: Group::Of32, level: Level::Min },
        }
    }
}

impl Default for FloatPanel {
    /// A panel of nothing.
    fn default() -> FloatPanel {
        FloatPanel { values: [[0.0; LANES]; FLOAT_COLS], cols: 0 }
    }
}

impl<C> Out<'_, C> {
    #[inline(always)]
    fn codes<W: Words>(&mut self, line: usize, codes: W)
    where
        C: Codes<W>,
    {
        self.codes.take(line, codes);
    }

    /// All lines of a run of 32 columns. Spelt out, because a loop with a body as long as some takers
    /// have would stay a loop, and registers cannot be counted through.
    #[inline(always)]
    fn run<W: Words>(&mut self, run: usize, codes: [W; 8])
    where
        C: Codes<W>,
    {
        let [a, b, c, d, e, f, g, h] = codes;
        self.codes(8 * run, a);
        self.codes(8 * run + 1, b);
        self.codes(8 * run + 2, c);
        self.codes(8 * run + 3, d);
        self.codes(8 * run + 4, e);
        self.codes(8 * run + 5, f);
        self.codes(8 * run + 6, g);
        self.codes(8 * run + 7, h);
    }

    #[inline(always)]
    fn scale<W: Words>(&mut self, group: usize, scale: W::Floats) {
        W::put_floats(scale, &mut self.scales[group], self.lane);
    }

    #[inline(always)]
    fn min<W: Words>(&mut self, group: usize, min: W::Floats) {
        W::put_floats(min, &mut self.mins[group], self.lane);
    }
}

/// The low half of every byte.
const LOW_NIBBLES: u32 = 0x0f0f_0f0f;
/// The low two bits of every byte.
const LOW_PAIRS: u32 = 0x0303_0303;
/// The lowest bit of every byte.
const LOW_BITS: u32 = 0x0101_0101;

/// The low `4 * BITS` bits as four codes of `BITS` bits, a byte each.
#[inline(always)]
fn spread<W: Words, const BITS: usize>(x: W) -> W {
    match BITS {
        8 => x,
        4 => {
            let x = x.and(0xffff);
            let x = x.or(x.shl(8)).and(0x00ff_00ff);
            x.or(x.shl(4)).and(LOW_NIBBLES)
        }
        _ => {
            let mask = (1 << BITS) - 1;
            let mut codes = x.and(mask);
            for i in 1..4 {
                codes = codes.or(x.shl((8 - BITS as u32) * i).and(mask << (8 * i)));
            }
            codes
        }
    }
}

/// How a packing is unpacked.
pub(crate) trait Format: Copy {
    /// Columns that are unpacked together: a block.
    const COLS: usize;
    /// Bytes of a row of it.
    const BYTES: usize;
    /// Scales of a block.
    const GROUPS: usize;
    /// Neighbouring blocks that have the same scales and minimums, where these lie apart.
    const SHARING: usize = 1;

    /// Bytes of a row of so many blocks where scales lie apart, and again where minimums do.
    #[inline(always)]
    fn bytes_apart(self) -> [usize; 2] {
        [0, 0]
    }

    /// Unpacks the scales and minimums that lie apart, those of `n` times so many blocks of some rows.
    #[inline(always)]
    fn numbers_apart<W: Words>(self, _from: &[Side<'_, W>; 2], _n: usize, _out: &mut Out<'_, ()>) {}

    /// Unpacks the block of some rows that starts at byte `at` of their pieces.
    fn block<W: Words>(self, rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>);
}

/// What can be done with a [`Format`], whichever it is.
pub(crate) trait Visitor {
    fn visit<F: Format>(self, format: F);
}

/// Declares the types of GGUF, which have their scales among the codes, by the function that unpacks
/// the block of some rows that starts at a byte.
macro_rules! gguf {
    ($($name:ident: $unpack:path;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;

            impl Format for $name {
                const COLS: usize = GgufType::$name.block().0;
                const BYTES: usize = GgufType::$name.block().1;
                const GROUPS: usize = Self::COLS / Coding::of_gguf(GgufType::$name).group.cols();

                #[inline(always)]
                fn block<W: Words>(
                    self,
                    rows: &Side<'_, W>,
                    at: usize,
                    out: &mut Out<'_, impl Codes<W>>,
                ) {
                    $unpack(rows, at, out);
                }
            }
        )*

        #[inline]
        fn with_gguf(ty: GgufType, visitor: impl Visitor) {
            match ty {
                $(GgufType::$name => visitor.visit($name),)*
            }
        }
    };
}

gguf! {
    Q4_0: legacy::q4_0;
    Q4_1: legacy::q4_1;
    Q5_0: legacy::q5_0;
    Q5_1: legacy::q5_1;
    Q8_0: legacy::q8_0;
    Iq4Nl: legacy::iq4_nl;
    Mxfp4: fp4::gguf_mxfp4;
    Q2K: k::q2_k;
    Q3K: k::q3_k;
    Q4K: k::q4_k;
    Q5K: k::q5_k;
    Q6K: k::q6_k;
}

/// Hands the format of a packing that has codes to `visitor`.
#[inline]
pub(crate) fn with_format(packing: Packing, visitor: impl Visitor) {
    match packing {
        Packing::Affine { bits, group, scale } => affine::with_format(bits, group, scale, visitor),
        Packing::Mxfp4 => visitor.visit(fp4::MXFP4),
        Packing::Nvfp4 => visitor.visit(fp4::NVFP4),
        Packing::DividedNvfp4(by) => visitor.visit(fp4::Divided(by.get())),
        Packing::Int8 { group, scale } => affine::with_signed(group, scale, visitor),
        Packing::Gguf(ty) => with_gguf(ty, visitor),
        Packing::Plain(_) | Packing::Mxfp8 | Packing::Fp8Blocks { .. } => {
            unreachable!("{packing:?} has no codes; the caller takes the float path")
        }
    }
}

/// Where codes come from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) piece: &'a Piece,
}

/// What is done with the blocks of a piece.
pub(crate) trait Taker<W: Words> {
    /// Block `place.0` of the rows from lane `place.1` on, with its lines of scales and minimums.
    fn block<F: Format>(
        &mut self,
        format: F,
        rows: &Side<'_, W>,
        place: (usize, usize),
        numbers: Numbers<'_>,
    );
}

/// Lines of scales and of minimums.
pub(crate) type Numbers<'a> = (&'a mut [[f32; LANES]], &'a mut [[f32; LANES]]);

/// Fills `panel` with a piece of at most [`CODE_COLS`] columns; lanes without a row hold leftovers.
#[inline(always)]
pub(crate) fn fill_codes<W: Words, F: Format>(
    isa: Available<W>,
    format: F,
    source: Source<'_>,
    panel: &mut CodePanel,
) {
    let CodePanel { codes, scales, mins, cols, .. } = panel;
    *cols = source.piece.cols.len();
    each_block(isa, format, source, (scales, mins), &mut Keep(codes));
}

/// Keeps the codes.
struct Keep<'a>(&'a mut [[u8; 4 * LANES]]);

/// The lines of a block, and the first row.
struct Kept<'a>(&'a mut [[u8; 4 * LANES]], usize);

impl<W: Words> Codes<W> for Kept<'_> {
    #[inline(always)]
    fn take(&mut self, line: usize, codes: W) {
        codes.put(&mut self.0[line], self.1);
    }
}

impl<W: Words> Taker<W> for Keep<'_> {
    #[inline(always)]
    fn block<F: Format>(
        &mut self,
        format: F,
        rows: &Side<'_, W>,
        (i, lane): (usize, usize),
        (scales, mins): Numbers<'_>,
    ) {
        let codes = Kept(&mut self.0[i * (F::COLS / 4)..(i + 1) * (F::COLS / 4)], lane);
        format.block(rows, i * F::BYTES, &mut Out { codes, scales, mins, lane });
    }
}

/// How much further than a panel the asking is ahead of the reading: the memory takes longer to answer
/// than a small panel takes to be read.
const LEAD: usize = 4096;

/// Hands every block of a piece to `taker`. As many bytes of the rows below are asked for meanwhile.
#[inline(always)]
pub(crate) fn each_block<W: Words, F: Format>(
    isa: Available<W>,
    format: F,
    Source { matrix, piece }: Source<'_>,
    (scale_lines, min_lines): Numbers<'_>,
    taker: &mut impl Taker<W>,
) {
    let row_blocks = matrix.cols / F::COLS;
    let blocks = piece.cols.start / F::COLS..piece.cols.end / F::COLS;
    // Of so many bytes for so many blocks.
    let place = |bytes: usize, n: usize| Place {
        first: (piece.rows.start * row_blocks + blocks.start) / n * bytes,
        stride: row_blocks / n * bytes,
        n_rows: piece.rows.len(),
        len: blocks.len() / n * bytes,
        ahead: (piece.rows.end * row_blocks + LANES * blocks.start) / n * bytes + LEAD,
    };
    let [scale_bytes, min_bytes] = format.bytes_apart();
    let data_place = place(F::BYTES, 1);
    let data = Rows::new(&matrix.data, &data_place);
    let scales = Rows::new(&matrix.scales, &place(scale_bytes, F::SHARING));
    let mins = Rows::new(&matrix.biases, &place(min_bytes, F::SHARING));

    for lane in (0..LANES).step_by(W::ROWS) {
        let sides = [isa.side(&scales, lane), isa.side(&mins, lane)];
        let mut out = Out { codes: (), scales: scale_lines, mins: min_lines, lane };
        format.numbers_apart(&sides, blocks.len() / F::SHARING, &mut out);
    }
    let scale_lines = scale_lines.chunks_exact_mut(F::GROUPS);
    let min_lines = min_lines.chunks_exact_mut(F::GROUPS);
    for (i, (scales, mins)) in scale_lines.zip(min_lines).enumerate().take(blocks.len()) {
        for lane in (0..LANES).step_by(W::ROWS) {
            taker.block(format, &isa.side(&data, lane), (i, lane), (scales, mins));
        }
        data.catch_up(data_place.ahead + (i + 1) * LANES * F::BYTES);
    }
}

/// As [`fill_codes`], for a piece of at most [`FLOAT_COLS`] columns.
#[inline(always)]
pub(crate) fn fill_floats(
    Source { matrix, piece: Piece { rows, cols } }: Source<'_>,
    panel: &mut FloatPanel,
    interleave: impl Fn(&[[f32; FLOAT_COLS]; STAGED_ROWS], usize, &mut [[f32; LANES]]),
) {
    panel.cols = cols.len();
    let mut staged = [[0.0; FLOAT_COLS]; STAGED_ROWS];
    for first in (0..rows.len()).step_by(STAGED_ROWS) {
        let n = (rows.len() - first).min(STAGED_ROWS);
        for (i, staged) in staged[..n].iter_mut().enumerate() {
            let row = rows.start + first + i;
            widen_row(matrix, row, cols.clone(), &mut staged[..cols.len()]);
            if row + LANES < matrix.rows {
                let below = data_of(matrix, row + LANES, cols);
                (0..below.len()).step_by(CACHE_LINE).for_each(|at| simd::prefetch(below, at));
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
