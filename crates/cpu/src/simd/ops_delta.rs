//! Kernels of the gated delta rule: bodies that the compiler turns into vector code of every
//! instruction set. What they add up, and in which order, stands at [`super::OpKernels`].

use crate::math;

/// Columns of a state that are stepped together: few enough that their sums stay in registers, and
/// that the columns of a head stay in the first cache from row to row.
pub(crate) const STATE_COLS: usize = 32;

/// One row of such columns.
pub(crate) type StateRow = [f32; STATE_COLS];

/// Rows and taps of a convolution, both oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution<'a> {
    /// The rows start at multiples of `stride`.
    pub(crate) rows: &'a [f32],
    pub(crate) stride: usize,
    /// The taps of a row start at multiples of `tap_stride`.
    pub(crate) taps: &'a [f32],
    pub(crate) tap_stride: usize,
    /// How many rows there are.
    pub(crate) n_taps: usize,
}

/// What one row does to a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaStep<'a> {
    /// Query, one number per row of the state.
    pub(crate) q: &'a [f32],
    /// Key, likewise.
    pub(crate) k: &'a [f32],
    /// Values of the columns at hand.
    pub(crate) v: &'a StateRow,
    /// What is left of the state.
    pub(crate) decay: f32,
    /// How much of the difference to `v` is written.
    pub(crate) beta: f32,
}

#[inline(always)]
pub(super) fn convolve(convolution: Convolution<'_>, out: &mut [f32]) {
    let Convolution { rows, stride, taps, tap_stride, n_taps } = convolution;
    out.fill(0.0);
    for t in 0..n_taps {
        let (row, taps) = (&rows[t * stride..], &taps[t * tap_stride..]);
        for ((out, x), tap) in out.iter_mut().zip(row).zip(taps) {
            *out = x.mul_add(*tap, *out);
        }
    }
    out.iter_mut().for_each(|x| *x = math::silu(*x));
}

#[inline(always)]
pub(super) fn delta(state: &mut [StateRow], step: DeltaStep<'_>, out: &mut StateRow) {
    let DeltaStep { q, k, v, decay, beta } = step;
    assert!(q.len() == state.len() && k.len() == state.len(), "one number per row of the state");
    let mut known = [[0.0f32; STATE_COLS]; 2];
    let (pairs, rest) = state.as_chunks::<2>();
    let (k_pairs, k_rest) = k.as_chunks::<2>();
    for (rows, k) in pairs.iter().zip(k_pairs) {
        add_weighted(&mut known[0], &rows[0], k[0]);
        add_weighted(&mut known[1], &rows[1], k[1]);
    }
    for (row, k) in rest.iter().zip(k_rest) {
        add_weighted(&mut known[0], row, *k);
    }
    let mut change = [0.0f32; STATE_COLS];
    for (j, change) in change.iter_mut().enumerate() {
        *change = (-decay).mul_add(known[0][j] + known[1][j], v[j]) * beta;
    }
    let mut read = [[0.0f32; STATE_COLS]; 2];
    let (pairs, rest) = state.as_chunks_mut::<2>();
    let (q_pairs, q_rest) = q.as_chunks::<2>();
    for (rows, (k, q)) in pairs.iter_mut().zip(k_pairs.iter().zip(q_pairs)) {
        write(&mut rows[0], &mut read[0], &change, [decay, k[0], q[0]]);
        write(&mut rows[1], &mut read[1], &change, [decay, k[1], q[1]]);
    }
    for (row, (k, q)) in rest.iter_mut().zip(k_rest.iter().zip(q_rest)) {
        write(row, &mut read[0], &change, [decay, *k, *q]);
    }
    for (out, (a, b)) in out.iter_mut().zip(read[0].iter().zip(&read[1])) {
        *out = a + b;
    }
}

#[inline(always)]
fn add_weighted(sum: &mut StateRow, row: &StateRow, by: f32) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum = by.mul_add(*x, *sum);
    }
}

#[inline(always)]
fn write(row: &mut StateRow, read: &mut StateRow, change: &StateRow, [decay, k, q]: [f32; 3]) {
    for ((x, read), change) in row.iter_mut().zip(read).zip(change) {
        let fresh = k.mul_add(*change, decay * *x);
        *x = fresh;
        *read = q.mul_add(fresh, *read);
    }
}
