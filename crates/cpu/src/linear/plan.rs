//! Cutting a linear layer into tasks. No arithmetic: how it is cut shows in no result.

use std::ops::Range;

use crate::pack::LANES;
use crate::{Block, Cpu, Weight};

/// Rows of activations that meet the same rows of a weight.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// Rows of the activations and of the result.
    pub(crate) rows: Range<usize>,
    /// Rows of the weight, which become the columns of the result. Every meeting of one call has
    /// equally many.
    pub(crate) outputs: Range<usize>,
}

/// How rows of a weight become columns of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairing {
    /// Each is one.
    None,
    /// One of the first half goes with one of the second.
    Halves,
    /// Two that follow each other go together.
    Neighbours,
}

/// The tasks of a call, and where each of them leaves its results.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) tasks: Vec<Task>,
    pub(super) blocks: Vec<Block>,
}

/// Some consecutive outputs.
pub(super) struct Task {
    pub(super) first: Slab,
    /// Rows that go with the first ones, where the outputs are made of rows that lie apart.
    pub(super) second: Option<Slab>,
}

/// Some consecutive rows of one part of a weight.
pub(super) struct Slab {
    /// Index into the weight's parts.
    pub(super) part: usize,
    /// Rows of that part.
    pub(super) rows: Range<usize>,
}

/// What the kernels of a call read of the activations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) codes: bool,
    pub(super) floats: bool,
}

impl Pairing {
    /// Rows that make one column.
    pub(super) fn rows_per_output(self) -> usize {
        match self {
            Pairing::None => 1,
            Pairing::Halves | Pairing::Neighbours => 2,
        }
    }
}

impl Plan {
    /// Cuts the work into about `n_tasks` tasks of whole panels.
    pub(super) fn make(
        &mut self,
        w: &Weight,
        groups: &[Meeting],
        pairing: Pairing,
        n_tasks: usize,
    ) {
        self.tasks.clear();
        self.blocks.clear();
        let n_sums = groups.first().map_or(0, |m| m.outputs.len());
        let n_outputs = n_sums / pairing.rows_per_output();
        let n_panels = (groups.len() * n_outputs).div_ceil(LANES);
        let step = n_panels.div_ceil(n_tasks).max(1) * LANES;
        for group in groups.iter().filter(|m| !m.rows.is_empty()) {
            let mut done = 0;
            while done < n_outputs {
                let outputs = done..n_outputs.min(done + step);
                let (task, n) = task(w, &group.outputs, pairing, outputs);
                self.blocks.push(Block { rows: group.rows.clone(), cols: done..done + n });
                self.tasks.push(task);
                done += n;
            }
        }
    }

    /// What the tasks read of the activations.
    pub(super) fn needs(&self, cpu: &Cpu, w: &Weight) -> Needs {
        let slabs = || self.tasks.iter().flat_map(|task| [Some(&task.first), task.second.as_ref()]);
        let is_coded = |slab: &Slab| cpu.coding(w.part(slab.part)).is_some();
        Needs { codes: slabs().flatten().any(is_coded), floats: !slabs().flatten().all(is_coded) }
    }
}

/// A task for some outputs that `rows` of the weight make, and for how many of them: no more than the
/// parts of the weight allow at once.
fn task(w: &Weight, rows: &Range<usize>, pairing: Pairing, outputs: Range<usize>) -> (Task, usize) {
    let (start, most) = (rows.start, outputs.len());
    match pairing {
        Pairing::None => {
            let first = slab(w, start + outputs.start, most);
            let n = first.rows.len();
            (Task { first, second: None }, n)
        }
        Pairing::Halves => {
            let mut first = slab(w, start + outputs.start, most);
            let second = slab(w, start + rows.len() / 2 + outputs.start, first.rows.len());
            let n = second.rows.len();
            first.rows.end = first.rows.start + n;
            (Task { first, second: Some(second) }, n)
        }
        Pairing::Neighbours => {
            let first = slab(w, start + 2 * outputs.start, 2 * most);
            let n = first.rows.len() / 2;
            assert_eq!(first.rows.len(), 2 * n, "no part of a weight ends between neighbours");
            (Task { first, second: None }, n)
        }
    }
}

/// Rows of a weight from `row` on, at most `most`, as far as its part goes.
fn slab(w: &Weight, row: usize, most: usize) -> Slab {
    let (part, rows) = w.parts(row..row + most).next().expect("the weight has such a row");
    Slab { part, rows }
}
