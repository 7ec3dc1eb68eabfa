//! No instruction set at all: the definition of every kernel, and what runs where nothing better
//! can.

use super::{Available, Isa, Kernels, generic, ops_scalar};
use crate::pack::{CodePanel, Format, Source, Visitor, fill_codes, fill_floats, with_format};

pub(super) static KERNELS: Kernels = Kernels {
    isa: Isa::Scalar,
    axpy: |a, x, y| generic::axpy(a, x, y),
    narrow,
    round: |x, out| generic::round(x, out),
    unpack_codes: |source, panel| with_format(source.matrix.packing, Unpack(source, panel)),
    unpack_floats: |source, panel| {
        fill_floats(source, panel, generic::interleave_floats);
    },
    few_rows: None,
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

/// Unpacks with the format that a matrix has.
struct Unpack<'a>(Source<'a>, &'a mut CodePanel);

impl Visitor for Unpack<'_> {
    fn visit<F: Format>(self, format: F) {
        // SAFETY: plain words need nothing.
        let isa = unsafe { Available::<u32>::promise() };
        fill_codes(isa, format, self.0, self.1);
    }
}
