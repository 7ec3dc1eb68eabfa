//! Activations as the kernels take them: normed, and rounded to 8 bits.

use std::cell::RefCell;

use backend::ops::Input;

use super::plan::Needs;
use crate::rounded::{GROUP, Rounded};
use crate::{Buf, Cpu};

/// Numbers below which a region of the pool costs more than it saves.
const ALONE: usize = 8192;

/// Room for activations. Grows to what the largest call needs, then stays.
#[derive(Default)]
pub(super) struct Scratch {
    rounded: Vec<Rounded>,
    normed: Buf,
}

/// The activations of a call.
pub(super) struct Activated<'a> {
    /// Empty if nothing needs them.
    pub(super) floats: &'a [f32],
    /// As above.
    pub(super) rounded: &'a [Rounded],
    pub(super) cols: usize,
}

thread_local! {
    /// A row on its way through the norm.
    static ROW: RefCell<Vec<f32>> = RefCell::default();
}

/// What an input is made of.
pub(super) fn rows_of<'a>(input: &Input<'a, Cpu>) -> &'a Buf {
    match input {
        Input::Rows(x) | Input::Normed { x, .. } => x,
    }
}

impl Scratch {
    /// Makes what the kernels need of `input`.
    pub(super) fn take<'a>(
        &'a mut self,
        cpu: &Cpu,
        input: Input<'a, Cpu>,
        needs: Needs,
    ) -> Activated<'a> {
        let Scratch { rounded, normed } = self;
        let x = match input {
            Input::Rows(x) => x,
            Input::Normed { x, norm } if needs.floats => {
                normed.grow(x.values().len());
                let out = normed.reshape(x.rows(), x.cols());
                cpu.each_row(out, x.cols(), |row, out| {
                    out.copy_from_slice(x.row(row));
                    cpu.norm_row(norm, out);
                });
                normed
            }
            Input::Normed { x, norm } => {
                round(cpu, x, rounded, |row, out| {
                    ROW.with_borrow_mut(|values| {
                        values.clear();
                        values.extend_from_slice(x.row(row));
                        cpu.norm_row(norm, values);
                        (cpu.kernels.round)(values, out);
                    });
                });
                return Activated { floats: &[], rounded, cols: x.cols() };
            }
        };
        if needs.codes {
            round(cpu, x, rounded, |row, out| (cpu.kernels.round)(x.row(row), out));
        }
        Activated { floats: x.values(), rounded, cols: x.cols() }
    }
}

/// Calls `f(row, groups)` for every row of `x`.
fn round(cpu: &Cpu, x: &Buf, rounded: &mut Vec<Rounded>, f: impl Fn(usize, &mut [Rounded]) + Sync) {
    let n_groups = x.cols() / GROUP;
    rounded.resize(x.rows() * n_groups, Rounded::default());
    if x.values().len() >= ALONE {
        return cpu.pool.rows(rounded, n_groups, f);
    }
    rounded.chunks_exact_mut(n_groups.max(1)).enumerate().for_each(|(row, out)| f(row, out));
}
