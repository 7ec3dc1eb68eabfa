//! AVX-512 with F, BW, VL and VNNI: servers since Ice Lake and Zen 4.
//!
//! A whole panel line fits one register, and one instruction adds four products to each lane without
//! leaving 32 bits.

#![allow(clippy::needless_range_loop, reason = "one index walks registers and slices together")]

mod few_rows;
pub(super) mod rounding;

use std::arch::x86_64::*;

use super::words::avx512::Words16;
use super::{Available, Isa, Kernels, avx2, generic, ops_avx512};
use crate::pack::{
    CodePanel, FloatPanel, Format, Group, LANES, Level, Source, Visitor, fill_codes, with_format,
};
use crate::rounded::{GROUP, Rounded};

/// Rows of activations that are multiplied with a panel together, as far as registers go.
const TILE: usize = 8;

/// The table, if this machine has the instructions.
pub(super) fn kernels() -> Option<&'static Kernels> {
    let ok = avx2::kernels().is_some()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni");
    ok.then_some(&KERNELS)
}

static KERNELS: Kernels = Kernels {
    isa: Isa::Avx512,
    // SAFETY: this table is reached through `kernels` alone, which found the instructions of AVX2
    // and avx512f, avx512bw, avx512vl and avx512vnni.
    axpy: |a, x, y| unsafe { axpy(a, x, y) },
    // SAFETY: as above.
    narrow: |x, out| unsafe { avx2::narrow(x, out) },
    // SAFETY: as above.
    round: |x, out| unsafe { rounding::round(x, out) },
    unpack_codes: |source, panel| with_format(source.matrix.packing, Unpack(source, panel)),
    // SAFETY: as above.
    unpack_floats: |source, panel| unsafe { avx2::unpack_floats(source, panel) },
    few_rows: Some(few_rows::FEW_ROWS),
    // SAFETY: as above.
    dot_codes: |panel, x, stride, acc| unsafe { dot_codes(panel, x, stride, acc) },
    // SAFETY: as above.
    dot_floats: |panel, x, stride, acc| unsafe { dot_floats(panel, x, stride, acc) },
    ops: &ops_avx512::OPS,
};

#[target_feature(enable = "avx512f,avx512bw,avx512vl,fma")]
fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    generic::axpy(a, x, y);
}

/// Unpacks with the format that a matrix has.
struct Unpack<'a>(Source<'a>, &'a mut CodePanel);

