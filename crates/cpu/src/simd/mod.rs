//! Inner loops, one file per instruction set.
//!
//! [`Kernels`] is a table of plain functions, chosen once when the device starts. Callers see safe
//! functions over slices and never an instruction set. [`scalar`] is always there; the others give
//! **the same bits**, which the tests hold them to. What a compiler vectorises well by itself is
//! written once in [`generic`] and compiled for each instruction set; only the rest has a hand-made
//! version.
//!
//! The order of every sum is therefore part of a kernel's definition, and stands in its
//! documentation.

#![allow(unsafe_code)]

use crate::pack::{CodePanel, FloatPanel, LANES, Source};
use crate::rounded::Rounded;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod generic;
#[cfg(target_arch = "aarch64")]
mod neon;
mod ops;
#[cfg(target_arch = "x86_64")]
mod ops_avx2;
#[cfg(target_arch = "x86_64")]
mod ops_avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod ops_by_row;
mod ops_delta;
mod ops_latent;
#[cfg(target_arch = "aarch64")]
mod ops_neon;
mod ops_scalar;
#[cfg(test)]
mod ops_tests;
mod ops_whole;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod ops_wide;
mod peak_int8;
mod scalar;
mod stored;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use ops::{BlockScores, OpKernels, Running, VALUE_PAD};
pub(crate) use ops_delta::{
    Convolution, ConvolutionEnd, Decay, DeltaStep, STATE_COLS, StateRow, Write,
};
pub(crate) use ops_whole::Queries;
pub use peak_int8::multiply_adds_int8;
pub(crate) use stored::{
    Keys, Values, keys_head, keys_len, paired, value_cell, values_head, values_len,
};
pub(crate) use words::{Available, CACHE_LINE, Place, Rows, Side, Words};

/// An instruction set with kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// What every machine of the architecture has.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and VNNI on top.
    Avx512,
    /// AArch64.
    Neon,
    /// AArch64 with signed dot products on top (FEAT_DotProd).
    NeonDotprod,
    /// AArch64 with dot products of unsigned and signed bytes on top of that (FEAT_I8MM).
    NeonI8mm,
}

/// A way to multiply a few rows of activations with a piece of a weight while it is unpacked.
#[derive(Clone, Copy)]
pub(crate) struct FewRows {
    /// Rows it takes, at most.
    pub(crate) most: usize,
    /// What `unpack_codes` and then `dot_codes` do, without writing the codes down. Of the panel it
    /// uses the coding, the scales and the minimums.
    pub(crate) multiply: MultiplyRows,
    /// The same for exactly `most` rows, and the panel is filled in the end as `unpack_codes` would: for
    /// the first of many rows, where that hides the unpacking.
    pub(crate) unpack: Option<MultiplyRows>,
}

/// See [`FewRows::multiply`]. Row `r` of the activations starts at group `r` times the number.
type MultiplyRows = fn(Source<'_>, &[Rounded], usize, &mut CodePanel, &mut [[f32; LANES]]);

/// The inner loops of one instruction set.
pub(crate) struct Kernels {
    /// What they need.
    pub(crate) isa: Isa,
    /// `y[i] = fma(a, x[i], y[i])` over two slices of the same length.
    pub(crate) axpy: fn(f32, &[f32], &mut [f32]),
    /// Rounds f32 to the nearest f16, ties to even.
    pub(crate) narrow: fn(&[f32], &mut [u16]),
    /// Rounds a row, whose length is a multiple of 32, to 8 bits in groups.
    pub(crate) round: fn(&[f32], &mut [Rounded]),
    /// Unpacks a piece of a matrix that has codes, and asks for bytes of the rows below.
    pub(crate) unpack_codes: fn(Source<'_>, &mut CodePanel),
    /// Widens a piece of any matrix, and asks for bytes of the rows below.
    pub(crate) unpack_floats: fn(Source<'_>, &mut FloatPanel),
    /// Where it is faster to multiply while unpacking.
    pub(crate) few_rows: Option<FewRows>,
    /// Adds to every `acc[row]` the product of one row of activations with a panel. Row `r` starts
    /// at group `r * stride`.
    ///
    /// Groups of the coding come in order. Each adds, fused, its whole integer dot product times the
    /// (rounded) product of both scales, then, if the coding has minimums, fused, the minimum times
    /// the group's weighted sum.
    pub(crate) dot_codes: fn(&CodePanel, &[Rounded], usize, &mut [[f32; LANES]]),
    /// Adds to every `acc[row]` the product of one row of activations with a panel. Row `r` starts
    /// at number `r * stride`.
    ///
    /// Each run of 32 columns is summed from zero, in order, by fused multiply-adds, then added.
    pub(crate) dot_floats: fn(&FloatPanel, &[f32], usize, &mut [[f32; LANES]]),
    /// Everything but linear layers.
    pub(crate) ops: &'static OpKernels,
}

/// Asks for the line that byte `at` of `data` is in, to be brought into the L2 cache: what is asked
/// for comes a few thousand bytes later, and the L1 cache is full with what is worked on now. Nothing
/// depends on it but time.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: the instruction is part of every x86-64, and may be given any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(data.as_ptr().wrapping_byte_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, at);
}

/// Asks for the line that byte `at` of `data` is in, to be written soon, so that the L1 cache has it to
/// itself. Nothing depends on it but time.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(data: &mut [T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction changes nothing, may be given any address, and does nothing on a machine
    // that does not know it. The compiler would make a plain prefetch of the intrinsic.
    unsafe {
        let line = data.as_mut_ptr().wrapping_byte_add(at);
        std::arch::asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, at);
}

impl Isa {
    /// All of them, of any machine, slower ones of an architecture first.
    const ALL: [Isa; 6] =
        [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Neon, Isa::NeonDotprod, Isa::NeonI8mm];

    /// The one with a name.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Its name, as a person would write it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512-vnni",
            Isa::Neon => "neon",
            Isa::NeonDotprod => "neon-dotprod",
            Isa::NeonI8mm => "neon-i8mm",
        }
    }
}

impl Kernels {
    /// The best this machine can run.
    pub(crate) fn detect() -> &'static Kernels {
        Kernels::available().last().unwrap_or(&scalar::KERNELS)
    }

    /// Those of `isa`, if this machine can run them.
    pub(crate) fn of(isa: Isa) -> Option<&'static Kernels> {
        Kernels::available().find(|kernels| kernels.isa == isa)
    }

    /// Everything this machine can run, slowest first.
    pub(crate) fn available() -> impl Iterator<Item = &'static Kernels> {
        #[cfg(target_arch = "x86_64")]
        let faster = [avx2::kernels(), avx512::kernels()];
        #[cfg(target_arch = "aarch64")]
        let faster = neon::kernels();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let faster = [];
        std::iter::once(&scalar::KERNELS).chain(faster.into_iter().flatten())
    }
}
