//! `out = x . w^T + bias`, for one weight or for many experts at once.
//!
//! A task takes some panels of a weight, unpacks each into the L1 cache piece by piece and
//! multiplies every row of activations with it. So weights are read once whatever the number of rows
//! (up to [`MAX_ROWS`]), and an output element is one lane's sum over the columns in order: neither
//! rows, nor threads, nor the cutting into panels and pieces can change it. The order of that sum is
//! [`crate::Kernels::dot_codes`]'s for weights with codes, [`crate::Kernels::dot_floats`]'s for the
//! rest and for exact activations; the bias is added last.

use std::cell::RefCell;
use std::ops::Range;

use weights::Matrix;

use crate::pack::{CODE_COLS, CodePanel, Coding, FLOAT_COLS, FloatPanel, LANES, Piece, Source};
use crate::pool::{Block, BlockMut};
use crate::rounded::{GROUP, Rounded};
use crate::simd::{self, CACHE_LINE};
use crate::{Activations, Buf, Cpu, Vector, Weight};

/// Rows that meet a panel while it is unpacked: as many as have their activations in the L2 cache.
const MAX_ROWS: usize = 128;
/// Rows of activations that are so few that fetching them takes a good part of multiplying them.
const FEW_ROWS: usize = 4;
/// Tasks per thread, so that a thread that is held up leaves its share to the others.
const TASKS_PER_THREAD: usize = 6;
/// What pieces of a row start at multiples of: the longest block of any packing.
const STEP: usize = 256;

/// Rows of activations that meet the same rows of a weight.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// Rows of the activations and of the result.
    pub(crate) rows: Range<usize>,
    /// Rows of the weight, which become the columns of the result. Every meeting of one call has
    /// equally many.
    pub(crate) outputs: Range<usize>,
}

/// What [`linear`] keeps between calls so that it need not allocate.
#[derive(Default)]
pub(crate) struct Scratch {
    rounded: Vec<Rounded>,
    tasks: Vec<Task>,
    blocks: Vec<Block>,
}

/// Some consecutive outputs of one part of a weight.
struct Task {
    /// Index into the weight's parts.
    part: usize,
    /// Rows of that part.
    outputs: Range<usize>,
}

/// The activations of a call, as its kernels take them.
struct Input<'a> {
    floats: &'a [f32],
    /// Empty if nothing needs them.
    rounded: &'a [Rounded],
    cols: usize,
}

/// `out = x . w^T + bias` over all rows of both.
pub(crate) fn linear(cpu: &Cpu, x: &Buf, w: &Weight, bias: Option<&Vector>, out: &mut Buf) {
    let meeting = Meeting { rows: 0..x.rows(), outputs: 0..w.rows() };
    meetings(cpu, x, w, &[meeting], bias, out);
}

/// For each meeting, `out[its rows] = x[its rows] . w[its outputs]^T`: the experts of a mixture in
/// one parallel region. Meetings come in row order; rows of `out` that no meeting names keep what
/// they had.
pub(crate) fn grouped(cpu: &Cpu, x: &Buf, w: &Weight, groups: &[Meeting], out: &mut Buf) {
    meetings(cpu, x, w, groups, None, out);
}

fn meetings(
    cpu: &Cpu,
    x: &Buf,
    w: &Weight,
    groups: &[Meeting],
    bias: Option<&Vector>,
    out: &mut Buf,
) {
    assert_eq!(x.cols(), w.cols(), "activations have the columns of the weight");
    let n_outputs = groups.first().map_or(0, |m| m.outputs.len());
    let out = out.reshape(x.rows(), n_outputs);
    let mut scratch = cpu.scratch();
    let Scratch { rounded, tasks, blocks } = &mut *scratch;
    plan(cpu, w, groups, tasks, blocks);
    if tasks.iter().any(|task| cpu.coding(w.part(task.part)).is_some()) {
        round(cpu, x, rounded);
    }
    let input = Input { floats: x.values(), rounded, cols: x.cols() };
    let bias = bias.map(|bias| bias.0.as_slice());
    cpu.pool.blocks(out, n_outputs, blocks, |i, out| {
        let bias = bias.map(|bias| &bias[blocks[i].cols.clone()]);
        let matrix = w.part(tasks[i].part);
        let work = Work { cpu, matrix, coding: cpu.coding(matrix), input: &input };
        BENCH.with_borrow_mut(|bench| work.run(&tasks[i], &blocks[i].rows, bias, bench, out));
    });
}

/// Rounds every row of `x`.
fn round(cpu: &Cpu, x: &Buf, rounded: &mut Vec<Rounded>) {
    let n_groups = x.cols() / GROUP;
    rounded.resize(x.rows() * n_groups, Rounded::default());
    // A region costs about as much as rounding a few thousand numbers.
    if x.values().len() < 8192 {
        return (cpu.kernels.round)(x.values(), rounded);
    }
    cpu.pool.rows(rounded, n_groups, |row, out| (cpu.kernels.round)(x.row(row), out));
}

