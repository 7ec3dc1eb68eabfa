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

#[cfg(target_arch = "x86_64")]
mod avx2;
mod generic;
mod scalar;
#[cfg(test)]
mod tests;

/// An instruction set with kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// What every machine of the architecture has.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
}

/// The inner loops of one instruction set.
pub struct Kernels {
    /// What they need.
    pub isa: Isa,
    /// Dot product of two slices of the same length: element `i` is added by a fused multiply-add to
    /// lane `i % 16`; lanes `l` and `l + 8` are added, then `l` and `l + 4`, `l + 2`, `l + 1`.
    pub dot: fn(&[f32], &[f32]) -> f32,
    /// `y[i] = fma(a, x[i], y[i])` over two slices of the same length.
    pub axpy: fn(f32, &[f32], &mut [f32]),
    /// Widens f16 to f32.
    pub widen: fn(&[u16], &mut [f32]),
    /// Rounds f32 to the nearest f16, ties to even.
    pub narrow: fn(&[f32], &mut [u16]),
}

impl Isa {
    /// Its name, as a person would write it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
        }
    }
}

impl Kernels {
    /// The best this machine can run.
    pub fn detect() -> &'static Kernels {
        Kernels::available().last().unwrap_or(&scalar::KERNELS)
    }

    /// Those of `isa`, if this machine can run them.
    pub fn of(isa: Isa) -> Option<&'static Kernels> {
        Kernels::available().find(|kernels| kernels.isa == isa)
    }

    /// Everything this machine can run, slowest first.
    pub fn available() -> impl Iterator<Item = &'static Kernels> {
        #[cfg(target_arch = "x86_64")]
        let faster = [avx2::kernels()];
        #[cfg(not(target_arch = "x86_64"))]
        let faster = [];
        std::iter::once(&scalar::KERNELS).chain(faster.into_iter().flatten())
    }
}
