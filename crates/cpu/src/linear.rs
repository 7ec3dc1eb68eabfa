//! `x . w^T + bias`, for one weight or for many experts at once.
//!
//! A task takes some panels of a weight, unpacks each into the L1 cache piece by piece and
//! multiplies every row of activations with it. So weights are read once whatever the number of rows
//! (up to [`MAX_ROWS`]), and an output element is one lane's sum over the columns in order: neither
//! rows, nor threads, nor the cutting into panels and pieces can change it. The order of that sum is
//! [`crate::Kernels::dot_codes`]'s for weights with codes, [`crate::Kernels::dot_floats`]'s for the
//! rest and for exact activations; the bias is added last. What comes after, an activation or a sum,
//! is done while the results are in the cache.

mod input;
mod plan;

use std::cell::RefCell;
use std::ops::Range;

use backend::ops::{Input, Output};
use backend::{Activation, Glu};
use weights::Matrix;

use crate::pack::{CODE_COLS, CodePanel, Coding, FLOAT_COLS, FloatPanel, LANES, Piece, Source};
use crate::pool::BlockMut;
use crate::rounded::GROUP;
use crate::simd::{self, CACHE_LINE, FewRows};
use crate::{Activations, Buf, Cpu, Vector, Weight};

use input::Activated;
pub(crate) use plan::Meeting;
use plan::{Pairing, Plan, Slab, Task};

/// Rows that meet a panel while it is unpacked: as many as have their activations in the L2 cache.
const MAX_ROWS: usize = 128;
/// Panels whose results are put down together at least, so that lines of the output that are neighbours
/// are written one after the other.
const PANELS: usize = 4;
/// Rows of activations that are so few that fetching them takes a good part of multiplying them.
const FEW_ROWS: usize = 4;
/// Tasks per thread, so that a thread that is held up leaves its share to the others.
const TASKS_PER_THREAD: usize = 6;
/// What pieces of a row start at multiples of: the longest block of any packing.
const STEP: usize = 256;

/// What [`linear`] keeps between calls so that it need not allocate.
#[derive(Default)]
pub(crate) struct Scratch {
    activations: input::Scratch,
    plan: Plan,
}

/// What becomes of the sums of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finish {
    /// They are the output.
    Set,
    /// They are added to it.
    Add,
    /// They go through an activation.
    Activate(Activation),
    /// Those of its first rows become one with those of its second.
    Gate(Glu),
    /// The same where gates and ups take turns: there are two rows for each output.
    GatePairs(Glu),
}

impl Finish {
    /// How the rows of a weight become outputs.
    fn pairing(self) -> Pairing {
        match self {
            Finish::Set | Finish::Add | Finish::Activate(_) => Pairing::None,
            Finish::Gate(_) => Pairing::Halves,
            Finish::GatePairs(_) => Pairing::Neighbours,
        }
    }
}

/// `x . w^T + bias` over all rows of both, to where `out` says.
pub(crate) fn linear(
    cpu: &Cpu,
    x: Input<'_, Cpu>,
    w: &Weight,
    bias: Option<&Vector>,
    out: Output<'_, Cpu>,
) {
    let n_rows = input::rows_of(&x).rows();
    let (finish, out) = match out {
        Output::Into(out) => (Finish::Set, out),
        Output::Onto(out) => {
            let shapes = ((out.rows(), out.cols()), (n_rows, w.rows()));
            assert_eq!(shapes.0, shapes.1, "only equal shapes are added");
            (Finish::Add, out)
        }
        Output::Activated(act, out) => (Finish::Activate(act), out),
        Output::Gated(act, out) => (Finish::Gate(Glu::Act(act)), out),
    };
    let meeting = Meeting { rows: 0..n_rows, outputs: 0..w.rows() };
    meetings(cpu, x, (w, bias), &[meeting], (finish, out));
}

