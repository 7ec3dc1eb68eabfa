//! Ops on rows that know nothing of each other. Linear layers are in `linear.rs`; here is
//! everything cheap, which is shared out to the threads only where that pays.

use backend::ops::{DenseOps, Input, Output, RowNorm};
use backend::{Activation, NormCenter};

use crate::layer_inputs::with_row;
use crate::linear;
use crate::streams;
use crate::{Buf, Cpu, Staged, Vector, Weight, row_f32};

/// Numbers below which a region of the pool costs more than it saves.
const ALONE: usize = 1 << 14;
/// Numbers of one task where any cut will do.
const CHUNK: usize = 1 << 13;

impl DenseOps for Cpu {
    fn embed(&self, table: &Weight, batch: &Staged, scale: f32, out: &mut Buf) {
        let cols = table.cols();
        let out = out.reshape(batch.n_rows(), cols);
        self.each_row(out, cols, |r, out| {
            row_f32(table, batch.tokens[r] as usize, out);
            out.iter_mut().for_each(|x| *x *= scale);
        });
    }

    fn add_positions(&self, table: &Weight, batch: &Staged, x: &mut Buf) {
        let cols = table.cols();
        assert_eq!(x.cols(), cols, "a position is as long as a row");
        for span in &batch.spans {
            let rows = &mut x.values_mut()[span.rows.start * cols..span.rows.end * cols];
            self.each_row(rows, cols, |i, x| {
                with_row(cols, |position| {
                    row_f32(table, span.start + i, position);
                    x.iter_mut().zip(&*position).for_each(|(x, y)| *x += y);
                });
            });
        }
    }

    fn linear(&self, x: Input<'_, Cpu>, w: &Weight, bias: Option<&Vector>, out: Output<'_, Cpu>) {
        linear::linear(self, x, w, bias, out);
    }

    fn norm(&self, x: &Buf, norm: RowNorm<'_, Vector>, out: &mut Buf) {
        let cols = x.cols();
        let out = out.reshape(x.rows(), cols);
        self.each_row(out, cols, |r, out| {
            out.copy_from_slice(x.row(r));
            self.norm_row(norm, out);
        });
    }

    fn add(&self, x: &mut Buf, y: &Buf, scale: f32) {
        assert_eq!((x.rows(), x.cols()), (y.rows(), y.cols()), "only equal shapes are added");
        self.each_chunk(x.values_mut(), |first, x| {
            x.iter_mut().zip(&y.values()[first..]).for_each(|(x, y)| *x += scale * y);
        });
    }

    fn scale(&self, x: &mut Buf, by: f32) {
        self.each_chunk(x.values_mut(), |_, x| x.iter_mut().for_each(|x| *x *= by));
    }

    fn glu(&self, x: &Buf, act: Activation, out: &mut Buf) {
        let cols = x.cols() / 2;
        let out = out.reshape(x.rows(), cols);
        self.each_row(out, cols, |r, out| {
            let (gate, up) = x.row(r).split_at(cols);
            (self.kernels.ops.glu)(act, gate, up, out);
        });
    }

    fn gather(&self, x: &Buf, batch: &Staged, out: &mut Buf) {
        let out = out.reshape(batch.want.len(), x.cols());
        for (out, from) in out.chunks_exact_mut(x.cols().max(1)).zip(&batch.want) {
            out.copy_from_slice(x.row(*from as usize));
        }
    }

    fn soft_cap(&self, x: &mut Buf, cap: f32) {
        self.each_chunk(x.values_mut(), |_, x| (self.kernels.ops.soft_cap)(x, cap));
    }

    fn join(&self, left: &Buf, right: &Buf, out: &mut Buf) {
        assert_eq!(left.rows(), right.rows(), "rows are joined one by one");
        let cols = left.cols() + right.cols();
        let out = out.reshape(left.rows(), cols);
        self.each_row(out, cols, |r, out| {
            let (to_left, to_right) = out.split_at_mut(left.cols());
            to_left.copy_from_slice(left.row(r));
            to_right.copy_from_slice(right.row(r));
        });
    }

    fn gate(&self, x: &mut Buf, gate: &Buf) {
        let shapes = ((x.rows(), x.cols()), (gate.rows(), gate.cols()));
        assert_eq!(shapes.0, shapes.1, "one gate per number");
        self.each_chunk(x.values_mut(), |first, x| {
            (self.kernels.ops.gate)(x, &gate.values()[first..first + x.len()]);
        });
    }

    fn keep_largest(&self, x: &mut Buf, cols: usize, deviations: f32) {
        let all = x.cols();
        self.each_row(x.values_mut(), all, |_, row| {
            streams::keep_largest(&mut row[..cols], deviations);
        });
    }
}

impl Cpu {
    /// The norm of one row.
    pub(crate) fn norm_row(&self, norm: RowNorm<'_, Vector>, row: &mut [f32]) {
        assert_eq!(norm.gain.0.len(), row.len(), "a norm has one gain per column");
        self.norm_columns(norm, 0, row);
    }

    /// The norm of some columns with gains from `first` on.
    pub(crate) fn norm_columns(&self, norm: RowNorm<'_, Vector>, first: usize, x: &mut [f32]) {
        let (ops, columns) = (self.kernels.ops, first..first + x.len());
        if norm.center == NormCenter::Mean {
            (ops.center)(x);
        }
        (ops.normalize)(x, &norm.gain.0[columns.clone()], norm.kind, norm.eps);
        if let Some(bias) = norm.bias {
            x.iter_mut().zip(&bias.0[columns]).for_each(|(x, bias)| *x += bias);
        }
    }

    /// Calls `f(row, values)` for every row of `data`.
    pub(crate) fn each_row<T: Send>(
        &self,
        data: &mut [T],
        cols: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if data.len() >= ALONE {
            return self.pool.rows(data, cols, f);
        }
        data.chunks_exact_mut(cols.max(1)).enumerate().for_each(|(row, values)| f(row, values));
    }

    /// Calls `f(first, values)` for pieces of `data` that start at index `first`, wherever they are
    /// cut: for functions of one number alone.
    fn each_chunk(&self, data: &mut [f32], f: impl Fn(usize, &mut [f32]) + Sync) {
        if data.len() >= ALONE {
            return self.pool.chunks(data, CHUNK, |i, values| f(i * CHUNK, values));
        }
        f(0, data);
    }
}
