//! Cutting a linear layer into tasks. No arithmetic: how it is cut shows in no result.

use std::ops::Range;

use crate::pack::LANES;
use crate::{Block, Cpu, Weight};

/// Rows of activations that meet the same rows of a weight.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// Rows of the activations and of the result.
    pub(crate) rows: Range<usize>,
    /// Rows of the weight, which become the columns of the result: as they are, or, if there are
    /// twice as many, the first half gated by the second. Every meeting of one call has equally many.
    pub(crate) outputs: Range<usize>,
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
    /// Rows that go with the first ones, if the outputs are made of pairs of rows.
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

impl Plan {
    /// Cuts the work into about `n_tasks` tasks of whole panels.
    pub(super) fn make(
        &mut self,
        w: &Weight,
        groups: &[Meeting],
        n_outputs: usize,
        n_tasks: usize,
    ) {
        self.tasks.clear();
        self.blocks.clear();
        let n_panels = (groups.len() * n_outputs).div_ceil(LANES);
        let step = n_panels.div_ceil(n_tasks).max(1) * LANES;
        for group in groups.iter().filter(|m| !m.rows.is_empty()) {
            let start = group.outputs.start;
            let paired = group.outputs.len() > n_outputs;
            let mut done = 0;
            while done < n_outputs {
                let mut first = slab(w, start + done, step.min(n_outputs - done));
                let mut second = None;
                if paired {
                    let slab = slab(w, start + n_outputs + done, first.rows.len());
                    first.rows.end = first.rows.start + slab.rows.len();
                    second = Some(slab);
                }
                let cols = done..done + first.rows.len();
                done = cols.end;
                self.blocks.push(Block { rows: group.rows.clone(), cols });
                self.tasks.push(Task { first, second });
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

/// Rows of a weight from `row` on, at most `most`, as far as its part goes.
fn slab(w: &Weight, row: usize, most: usize) -> Slab {
    let (part, rows) = w.parts(row..row + most).next().expect("the weight has such a row");
    Slab { part, rows }
}