/// For each meeting, `x[its rows] . w[its outputs]^T` with the biases of these outputs: the experts of
/// a mixture in one parallel region. Meetings come in row order; rows of `out` that no meeting names
/// keep what they had.
pub(crate) fn grouped(
    cpu: &Cpu,
    x: &Buf,
    weight: (&Weight, Option<&Vector>),
    groups: &[Meeting],
    out: (Finish, &mut Buf),
) {
    meetings(cpu, Input::Rows(x), weight, groups, out);
}

fn meetings(
    cpu: &Cpu,
    x: Input<'_, Cpu>,
    (w, bias): (&Weight, Option<&Vector>),
    groups: &[Meeting],
    (finish, out): (Finish, &mut Buf),
) {
    let (n_rows, cols) = (input::rows_of(&x).rows(), input::rows_of(&x).cols());
    assert_eq!(cols, w.cols(), "activations have the columns of the weight");
    let n_sums = groups.first().map_or(0, |m| m.outputs.len());
    let n_outputs = n_sums / finish.pairing().rows_per_output();
    let out = match finish {
        Finish::Add => out.values_mut(),
        Finish::Set | Finish::Activate(_) | Finish::Gate(_) | Finish::GatePairs(_) => {
            out.reshape(n_rows, n_outputs)
        }
    };
    let mut scratch = cpu.scratch();
    let Scratch { activations, plan } = &mut *scratch;
    plan.make(w, groups, finish.pairing(), cpu.threads() * TASKS_PER_THREAD);
    let activations = activations.take(cpu, x, plan.needs(cpu, w));
    let Plan { tasks, blocks } = &*plan;
    cpu.pool.blocks(out, n_outputs, blocks, |i, out| {
        let operand = |slab: &Slab| {
            let matrix = w.part(slab.part);
            let bias = bias.map(|bias| &bias.0[w.part_start(slab.part)..][slab.rows.clone()]);
            Operand { matrix, coding: cpu.coding(matrix), first: slab.rows.start, bias }
        };
        let (Task { first, second }, block) = (&tasks[i], &blocks[i]);
        let work = Work {
            cpu,
            finish,
            first: operand(first),
            second: second.as_ref().map(operand),
            activations: &activations,
            rows: block.rows.clone(),
        };
        BENCH.with_borrow_mut(|bench| work.run(block.cols.len(), bench, out));
    });
}

/// What a thread works with. Kept, because clearing it would take as long as using it.
#[derive(Default)]
struct Bench {
    codes: CodePanel,
    floats: FloatPanel,
    /// Sums of each row with a panel, and with a panel of the second rows.
    sums: [Vec<[f32; LANES]>; 2],
    /// What an activation makes of both. Where their rows take turns, gates on their way there.
    gated: Vec<[f32; LANES]>,
}

thread_local! {
    static BENCH: RefCell<Box<Bench>> = RefCell::default();
}

/// Some rows of a matrix, for a task.
struct Operand<'a> {
    matrix: &'a Matrix,
    /// How they are multiplied as codes, if they are.
    coding: Option<Coding>,
    /// The first of them.
    first: usize,
    /// A number for each.
    bias: Option<&'a [f32]>,
}

/// A task at work.
struct Work<'a> {
    cpu: &'a Cpu,
    finish: Finish,
    first: Operand<'a>,
    second: Option<Operand<'a>>,
    activations: &'a Activated<'a>,
    /// Rows of the activations.
    rows: Range<usize>,
}

