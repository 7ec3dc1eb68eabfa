//! No instruction set at all: the definition of every kernel, and what runs where nothing better
//! can.

use super::{Isa, Kernels, generic, ops_scalar};
use crate::pack::{fill_codes, fill_floats};

pub(super) static KERNELS: Kernels = Kernels {
    isa: Isa::Scalar,
    axpy: |a, x, y| generic::axpy(a, x, y),
    narrow,
    round: |x, out| generic::round(x, out),
    unpack_codes: |matrix, piece, next, panel| {
        fill_codes(matrix, piece, next, panel, generic::interleave_codes);
    },
    unpack_floats: |matrix, piece, next, panel| {
        fill_floats(matrix, piece, next, panel, generic::interleave_floats);
    },
    dot_codes: |panel, x, stride, acc| generic::dot_codes(panel, x, stride, acc),
    dot_floats: |panel, x, stride, acc| generic::dot_floats(panel, x, stride, acc),
    ops: &ops_scalar::OPS,
};

pub(super) fn narrow(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    for (out, x) in out.iter_mut().zip(x) {
        *out = half::f16::from_f32(*x).to_bits();
    }
}
