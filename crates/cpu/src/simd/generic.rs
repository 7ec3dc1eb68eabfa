//! Kernels in plain Rust, inlined into each instruction set's own functions and vectorised there by
//! the compiler. No arithmetic here depends on how wide that turns out.

use crate::pack::{CodePanel, FLOAT_COLS, FloatPanel, Group, LANES, Level, STAGED_ROWS};
use crate::rounded::{GROUP, Rounded};

/// See [`super::Kernels::axpy`].
#[inline(always)]
pub(super) fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len());
    for (y, x) in y.iter_mut().zip(x) {
        *y = a.mul_add(*x, *y);
    }
}

/// See [`super::Kernels::round`]. Adding `1.5 * 2^23` rounds to a whole number, ties to even, and
/// leaves it in the low bits.
#[inline(always)]
pub(super) fn round(x: &[f32], out: &mut [Rounded]) {
    const TO_WHOLE: f32 = 12_582_912.0;
    let x = x.as_chunks::<GROUP>().0;
    assert_eq!(x.len(), out.len());
    for (x, out) in x.iter().zip(out) {
        // As integers, so that a NaN counts as larger than everything.
        let largest = x.iter().fold(0, |m: u32, x| m.max(x.to_bits() & 0x7fff_ffff));
        let largest = f32::from_bits(largest);
        let (scale, inverse) = Rounded::scale_of(largest);
        let mut sums = [0; 2];
        for (half, sum) in sums.iter_mut().enumerate() {
            let (x, codes) = (&x[half * 16..][..16], &mut out.codes[half * 16..][..16]);
            for (code, x) in codes.iter_mut().zip(x) {
                let bits = (x * inverse + TO_WHOLE).to_bits();
                let whole = bits.wrapping_sub(TO_WHOLE.to_bits()) as i32;
                *code = whole as i8;
                *sum += i32::from(*code);
            }
        }
        out.describe(scale, sums);
    }
}

/// See [`super::Kernels::dot_codes`].
#[inline(always)]
pub(super) fn dot_codes(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    let (parts, steps) = match panel.coding.group {
        Group::Of32 => (1, 8),
        Group::Of16 => (2, 4),
    };
    for (x, acc) in x.chunks(stride).zip(acc) {
        for g in 0..panel.cols / GROUP * parts {
            let group = &x[g / parts];
            let codes = &group.codes[g % parts * 16..][..4 * steps];
            let (sum, weighted) = group.sums_of(panel.coding.group, g % parts);
            let mut dots = match panel.coding.level {
                Level::Zero(zero) => [-zero * sum; LANES],
                Level::Min => [0; LANES],
            };
            for (w, x) in panel.codes[g * steps..][..steps].iter().zip(codes.as_chunks::<4>().0) {
                for (dot, w) in dots.iter_mut().zip(w.as_chunks::<4>().0) {
                    *dot +=
                        w.iter().zip(x).map(|(w, x)| i32::from(*w) * i32::from(*x)).sum::<i32>();
                }
            }
            for ((acc, dot), scale) in acc.iter_mut().zip(dots).zip(&panel.scales[g]) {
                *acc = (dot as f32).mul_add(scale * group.scale, *acc);
            }
            if panel.coding.level == Level::Min {
                for (acc, min) in acc.iter_mut().zip(&panel.mins[g]) {
                    *acc = min.mul_add(weighted, *acc);
                }
            }
        }
    }
}

/// See [`super::Kernels::dot_floats`].
#[inline(always)]
pub(super) fn dot_floats(panel: &FloatPanel, x: &[f32], stride: usize, acc: &mut [[f32; LANES]]) {
    for (x, acc) in x.chunks(stride).zip(acc) {
        let (w, x) = (&panel.values[..panel.cols], &x[..panel.cols]);
        for (w, x) in w.chunks(GROUP).zip(x.chunks(GROUP)) {
            let mut part = [0.0; LANES];
            for (w, x) in w.iter().zip(x) {
                for (part, w) in part.iter_mut().zip(w) {
                    *part = x.mul_add(*w, *part);
                }
            }
            for (acc, part) in acc.iter_mut().zip(part) {
                *acc += part;
            }
        }
    }
}

/// Moves staged rows of floats to the lanes from `lane` on.
#[inline(always)]
pub(super) fn interleave_floats(
    rows: &[[f32; FLOAT_COLS]; STAGED_ROWS],
    lane: usize,
    out: &mut [[f32; LANES]],
) {
    for (i, out) in out.iter_mut().enumerate() {
        for (row, out) in rows.iter().zip(&mut out[lane..lane + STAGED_ROWS]) {
            *out = row[i];
        }
    }
}
