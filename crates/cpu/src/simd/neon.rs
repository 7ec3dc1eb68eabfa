//! NEON, which every AArch64 machine has. The dot product instructions of newer ones are not used.
//!
//! Only the integer products are made by hand; the compiler vectorises the rest of the scalar
//! kernels by itself, since it may take NEON for granted.
//!
//! Tested under emulation, never yet timed on a machine: `cargo test -p hearth-cpu --lib --target
//! aarch64-unknown-linux-gnu` with a cross linker and `qemu-aarch64` as the target's runner.

use std::arch::aarch64::*;

use super::words::neon::Words4;
use super::{Available, Isa, Kernels, generic, ops_scalar, scalar};
use crate::pack::{
    CodePanel, Format, Group, LANES, Level, Source, Visitor, fill_codes, fill_floats, with_format,
};
use crate::rounded::{GROUP, Rounded};

/// Registers that hold one line of a panel.
const QUARTERS: usize = 4;

pub(super) static KERNELS: Kernels = Kernels {
    isa: Isa::Neon,
    axpy: |a, x, y| generic::axpy(a, x, y),
    narrow: scalar::narrow,
    round: |x, out| generic::round(x, out),
    unpack_codes: |source, panel| with_format(source.matrix.packing, Unpack(source, panel)),
    unpack_floats: |source, panel| {
        fill_floats(source, panel, generic::interleave_floats);
    },
    multiply_row: None,
    // SAFETY: every AArch64 machine that runs a system has NEON; its targets take it for granted.
    dot_codes: |panel, x, stride, acc| unsafe { dot_codes(panel, x, stride, acc) },
    dot_floats: |panel, x, stride, acc| generic::dot_floats(panel, x, stride, acc),
    ops: &ops_scalar::OPS,
};

#[target_feature(enable = "neon")]
fn dot_codes(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    for (r, acc) in acc.iter_mut().enumerate() {
        let x = &x[r * stride..][..panel.cols / GROUP];
        match panel.coding.group {
            Group::Of32 => row::<8>(panel, x, acc),
            Group::Of16 => row::<4>(panel, x, acc),
        }
    }
}

/// One row of activations against a panel whose groups take `STEPS` lines of codes.
#[target_feature(enable = "neon")]
fn row<const STEPS: usize>(panel: &CodePanel, x: &[Rounded], acc: &mut [f32; LANES]) {
    let parts = 8 / STEPS;
    // Codes that do not fit a signed byte have 128 taken off, which the sum of the activations
    // gives back.
    let flip = if panel.coding.max > 127 { 0x80 } else { 0 };
    let (offset, has_min) = match panel.coding.level {
        Level::Zero(zero) => (i32::from(flip) - zero, false),
        Level::Min => (i32::from(flip), true),
    };
    let mut sums = [vdupq_n_f32(0.0); QUARTERS];
    for (sum, acc) in sums.iter_mut().zip(acc.as_chunks().0) {
        *sum = load_f32(acc);
    }
    for (g, group) in x.iter().enumerate() {
        for part in 0..parts {
            let k = g * parts + part;
            let (sum, weighted) = group.sums_of(panel.coding.group, part);
            let mut dots = [vdupq_n_s32(offset * sum); QUARTERS];
            let codes = &group.codes.as_chunks::<4>().0[part * 4..][..STEPS];
            for (line, x) in panel.codes[k * STEPS..][..STEPS].iter().zip(codes) {
                let x = i32::from_le_bytes(x.map(|x| x as u8));
                add_products(line, flip, vreinterpretq_s8_s32(vdupq_n_s32(x)), &mut dots);
            }
            let scales = panel.scales[k].as_chunks().0;
            let mins = panel.mins[k].as_chunks().0;
            for (q, sum) in sums.iter_mut().enumerate() {
                let scale = vmulq_f32(load_f32(&scales[q]), vdupq_n_f32(group.scale));
                *sum = vfmaq_f32(*sum, vcvtq_f32_s32(dots[q]), scale);
                if has_min {
                    *sum = vfmaq_f32(*sum, load_f32(&mins[q]), vdupq_n_f32(weighted));
                }
            }
        }
    }
    for (acc, sum) in acc.as_chunks_mut().0.iter_mut().zip(sums) {
        store_f32(acc, sum);
    }
}

/// Adds four products to every lane. Two of them stay below `2 * 128 * 127 < 2^15`.
#[inline]
#[target_feature(enable = "neon")]
fn add_products(line: &[u8; 4 * LANES], flip: u8, x: int8x16_t, dots: &mut [int32x4_t; QUARTERS]) {
    for (dot, w) in dots.iter_mut().zip(line.as_chunks().0) {
        let w = vreinterpretq_s8_u8(veorq_u8(load_u8(w), vdupq_n_u8(flip)));
        let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        let high = vmull_s8(vget_high_s8(w), vget_high_s8(x));
        *dot = vpadalq_s16(*dot, vpaddq_s16(low, high));
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_u8(x: &[u8; 16]) -> uint8x16_t {
    // SAFETY: sixteen bytes are readable from `x`, and this load needs no alignment.
    unsafe { vld1q_u8(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(x: &[f32; 4]) -> float32x4_t {
    // SAFETY: four f32 are readable from `x`, and this load needs no alignment.
    unsafe { vld1q_f32(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_f32(out: &mut [f32; 4], x: float32x4_t) {
    // SAFETY: four f32 are writable from `out`, and this store needs no alignment.
    unsafe { vst1q_f32(out.as_mut_ptr(), x) };
}

/// Unpacks with the format that a matrix has.
struct Unpack<'a>(Source<'a>, &'a mut CodePanel);

impl Visitor for Unpack<'_> {
    fn visit<F: Format>(self, format: F) {
        // SAFETY: every AArch64 machine that runs a system has NEON; its targets take it for granted.
        let isa = unsafe { Available::<Words4>::promise() };
        fill_codes(isa, format, self.0, self.1);
    }
}
