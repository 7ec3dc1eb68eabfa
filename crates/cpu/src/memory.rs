//! What the device's memory is made of. No arithmetic: buffers of f32, packed weights where they
//! lie, staged batches.

use std::ops::Range;

use backend::ops::Memory;
use backend::{Batch, BlockId, DeviceError, KvGroup, SlotId, TokenId};
use weights::Matrix;

use crate::Cpu;

/// Activations: `rows x cols` numbers, row major, at the start of an allocation that never changes.
#[derive(Default)]
pub struct Buf {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

/// A weight as its parts, one below the other. The packed bytes stay where the checkpoint has them.
pub struct Weight {
    rows: usize,
    cols: usize,
    parts: Vec<Part>,
}

/// Some consecutive rows of a [`Weight`] that share a packing.
struct Part {
    /// The weight's row that is row 0 of `matrix`.
    first_row: usize,
    matrix: Matrix,
}

/// A short vector of f32.
pub struct Vector(pub Vec<f32>);

/// A batch, flattened so that staging one allocates nothing.
pub struct Staged {
    /// One token per row.
    pub tokens: Vec<TokenId>,
    /// Rows whose logits are wanted, ascending.
    pub want: Vec<u32>,
    /// The sequences, in row order.
    pub spans: Vec<StagedSpan>,
    blocks: Vec<BlockId>,
    kept: Vec<(usize, SlotId)>,
}

/// The rows of one sequence of a [`Staged`] batch.
#[derive(Clone, Debug)]
pub struct StagedSpan {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Position of the first row in its sequence.
    pub start: usize,
    /// Where the block tables lie in the batch's table of tables: that of layers that see all, then that
    /// of layers that see a window.
    tables: [Range<usize>; 2],
    /// State before the first row.
    pub state_in: Option<SlotId>,
    /// Where the states to keep lie in the batch's list of them.
    kept: Range<usize>,
}

impl Buf {
    /// Rows of the current shape.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the current shape.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Gives the buffer a new shape; what the numbers are is then unspecified. Panics if the
    /// allocation is too small.
    pub fn reshape(&mut self, rows: usize, cols: usize) -> &mut [f32] {
        let room = self.data.len();
        assert!(rows * cols <= room, "{rows} x {cols} does not fit a buffer of {room} numbers");
        (self.rows, self.cols) = (rows, cols);
        self.values_mut()
    }

    /// Makes room for `len` numbers, for buffers that this crate keeps for itself.
    pub(crate) fn grow(&mut self, len: usize) {
        if self.data.len() < len {
            self.data.resize(len, 0.0);
        }
    }

    /// The numbers of the current shape.
    pub fn values(&self) -> &[f32] {
        &self.data[..self.rows * self.cols]
    }

    /// The numbers of the current shape, to write to.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.cols]
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values()[row * self.cols..][..self.cols]
    }
}

impl Weight {
    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Part `part`, as [`Weight::parts`] counts them.
    pub fn part(&self, part: usize) -> &Matrix {
        &self.parts[part].matrix
    }

    /// The weight's row that is row 0 of part `part`.
    pub fn part_start(&self, part: usize) -> usize {
        self.parts[part].first_row
    }

    /// The parts that have rows in `rows`, each with those of *its own* rows that are meant.
    pub fn parts(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let first = self.parts.partition_point(|p| p.first_row + p.matrix.rows <= rows.start);
        self.parts[first..].iter().enumerate().map_while(move |(i, part)| {
            let start = rows.start.max(part.first_row) - part.first_row;
            let end =
                rows.end.min(part.first_row + part.matrix.rows).checked_sub(part.first_row)?;
            (start < end).then_some((first + i, start..end))
        })
    }
}

impl Staged {
    /// Rows of the batch.
    pub fn n_rows(&self) -> usize {
        self.tokens.len()
    }

    /// The block table of a span in a group: covers positions `0..start + rows.len()`.
    pub fn blocks(&self, span: &StagedSpan, group: KvGroup) -> &[BlockId] {
        let [full, windowed] = &span.tables;
        let table = match group {
            KvGroup::Full => full,
            KvGroup::Windowed => windowed,
        };
        &self.blocks[table.clone()]
    }

    /// States to keep of a span: after which of its rows, and in which slot.
    pub fn states_out(&self, span: &StagedSpan) -> &[(usize, SlotId)] {
        &self.kept[span.kept.clone()]
    }
}

/// Appends `more` to `list`, and says where it went.
fn append<T: Copy>(list: &mut Vec<T>, more: &[T]) -> Range<usize> {
    let first = list.len();
    list.extend_from_slice(more);
    first..list.len()
}

impl Memory for Cpu {
    type Buf = Buf;
    type Weight = Weight;
    type Vector = Vector;
    type Staged = Staged;

    fn buf(&self, max_len: usize) -> Buf {
        Buf { rows: 0, cols: 0, data: vec![0.0; max_len] }
    }

    fn weight(&self, parts: &[Matrix]) -> Weight {
        let cols = parts.first().map_or(0, |m| m.cols);
        let mut rows = 0;
        let mut place = |matrix: &Matrix| {
            assert_eq!(
                matrix.cols, cols,
                "{} has other columns than the parts before",
                matrix.name
            );
            let first_row = rows;
            rows += matrix.rows;
            Part { first_row, matrix: matrix.clone() }
        };
        let parts = parts.iter().filter(|m| m.rows > 0).map(&mut place).collect();
        Weight { rows, cols, parts }
    }

    fn vector(&self, values: &[f32]) -> Vector {
        Vector(values.to_vec())
    }

    fn staged(&self, max_rows: usize) -> Staged {
        Staged {
            tokens: Vec::with_capacity(max_rows),
            want: Vec::with_capacity(max_rows),
            spans: Vec::with_capacity(max_rows),
            blocks: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn stage(&self, batch: &Batch, staged: &mut Staged) {
        staged.tokens.clone_from(&batch.tokens);
        staged.want.clone_from(&batch.want);
        staged.spans.clear();
        staged.blocks.clear();
        staged.kept.clear();
        for span in &batch.spans {
            let tables = [&span.blocks, &span.windowed].map(|own| append(&mut staged.blocks, own));
            let kept = append(&mut staged.kept, &span.states_out);
            let (rows, start, state_in) = (span.rows.clone(), span.start, span.state_in);
            staged.spans.push(StagedSpan { rows, start, tables, state_in, kept });
        }
    }

    fn read(&self, buf: &Buf, len: usize, out: &mut Vec<f32>) -> Result<(), DeviceError> {
        out.clear();
        out.extend_from_slice(&buf.data[..len]);
        Ok(())
    }
}
