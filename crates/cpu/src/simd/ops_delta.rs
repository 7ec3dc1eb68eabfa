//! Kernels of layers with a state: bodies that the compiler turns into vector code of every
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
    /// What the sums begin with, if not with zero.
    pub(crate) bias: Option<&'a [f32]>,
    /// What becomes of the sums.
    pub(crate) end: ConvolutionEnd,
}

/// What becomes of the sums of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvolutionEnd {
    Plain,
    Silu,
}

/// What one row does to a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaStep<'a> {
    /// What the state is read by, one number per row of it.
    pub(crate) q: &'a [f32],
    /// What it is written by, likewise.
    pub(crate) k: &'a [f32],
    /// Values of the columns at hand.
    pub(crate) v: &'a StateRow,
    /// What is left of the state.
    pub(crate) decay: Decay<'a>,
    /// What is written.
    pub(crate) write: Write,
}

/// What is left of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decay<'a> {
    /// The same of all of it.
    All(f32),
    /// As much of each row.
    Rows(&'a [f32]),
}

/// What a row writes into a state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    /// Its values.
    Values,
    /// So much of the difference between its values and what the state has in their place.
    Difference(f32),
}

#[inline(always)]
pub(super) fn convolve(convolution: Convolution<'_>, out: &mut [f32]) {
    let Convolution { rows, stride, taps, tap_stride, n_taps, bias, end } = convolution;
    match bias {
        Some(bias) => out.copy_from_slice(&bias[..out.len()]),
        None => out.fill(0.0),
    }
    for t in 0..n_taps {
        let (row, taps) = (&rows[t * stride..], &taps[t * tap_stride..]);
        for ((out, x), tap) in out.iter_mut().zip(row).zip(taps) {
            *out = x.mul_add(*tap, *out);
        }
    }
    if end == ConvolutionEnd::Silu {
        out.iter_mut().for_each(|x| *x = math::silu(*x));
    }
}

#[inline(always)]
pub(super) fn decays(x: &mut [f32], bias: &[f32], rate: f32) {
    for (x, bias) in x.iter_mut().zip(bias) {
        *x = math::exp(-rate * math::softplus(*x + bias));
    }
}

#[inline(always)]
pub(super) fn delta(state: &mut [StateRow], step: DeltaStep<'_>, out: &mut StateRow) {
    let DeltaStep { q, k, v, decay, write } = step;
    let n = state.len();
    assert!(q.len() == n && k.len() == n, "one number per row of the state");
    let change = match (write, decay) {
        (Write::Values, _) => *v,
        (Write::Difference(beta), Decay::All(decay)) => {
            let known = weighted(state, |i| k[i]);
            zip(v, &known, |v, known| (-decay).mul_add(known, v) * beta)
        }
        (Write::Difference(beta), Decay::Rows(decays)) => {
            assert_eq!(decays.len(), n, "one decay per row of the state");
            let known = weighted(state, |i| k[i] * decays[i]);
            zip(v, &known, |v, known| (v - known) * beta)
        }
    };
    match decay {
        Decay::All(decay) => advance(state, (q, k), |_| decay, &change, out),
        Decay::Rows(decays) => {
            assert_eq!(decays.len(), n, "one decay per row of the state");
            advance(state, (q, k), |i| decays[i], &change, out);
        }
    }
}

#[inline(always)]
fn zip(a: &StateRow, b: &StateRow, f: impl Fn(f32, f32) -> f32) -> StateRow {
    let mut out = [0.0; STATE_COLS];
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = f(*a, *b);
    }
    out
}

/// The sum of all rows, each so many times. Two chains, so that one need not wait for the other.
#[inline(always)]
fn weighted(state: &[StateRow], by: impl Fn(usize) -> f32) -> StateRow {
    let mut sums = [[0.0f32; STATE_COLS]; 2];
    let (pairs, rest) = state.as_chunks::<2>();
    for (i, rows) in pairs.iter().enumerate() {
        add_weighted(&mut sums[0], &rows[0], by(2 * i));
        add_weighted(&mut sums[1], &rows[1], by(2 * i + 1));
    }
    for row in rest {
        add_weighted(&mut sums[0], row, by(state.len() - 1));
    }
    zip(&sums[0], &sums[1], |a, b| a + b)
}

#[inline(always)]
fn add_weighted(sum: &mut StateRow, row: &StateRow, by: f32) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum = by.mul_add(*x, *sum);
    }
}

/// Lets the state decay, writes `change` by `k`, and reads by `q`.
#[inline(always)]
fn advance(
    state: &mut [StateRow],
    (q, k): (&[f32], &[f32]),
    decay: impl Fn(usize) -> f32,
    change: &StateRow,
    out: &mut StateRow,
) {
    let mut read = [[0.0f32; STATE_COLS]; 2];
    let last = state.len().wrapping_sub(1);
    let (pairs, rest) = state.as_chunks_mut::<2>();
    for (i, rows) in pairs.iter_mut().enumerate() {
        let (a, b) = (2 * i, 2 * i + 1);
        write(&mut rows[0], &mut read[0], change, [decay(a), k[a], q[a]]);
        write(&mut rows[1], &mut read[1], change, [decay(b), k[b], q[b]]);
    }
    for row in rest {
        write(row, &mut read[0], change, [decay(last), k[last], q[last]]);
    }
    *out = zip(&read[0], &read[1], |a, b| a + b);
}

#[inline(always)]
fn write(row: &mut StateRow, read: &mut StateRow, change: &StateRow, [decay, k, q]: [f32; 3]) {
    for ((x, read), change) in row.iter_mut().zip(read).zip(change) {
        let fresh = k.mul_add(*change, decay * *x);
        *x = fresh;
        *read = q.mul_add(fresh, *read);
    }
}
