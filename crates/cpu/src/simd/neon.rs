//! NEON, which every AArch64 machine has, and on top of it the two kinds of dot product instructions
//! that newer ones have. The three differ in the integer products alone.
//!
//! FEAT_I8MM's matrix products are not used. They want pairs of rows of activations, and eight
//! columns of a weight, side by side; in panels as they are, putting them so takes about as many
//! instructions as it saves.
//!
//! **Tested under emulation only; it has never run on such a machine, and nothing here was timed.**
//! With a cross compiler and qemu-user, on a machine that has everything, one that has signed dot
//! products, and one that has nothing but NEON:
//!
//! ```sh
//! export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
//! export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
//! t() { QEMU_CPU=$1 HEARTH_TEST_ISA=$2 cargo test -p hearth-cpu --lib --test conformance \
//!     --target aarch64-unknown-linux-gnu --release; }
//! t max neon-i8mm && t neoverse-n1 neon-dotprod && t cortex-a72 neon
//! ```

mod codes;
mod floats;
mod products;
mod registers;
mod row;

use std::arch::is_aarch64_feature_detected;
use std::marker::PhantomData;

use self::products::{Mixed, Signed, Widening};
pub(super) use self::registers::{all_f32, float, multiply, multiply_add, widen, widen_s8};
use self::registers::{load_f32, store_u16};
use self::row::Multiply;
use super::words::neon::Words4;
use super::{Available, FewRows, Isa, Kernels, generic, ops_neon, scalar};
use crate::pack::{
    CodePanel, Format, LANES, Source, Visitor, fill_codes, fill_floats, with_format,
};
use crate::rounded::Rounded;

const BASE: Kernels = Kernels {
    isa: Isa::Neon,
    axpy: |a, x, y| generic::axpy(a, x, y),
    narrow,
    round: |x, out| generic::round(x, out),
    unpack_codes: |source, panel| with_format(source.matrix.packing, Unpack(source, panel)),
    unpack_floats: |source, panel| {
        fill_floats(source, panel, generic::interleave_floats);
    },
    few_rows: None,
    dot_codes,
    dot_floats: floats::dot_floats,
    ops: &ops_neon::OPS,
};

static NEON: Kernels = BASE;

static DOTPROD: Kernels = Kernels {
    isa: Isa::NeonDotprod,
    few_rows: one_row(|source, x, _, panel, acc| {
        let job = (source, x, panel, &mut acc[0]);
        with_format(source.matrix.packing, Multiply::<Signed<128>>(job, PhantomData));
    }),
    // SAFETY: this table is reached through `kernels` alone, which found the instructions.
    dot_codes: |panel, x, stride, acc| unsafe { dot_codes_dotprod(panel, x, stride, acc) },
    ..BASE
};

static I8MM: Kernels = Kernels {
    isa: Isa::NeonI8mm,
    few_rows: one_row(|source, x, _, panel, acc| {
        let job = (source, x, panel, &mut acc[0]);
        with_format(source.matrix.packing, Multiply::<Mixed>(job, PhantomData));
    }),
    // SAFETY: as above.
    dot_codes: |panel, x, stride, acc| unsafe { dot_codes_i8mm(panel, x, stride, acc) },
    ..BASE
};

/// A way to multiply one row; more go through a panel.
const fn one_row(
    multiply: fn(Source<'_>, &[Rounded], usize, &mut CodePanel, &mut [[f32; LANES]]),
) -> Option<FewRows> {
    Some(FewRows { most: 1, multiply, unpack: None })
}

/// The tables of this machine, slowest first.
pub(super) fn kernels() -> [Option<&'static Kernels>; 3] {
    let dotprod = is_aarch64_feature_detected!("dotprod");
    let i8mm = dotprod && is_aarch64_feature_detected!("i8mm");
    [Some(&NEON), dotprod.then_some(&DOTPROD), i8mm.then_some(&I8MM)]
}

fn narrow(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    let ((x4, x_rest), (out4, out_rest)) = (x.as_chunks(), out.as_chunks_mut());
    for (x, out) in x4.iter().zip(out4) {
        store_u16(out, registers::narrow(load_f32(x)));
    }
    scalar::narrow(x_rest, out_rest);
}

fn dot_codes(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    // SAFETY: every AArch64 machine that runs a system has NEON; codes up to 127 fit signed bytes.
    unsafe {
        if panel.coding.max > 127 {
            codes::dot_codes::<Widening<128>>(panel, x, stride, acc);
        } else {
            codes::dot_codes::<Widening<0>>(panel, x, stride, acc);
        }
    }
}

#[target_feature(enable = "dotprod")]
fn dot_codes_dotprod(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    // SAFETY: this function is compiled for the instructions; codes up to 127 fit signed bytes.
    unsafe {
        if panel.coding.max > 127 {
            codes::dot_codes::<Signed<128>>(panel, x, stride, acc);
        } else {
            codes::dot_codes::<Signed<0>>(panel, x, stride, acc);
        }
    }
}

#[target_feature(enable = "dotprod,i8mm")]
fn dot_codes_i8mm(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    // SAFETY: this function is compiled for the instructions, which take all codes.
    unsafe { codes::dot_codes::<Mixed>(panel, x, stride, acc) }
}

/// Unpacks with the format that a matrix has.
struct Unpack<'a>(Source<'a>, &'a mut CodePanel);

impl Visitor for Unpack<'_> {
    #[inline]
    fn visit<F: Format>(self, format: F) {
        unpack(format, self.0, self.1);
    }
}

fn unpack(format: impl Format, source: Source<'_>, panel: &mut CodePanel) {
    // SAFETY: every AArch64 machine that runs a system has NEON; its targets take it for granted.
    let isa = unsafe { Available::<Words4>::promise() };
    fill_codes(isa, format, source, panel);
}