/// Cuts the work into tasks of whole panels and names the block of the result each one writes.
fn plan(cpu: &Cpu, w: &Weight, groups: &[Meeting], tasks: &mut Vec<Task>, blocks: &mut Vec<Block>) {
    tasks.clear();
    blocks.clear();
    let n_outputs: usize = groups.iter().map(|m| m.outputs.len()).sum();
    let n_panels = n_outputs.div_ceil(LANES);
    let step = n_panels.div_ceil(cpu.threads() * TASKS_PER_THREAD).max(1) * LANES;
    for group in groups.iter().filter(|m| !m.rows.is_empty()) {
        for (part, outputs) in w.parts(group.outputs.clone()) {
            for start in outputs.clone().step_by(step) {
                let outputs = start..(start + step).min(outputs.end);
                let first = w.part_start(part) + start - group.outputs.start;
                let cols = first..first + outputs.len();
                blocks.push(Block { rows: group.rows.clone(), cols });
                tasks.push(Task { part, outputs });
            }
        }
    }
}

/// What a thread works with. Kept, because clearing it would take as long as using it.
#[derive(Default)]
struct Bench {
    codes: CodePanel,
    floats: FloatPanel,
    sums: Vec<[f32; LANES]>,
}

thread_local! {
    static BENCH: RefCell<Box<Bench>> = RefCell::default();
}

/// A task at work.
struct Work<'a> {
    cpu: &'a Cpu,
    matrix: &'a Matrix,
    /// How it is multiplied as codes, if it is.
    coding: Option<Coding>,
    input: &'a Input<'a>,
}

impl Work<'_> {
    /// Panel by panel, and for every panel as many rows at a time as stay in the cache.
    fn run(
        &self,
        task: &Task,
        rows: &Range<usize>,
        bias: Option<&[f32]>,
        bench: &mut Bench,
        mut out: BlockMut<'_>,
    ) {
        self.fetch_input(rows);
        for first in (0..task.outputs.len()).step_by(LANES) {
            let n = LANES.min(task.outputs.len() - first);
            let start = task.outputs.start + first;
            for batch in rows.clone().step_by(MAX_ROWS) {
                let batch = batch..(batch + MAX_ROWS).min(rows.end);
                bench.sums.clear();
                bench.sums.resize(batch.len(), [0.0; LANES]);
                self.multiply(start..start + n, batch.start, bench);
                for (r, sums) in bench.sums.iter().enumerate() {
                    let out = &mut out.row(batch.start - rows.start + r)[first..first + n];
                    match bias {
                        // A copy of known length is one store rather than a call.
                        None => match out.as_mut_array() {
                            Some(out) => *out = *sums,
                            None => out.copy_from_slice(&sums[..n]),
                        },
                        Some(bias) => {
                            let sums = sums.iter().zip(&bias[first..first + n]);
                            out.iter_mut().zip(sums).for_each(|(out, (sum, b))| *out = sum + b);
                        }
                    }
                }
            }
        }
    }

    /// Asks for a few rows of rounded activations at once. Another core has just written them, and
    /// the products, which wait for each line in turn, would pay the way from core to core many times.
    fn fetch_input(&self, rows: &Range<usize>) {
        if self.coding.is_some() && rows.len() <= FEW_ROWS {
            let stride = self.input.cols / GROUP;
            let rounded = &self.input.rounded[rows.start * stride..rows.end * stride];
            let bytes = size_of_val(rounded);
            (0..bytes).step_by(CACHE_LINE).for_each(|at| simd::prefetch(rounded, at));
        }
    }

    /// Adds to the sums the products of rows of the input from `row` on with some outputs.
    fn multiply(&self, outputs: Range<usize>, row: usize, bench: &mut Bench) {
        let (kernels, input, matrix) = (self.cpu.kernels, self.input, self.matrix);
        let Bench { codes, floats, sums } = bench;
        match self.coding {
            Some(coding) => {
                let stride = input.cols / GROUP;
                codes.coding = coding;
                for piece in pieces(outputs, matrix.cols, CODE_COLS) {
                    let source = Source { matrix, piece: &piece };
                    let x = &input.rounded[row * stride + piece.cols.start / GROUP..];
                    let few = kernels.few_rows.as_ref().filter(|few| sums.len() <= few.most);
                    if let Some(few) = few {
                        (few.multiply)(source, x, stride, codes, sums);
                    } else {
                        (kernels.unpack_codes)(source, codes);
                        (kernels.dot_codes)(codes, x, stride, sums);
                    }
                }
            }
            None => {
                for piece in pieces(outputs, matrix.cols, FLOAT_COLS) {
                    (kernels.unpack_floats)(Source { matrix, piece: &piece }, floats);
                    let x = &input.floats[row * input.cols + piece.cols.start..];
                    (kernels.dot_floats)(floats, x, input.cols, sums);
                }
            }
        }
    }
}

impl Cpu {
    /// How `matrix` becomes codes, if it is multiplied with rounded activations.
    fn coding(&self, matrix: &Matrix) -> Option<Coding> {
        let rounds = self.activations == Activations::Int8 && matrix.cols.is_multiple_of(GROUP);
        if rounds { Coding::of(matrix.packing) } else { None }
    }
}

/// All columns of some outputs in pieces of at most `most` columns, about equally long and starting
/// at multiples of [`STEP`].
fn pieces(rows: Range<usize>, n_cols: usize, most: usize) -> impl Iterator<Item = Piece> {
    let n = n_cols.div_ceil(most).max(1);
    let step = n_cols.div_ceil(n).next_multiple_of(STEP).min(most);
    (0..n_cols)
        .step_by(step)
        .map(move |start| Piece { rows: rows.clone(), cols: start..(start + step).min(n_cols) })
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
