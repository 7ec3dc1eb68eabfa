//! Regions that write: one slice shared out so that no two tasks hold the same element.
//!
//! The proofs of disjointness live here, so that ops stay safe code. Which element belongs to which
//! task is decided by shape alone.

use std::marker::PhantomData;
use std::ops::Range;

use super::Pool;

/// Tasks per thread and region, so that a thread that is held up leaves its share to the others.
const TASKS_PER_THREAD: usize = 4;

/// Some rows and columns of a row-major matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Rows of the matrix.
    pub rows: Range<usize>,
    /// Columns of the matrix.
    pub cols: Range<usize>,
}

/// A [`Block`] to write to.
pub struct BlockMut<'a> {
    block: &'a Block,
    matrix: &'a Shared<'a, f32>,
    matrix_cols: usize,
}

impl Pool {
    /// Calls `f(row, values)` for every row of a row-major matrix of `cols` columns.
    pub fn rows<T: Send>(&self, data: &mut [T], cols: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let n_rows = data.len().checked_div(cols).unwrap_or(0);
        let step = self.rows_per_task(n_rows);
        self.chunks(data, cols * step, |chunk, data| {
            for (row, values) in data.chunks_exact_mut(cols).enumerate() {
                f(chunk * step + row, values);
            }
        });
    }

    /// Rows a task should take when `n_rows` independent rows are shared out.
    pub fn rows_per_task(&self, n_rows: usize) -> usize {
        n_rows.div_ceil(self.threads() * TASKS_PER_THREAD).max(1)
    }

    /// Calls `f(i, chunk)` for every chunk of `size` elements, the last one as long as it comes out.
    pub fn chunks<T: Send>(&self, data: &mut [T], size: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let data = Shared::new(data);
        self.run(data.n_chunks(size), &|i| {
            // SAFETY: each chunk is handed out once, because `run` runs each `i` once.
            f(i, unsafe { data.slice(data.chunk(i, size)) });
        });
    }

    /// Like [`Pool::chunks`], over two slices that are cut into the same number of chunks, each of
    /// the size that comes with it.
    pub fn zip_chunks<T: Send, U: Send>(
        &self,
        (a, a_size): (&mut [T], usize),
        (b, b_size): (&mut [U], usize),
        f: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let (a, b) = (Shared::new(a), Shared::new(b));
        let n = a.n_chunks(a_size);
        assert_eq!(n, b.n_chunks(b_size), "both slices have the same number of chunks");
        self.run(n, &|i| {
            // SAFETY: each chunk is handed out once, because `run` runs each `i` once.
            let a = unsafe { a.slice(a.chunk(i, a_size)) };
            // SAFETY: as above.
            let b = unsafe { b.slice(b.chunk(i, b_size)) };
            f(i, a, b);
        });
    }

    /// Calls `f(i, block)` for every one of `blocks` of the row-major matrix `data` of `cols`
    /// columns.
    ///
    /// The blocks come in order: each has the rows of the one before and columns after its columns,
    /// or rows after its rows. Anything else would let two tasks write to one place, and panics.
    pub fn blocks(
        &self,
        data: &mut [f32],
        cols: usize,
        blocks: &[Block],
        f: impl Fn(usize, BlockMut<'_>) + Sync,
    ) {
        for pair in blocks.windows(2) {
            let right = pair[0].rows == pair[1].rows && pair[0].cols.end <= pair[1].cols.start;
            let below = pair[0].rows.end <= pair[1].rows.start;
            assert!(right || below, "blocks overlap or are out of order: {pair:?}");
        }
        let fits = |b: &Block| b.rows.end * cols <= data.len() && b.cols.end <= cols;
        assert!(blocks.iter().all(fits), "a block reaches outside the matrix");
        let shared = Shared::new(data);
        self.run(blocks.len(), &|i| {
            f(i, BlockMut { block: &blocks[i], matrix: &shared, matrix_cols: cols });
        });
    }
}

impl BlockMut<'_> {
    /// The block's part of row `row` of the block.
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.block.rows.len());
        let start = (self.block.rows.start + row) * self.matrix_cols;
        let range = start + self.block.cols.start..start + self.block.cols.end;
        // SAFETY: `Pool::blocks` checked that blocks do not overlap and gives each to one task, and
        // `&mut self` allows one row of it at a time.
        unsafe { self.matrix.slice(range) }
    }
}

/// A slice that several tasks write to, each in its own part.
struct Shared<'a, T> {
    data: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached through `slice` alone, whose callers hand each to one task.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    fn new(data: &'a mut [T]) -> Shared<'a, T> {
        Shared { data: data.as_mut_ptr(), len: data.len(), owner: PhantomData }
    }

    fn n_chunks(&self, size: usize) -> usize {
        if self.len == 0 { 0 } else { self.len.div_ceil(size) }
    }

    fn chunk(&self, i: usize, size: usize) -> Range<usize> {
        i * size..((i + 1) * size).min(self.len)
    }

    /// # Safety
    /// No other slice that overlaps `range` may be alive.
    #[allow(clippy::mut_from_ref, reason = "the callers keep the slices apart")]
    unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the assertion, and not aliased by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}