impl Work<'_> {
    /// As many rows at a time as stay in the cache, and the more panels the fewer rows: where there
    /// are two operands, each is read some way before the other, for memory is read in order.
    fn run(&self, n_outputs: usize, bench: &mut Bench, mut out: BlockMut<'_>) {
        self.fetch_input();
        let n_panels = (MAX_ROWS / self.rows.len()).max(PANELS);
        for first in (0..n_outputs).step_by(n_panels * LANES) {
            let outputs = first..(first + n_panels * LANES).min(n_outputs);
            for start in self.rows.clone().step_by(MAX_ROWS) {
                let rows = start..(start + MAX_ROWS).min(self.rows.end);
                let n_rows = rows.len();
                self.fetch_output(
                    start - self.rows.start..rows.end - self.rows.start,
                    &outputs,
                    &mut out,
                );
                let results = self.results(&outputs, rows, bench);
                for r in 0..n_rows {
                    let row = out.row(start - self.rows.start + r);
                    for (panel, results) in panels(&outputs).zip(results.chunks_exact(n_rows)) {
                        self.put(&results[r], &mut row[panel]);
                    }
                }
            }
        }
    }

    /// The results of some rows for some outputs, panel by panel, row by row.
    fn results<'b>(
        &self,
        outputs: &Range<usize>,
        rows: Range<usize>,
        bench: &'b mut Bench,
    ) -> &'b [[f32; LANES]] {
        let Bench { codes, floats, sums: [first, second], gated } = bench;
        match (self.finish, &self.second) {
            (Finish::Gate(glu), Some(operand)) => {
                self.sum(&self.first, outputs, &rows, (&mut *codes, &mut *floats, &mut *first));
                self.sum(operand, outputs, &rows, (codes, floats, second));
                gated.resize(first.len(), [0.0; LANES]);
                let (gates, ups) = (first.as_flattened(), second.as_flattened());
                self.gate(glu, (gates, ups), gated.as_flattened_mut());
                gated
            }
            (Finish::GatePairs(glu), _) => {
                let outputs = 2 * outputs.start..2 * outputs.end;
                self.sum(&self.first, &outputs, &rows, (codes, floats, &mut *first));
                unzip(first, rows.len(), (gated, second));
                let results = &mut first[..gated.len()];
                let (gates, ups) = (gated.as_flattened(), second.as_flattened());
                self.gate(glu, (gates, ups), results.as_flattened_mut());
                results
            }
            (finish, _) => {
                self.sum(&self.first, outputs, &rows, (codes, floats, &mut *first));
                if let Finish::Activate(act) = finish {
                    (self.cpu.kernels.ops.activate)(act, first.as_flattened_mut());
                }
                first
            }
        }
    }

    fn gate(&self, glu: Glu, (gates, ups): (&[f32], &[f32]), out: &mut [f32]) {
        let ops = self.cpu.kernels.ops;
        match glu {
            Glu::Act(act) => (ops.glu)(act, gates, ups, out),
            Glu::ClampedSwish { slope, limit } => {
                (ops.clamped_swish)([slope, limit], gates, ups, out);
            }
        }
    }

    /// Puts a row's outputs of one panel where they belong.
    fn put(&self, sums: &[f32; LANES], out: &mut [f32]) {
        match self.finish {
            Finish::Add => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
            // Written so that a whole panel is one store, and the rest no call: that would do for both.
            Finish::Set | Finish::Activate(_) | Finish::Gate(_) | Finish::GatePairs(_) => {
                match out.as_mut_array() {
                    Some(out) => *out = *sums,
                    None => out.iter_mut().zip(sums).for_each(|(out, sum)| *out = *sum),
                }
            }
        }
    }

    /// Asks for a few rows of rounded activations at once. Another core has just written them, and
    /// the products, which wait for each line in turn, would pay the way from core to core many times.
    fn fetch_input(&self) {
        if self.first.coding.is_some() && self.rows.len() <= FEW_ROWS {
            let stride = self.activations.cols / GROUP;
            let rounded =
                &self.activations.rounded[self.rows.start * stride..][..self.rows.len() * stride];
            let bytes = size_of_val(rounded);
            (0..bytes).step_by(CACHE_LINE).for_each(|at| simd::prefetch(rounded, at));
        }
    }

    /// Asks for the lines that the results of many rows go to, while the products are computed. They lie
    /// far apart, so that nothing else would, and each would be waited for.
    fn fetch_output(&self, rows: Range<usize>, outputs: &Range<usize>, out: &mut BlockMut<'_>) {
        if rows.len() > FEW_ROWS {
            for row in rows {
                let line = &mut out.row(row)[outputs.clone()];
                (0..size_of_val(line))
                    .step_by(CACHE_LINE)
                    .for_each(|at| simd::prefetch_to_write(line, at));
            }
        }
    }

    /// The products of some rows of the activations with some rows of an operand, bias added.
    fn sum(
        &self,
        operand: &Operand<'_>,
        outputs: &Range<usize>,
        rows: &Range<usize>,
        (codes, floats, sums): (&mut CodePanel, &mut FloatPanel, &mut Vec<[f32; LANES]>),
    ) {
        sums.clear();
        sums.resize(rows.len() * outputs.len().div_ceil(LANES), [0.0; LANES]);
        for (panel, sums) in panels(outputs).zip(sums.chunks_exact_mut(rows.len())) {
            let place = operand.first + panel.start..operand.first + panel.end;
            match operand.coding {
                Some(coding) => {
                    codes.coding = coding;
                    self.add_codes(operand.matrix, place, rows.start, (codes, sums));
                }
                None => self.add_floats(operand.matrix, place, rows.start, (floats, sums)),
            }
            if let Some(bias) = operand.bias {
                for sums in sums {
                    sums.iter_mut().zip(&bias[panel.clone()]).for_each(|(sum, bias)| *sum += bias);
                }
            }
        }
    }

    /// Adds to the sums the products of rows of rounded activations from `row` on with a panel.
    fn add_codes(
        &self,
        matrix: &Matrix,
        outputs: Range<usize>,
        row: usize,
        (panel, sums): (&mut CodePanel, &mut [[f32; LANES]]),
    ) {
        let (kernels, x) = (self.cpu.kernels, self.activations);
        let stride = x.cols / GROUP;
        for piece in pieces(outputs, matrix.cols, CODE_COLS) {
            let source = Source { matrix, piece: &piece };
            let x = &x.rounded[row * stride + piece.cols.start / GROUP..];
            match kernels.few_rows {
                Some(few) if sums.len() <= few.most => {
                    (few.multiply)(source, x, stride, panel, sums);
                }
                Some(FewRows { most, unpack: Some(unpack), .. }) => {
                    let (first, rest) = sums.split_at_mut(most);
                    unpack(source, x, stride, panel, first);
                    (kernels.dot_codes)(panel, &x[most * stride..], stride, rest);
                }
                _ => {
                    (kernels.unpack_codes)(source, panel);
                    (kernels.dot_codes)(panel, x, stride, sums);
                }
            }
        }
    }

    /// As [`Work::add_codes`], of plain activations.
    fn add_floats(
        &self,
        matrix: &Matrix,
        outputs: Range<usize>,
        row: usize,
        (panel, sums): (&mut FloatPanel, &mut [[f32; LANES]]),
    ) {
        let (kernels, x) = (self.cpu.kernels, self.activations);
        for piece in pieces(outputs, matrix.cols, FLOAT_COLS) {
            (kernels.unpack_floats)(Source { matrix, piece: &piece }, panel);
            let x = &x.floats[row * x.cols + piece.cols.start..];
            (kernels.dot_floats)(panel, x, matrix.cols, sums);
        }
    }
}

/// Takes neighbours apart. The sums are those of one panel after the other, `n_rows` rows each, and
/// so are gates and ups.
fn unzip(
    sums: &[[f32; LANES]],
    n_rows: usize,
    (gates, ups): (&mut Vec<[f32; LANES]>, &mut Vec<[f32; LANES]>),
) {
    let n = sums.len().div_ceil(2 * n_rows) * n_rows;
    gates.resize(n, [0.0; LANES]);
    ups.resize(n, [0.0; LANES]);
    for (i, sums) in sums.iter().enumerate() {
        let (panel, row) = (i / n_rows, i % n_rows);
        let (place, first) = (panel / 2 * n_rows + row, panel % 2 * LANES / 2);
        for (lane, [gate, up]) in (first..).zip(sums.as_chunks().0) {
            (gates[place][lane], ups[place][lane]) = (*gate, *up);
        }
    }
}

/// `outputs` in pieces of at most a panel.
fn panels(outputs: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = outputs.end;
    outputs.clone().step_by(LANES).map(move |first| first..(first + LANES).min(end))
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
