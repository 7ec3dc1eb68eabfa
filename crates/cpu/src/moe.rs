//! Mixtures of experts: rows are sorted by expert, so that each linear layer of all chosen experts
//! is one parallel region, and an expert that nobody chose is not read.
//!
//! Every row then adds up its own experts in ascending order, whoever else chose them. The linear
//! layers themselves are in `linear.rs`.

mod route;

use std::cell::RefCell;

use backend::ops::{ExpertWeights, MoeOps};
use backend::{ExpertForm, Experts, GateUpRows};

use crate::linear::{self, Finish, Meeting};
use crate::{Buf, Cpu, math};

use route::Router;

/// What the thread that calls an op works with. Grows to what the largest layer needs, then stays.
#[derive(Default)]
struct Scratch {
    router: Router,
    /// Which row chose which expert, sorted by expert, then by row. A choice's index is its slot.
    choices: Vec<Choice>,
    /// Slots of each row, `top_k` apiece, by ascending expert.
    slots: Vec<usize>,
    /// The next of each row that is still to be filled.
    next: Vec<usize>,
    /// The slots of each chosen expert, and its rows of a weight.
    meetings: Vec<Meeting>,
    /// One row per slot: what goes in, inner columns, what comes out.
    x: Buf,
    inner: Buf,
    y: Buf,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    expert: usize,
    row: usize,
    weight: f32,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl MoeOps for Cpu {
    fn experts(
        &self,
        x: &Buf,
        router: &Buf,
        spec: &Experts,
        weights: ExpertWeights<'_, Cpu>,
        out: &mut Buf,
    ) {
        assert_eq!((router.rows(), router.cols()), (x.rows(), spec.n), "a logit per expert");
        let ExpertWeights { gate_up, gate_up_bias, down, down_bias, .. } = weights;
        let cols = down.rows() / spec.n;
        let out = out.reshape(x.rows(), cols);
        if x.rows() == 0 {
            return;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.route(self, router, spec, weights);
            scratch.sort(x, spec.top_k);
            scratch.meet(spec.form.rows_per_column() * spec.inner);
            let room = scratch.choices.len();
            scratch.inner.grow(room * spec.inner);
            let finish = match spec.form {
                ExpertForm::Gated { glu, rows: GateUpRows::Halves } => Finish::Gate(glu),
                ExpertForm::Gated { glu, rows: GateUpRows::Interleaved } => Finish::GatePairs(glu),
                ExpertForm::Plain(activation) => Finish::Activate(activation),
            };
            let inner = (finish, &mut scratch.inner);
            let gate_up = (gate_up, gate_up_bias);
            linear::grouped(self, &scratch.x, gate_up, &scratch.meetings, inner);
            scratch.meet(cols);
            scratch.y.grow(room * cols);
            let y = (Finish::Set, &mut scratch.y);
            linear::grouped(self, &scratch.inner, (down, down_bias), &scratch.meetings, y);

            let Scratch { choices, slots, y, .. } = &*scratch;
            self.each_row(out, cols, |r, out| {
                out.fill(0.0);
                for slot in &slots[r * spec.top_k..][..spec.top_k] {
                    (self.kernels.axpy)(choices[*slot].weight, y.row(*slot), out);
                }
            });
        });
    }

    fn add_gated(&self, x: &mut Buf, gate: &Buf, y: &Buf) {
        let cols = x.cols();
        assert_eq!((x.rows(), cols), (y.rows(), y.cols()), "only equal shapes are added");
        assert_eq!((gate.rows(), gate.cols()), (x.rows(), 1), "one gate per row");
        self.each_row(x.values_mut(), cols, |r, x| {
            (self.kernels.axpy)(math::sigmoid(gate.row(r)[0]), y.row(r), x);
        });
    }
}

impl Scratch {
    /// Chooses the experts of every row.
    fn route(&mut self, cpu: &Cpu, router: &Buf, spec: &Experts, weights: ExpertWeights<'_, Cpu>) {
        self.choices.clear();
        let correction = weights.correction.map(|correction| &correction.0[..]);
        let scale = |expert: usize| weights.scales.map_or(1.0, |scales| scales.0[expert]);
        for row in 0..router.rows() {
            let choices = &mut self.choices;
            let found = |expert, weight: f32| {
                choices.push(Choice { expert, row, weight: weight * scale(expert) });
            };
            self.router.route(cpu.kernels.ops, router.row(row), (spec, correction), found);
        }
    }

    /// Gives every choice its slot and the slot its row of `x`.
    fn sort(&mut self, x: &Buf, top_k: usize) {
        self.choices.sort_unstable_by_key(|choice| (choice.expert, choice.row));
        self.slots.resize(self.choices.len(), 0);
        self.next.clear();
        self.next.extend((0..x.rows()).map(|row| row * top_k));
        self.x.grow(self.choices.len() * x.cols());
        let rows = self.x.reshape(self.choices.len(), x.cols());
        let rows = rows.chunks_exact_mut(x.cols().max(1));
        for ((slot, choice), out) in self.choices.iter().enumerate().zip(rows) {
            let next = &mut self.next[choice.row];
            self.slots[*next] = slot;
            *next += 1;
            out.copy_from_slice(x.row(choice.row));
        }
    }

    /// Brings the slots of each expert together with its rows of a weight that has `rows` per
    /// expert.
    fn meet(&mut self, rows: usize) {
        self.meetings.clear();
        let mut first = 0;
        for chosen in self.choices.chunk_by(|a, b| a.expert == b.expert) {
            let expert = chosen[0].expert;
            let outputs = expert * rows..(expert + 1) * rows;
            self.meetings.push(Meeting { rows: first..first + chosen.len(), outputs });
            first += chosen.len();
        }
    }
}