impl Visitor for Unpack<'_> {
    #[inline]
    fn visit<F: Format>(self, format: F) {
        // SAFETY: used by the table of kernels alone, which needs avx512f and avx512bw.
        unsafe { unpack(format, self.0, self.1) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn unpack(format: impl Format, source: Source<'_>, panel: &mut CodePanel) {
    // SAFETY: this function is compiled for what the words need.
    let isa = unsafe { Available::<Words16>::promise() };
    fill_codes(isa, format, source, panel);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn dot_codes(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    match panel.coding.group {
        Group::Of32 => by_rows::<8>(panel, x, stride, acc),
        Group::Of16 => by_rows::<4>(panel, x, stride, acc),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn by_rows<const STEPS: usize>(
    panel: &CodePanel,
    x: &[Rounded],
    stride: usize,
    acc: &mut [[f32; LANES]],
) {
    let x = Rows { x, stride, groups: panel.cols / GROUP };
    let (tiles, rest) = acc.as_chunks_mut::<TILE>();
    for (i, acc) in tiles.iter_mut().enumerate() {
        tile::<TILE, STEPS>(panel, x.some(i * TILE), acc);
    }
    let first = tiles.len() * TILE;
    let (fours, rest) = rest.as_chunks_mut::<4>();
    for acc in fours.iter_mut() {
        tile::<4, STEPS>(panel, x.some(first), acc);
    }
    let first = first + 4 * fours.len();
    let (pairs, single) = rest.as_chunks_mut::<2>();
    for acc in pairs.iter_mut() {
        tile::<2, STEPS>(panel, x.some(first), acc);
    }
    for acc in single {
        tile::<1, STEPS>(panel, x.some(first + 2 * pairs.len()), std::array::from_mut(acc));
    }
}

/// Rows of activations, of which each one's groups meet a panel.
struct Rows<'a> {
    x: &'a [Rounded],
    stride: usize,
    groups: usize,
}

impl<'a> Rows<'a> {
    /// Some from `first` on. A loop, for a closure would be called row by row.
    #[inline(always)]
    fn some<const R: usize>(&self, first: usize) -> [&'a [Rounded]; R] {
        let mut rows = [&[][..]; R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = &self.x[(first + r) * self.stride..][..self.groups];
        }
        rows
    }
}

/// `R` rows of activations against a panel whose groups take `STEPS` lines of codes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn tile<const R: usize, const STEPS: usize>(
    panel: &CodePanel,
    x: [&[Rounded]; R],
    acc: &mut [[f32; LANES]; R],
) {
    let parts = 8 / STEPS;
    let (zero, has_min) = match panel.coding.level {
        Level::Zero(zero) => (zero, false),
        Level::Min => (0, true),
    };
    let mut sums = [_mm512_setzero_ps(); R];
    for r in 0..R {
        sums[r] = load_f32(&acc[r]);
    }
    let n_groups = panel.cols / GROUP;
    for g in 0..n_groups {
        for part in 0..parts {
            let k = g * parts + part;
            let scales = load_f32(&panel.scales[k]);
            let mins = load_f32(&panel.mins[k]);
            let mut dots = [_mm512_setzero_si512(); R];
            if !has_min {
                for r in 0..R {
                    let (sum, _) = x[r][g].sums_of(panel.coding.group, part);
                    dots[r] = _mm512_set1_epi32(-zero * sum);
                }
            }
            for (j, line) in panel.codes[k * STEPS..][..STEPS].iter().enumerate() {
                let w = load_u8(line);
                for r in 0..R {
                    let x = x[r][g].codes.as_chunks::<4>().0[part * 4 + j];
                    let x = _mm512_set1_epi32(i32::from_le_bytes(x.map(|x| x as u8)));
                    dots[r] = _mm512_dpbusd_epi32(dots[r], w, x);
                }
            }
            for r in 0..R {
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(x[r][g].scale));
                sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), scale, sums[r]);
                if has_min {
                    let (_, weighted) = x[r][g].sums_of(panel.coding.group, part);
                    sums[r] = _mm512_fmadd_ps(mins, _mm512_set1_ps(weighted), sums[r]);
                }
            }
        }
    }
    for r in 0..R {
        store_f32(&mut acc[r], sums[r]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn dot_floats(panel: &FloatPanel, x: &[f32], stride: usize, acc: &mut [[f32; LANES]]) {
    let row = |r: usize| &x[r * stride..][..panel.cols];
    let (tiles, rest) = acc.as_chunks_mut::<TILE>();
    for (i, acc) in tiles.iter_mut().enumerate() {
        float_tile::<TILE>(panel, std::array::from_fn(|r| row(i * TILE + r)), acc);
    }
    let first = tiles.len() * TILE;
    let (pairs, single) = rest.as_chunks_mut::<2>();
    for (i, acc) in pairs.iter_mut().enumerate() {
        float_tile::<2>(panel, std::array::from_fn(|r| row(first + 2 * i + r)), acc);
    }
    for acc in single {
        float_tile::<1>(panel, [row(first + 2 * pairs.len())], std::array::from_mut(acc));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn float_tile<const R: usize>(panel: &FloatPanel, x: [&[f32]; R], acc: &mut [[f32; LANES]; R]) {
    let mut sums = [_mm512_setzero_ps(); R];
    for r in 0..R {
        sums[r] = load_f32(&acc[r]);
    }
    for (i, lines) in panel.values[..panel.cols].chunks(GROUP).enumerate() {
        let mut columns = [&[][..]; R];
        for r in 0..R {
            columns[r] = &x[r][i * GROUP..][..lines.len()];
        }
        let mut parts = [_mm512_setzero_ps(); R];
        for (k, line) in lines.iter().enumerate() {
            let w = load_f32(line);
            for r in 0..R {
                parts[r] = _mm512_fmadd_ps(_mm512_set1_ps(columns[r][k]), w, parts[r]);
            }
        }
        for r in 0..R {
            sums[r] = _mm512_add_ps(sums[r], parts[r]);
        }
    }
    for r in 0..R {
        store_f32(&mut acc[r], sums[r]);
    }
}

#[target_feature(enable = "avx512f")]
fn load_u8(x: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes are readable from `x`, and this load needs no alignment.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn load_f32(x: &[f32; LANES]) -> __m512 {
    // SAFETY: sixteen f32 are readable from `x`, and this load needs no alignment.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[target_feature(enable = "avx512f")]
fn store_f32(out: &mut [f32; LANES], x: __m512) {
    // SAFETY: sixteen f32 are writable from `out`, and this store needs no alignment.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), x) };
}
