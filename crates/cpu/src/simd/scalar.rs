//! No instruction set at all: the definition of every kernel, and what runs where nothing better
//! can.

use super::{Isa, Kernels, generic};

pub(super) static KERNELS: Kernels = Kernels {
    isa: Isa::Scalar,
    dot: |a, b| generic::dot(a, b),
    axpy: |a, x, y| generic::axpy(a, x, y),
    widen: |x, out| generic::widen(x, out),
    narrow,
};

pub(super) fn narrow(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    for (out, x) in out.iter_mut().zip(x) {
        *out = half::f16::from_f32(*x).to_bits();
    }
}
