//! AVX2, FMA and F16C: every x86 server since 2013.

#![allow(clippy::needless_range_loop, reason = "one index walks registers and slices together")]

use std::arch::x86_64::*;

use super::words::avx2::Words8;
use super::{Available, Isa, Kernels, generic, ops_avx2, scalar};
use crate::pack::{
    CodePanel, FLOAT_COLS, FloatPanel, Format, Group, LANES, Level, STAGED_ROWS, Source, Visitor,
    fill_codes, fill_floats, with_format,
};
use crate::rounded::{GROUP, Rounded};

/// Lanes of one register; a panel has two such halves.
const HALF: usize = 8;
/// Rows of activations that are multiplied with a panel together, as far as registers go.
const TILE: usize = 4;

/// The table, if this machine has the instructions.
pub(super) fn kernels() -> Option<&'static Kernels> {
    let ok = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    ok.then_some(&KERNELS)
}

static KERNELS: Kernels = Kernels {
    isa: Isa::Avx2,
    // SAFETY: this table is reached through `kernels` alone, which found avx2, fma and f16c.
    axpy: |a, x, y| unsafe { axpy(a, x, y) },
    // SAFETY: as above.
    narrow: |x, out| unsafe { narrow(x, out) },
    // SAFETY: as above.
    round: |x, out| unsafe { round(x, out) },
    unpack_codes: |source, panel| with_format(source.matrix.packing, Unpack(source, panel)),
    // SAFETY: as above.
    unpack_floats: |source, panel| unsafe { unpack_floats(source, panel) },
    few_rows: None,
    // SAFETY: as above.
    dot_codes: |panel, x, stride, acc| unsafe { dot_codes(panel, x, stride, acc) },
    // SAFETY: as above.
    dot_floats: |panel, x, stride, acc| unsafe { dot_floats(panel, x, stride, acc) },
    ops: &ops_avx2::OPS,
};

#[target_feature(enable = "avx2,fma")]
fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    generic::axpy(a, x, y);
}

#[target_feature(enable = "avx2,f16c")]
pub(super) fn narrow(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    let ((x8, x_rest), (out8, out_rest)) = (x.as_chunks::<8>(), out.as_chunks_mut::<8>());
    for (x, out) in x8.iter().zip(out8) {
        let x = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load_f32(x));
        // SAFETY: sixteen bytes are writable from `out`, and this store needs no alignment.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), x) };
    }
    scalar::narrow(x_rest, out_rest);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn round(x: &[f32], out: &mut [Rounded]) {
    generic::round(x, out);
}

/// Unpacks with the format that a matrix has.
struct Unpack<'a>(Source<'a>, &'a mut CodePanel);

impl Visitor for Unpack<'_> {
    #[inline]
    fn visit<F: Format>(self, format: F) {
        // SAFETY: used by the table of kernels alone, which needs avx2 and f16c.
        unsafe { unpack(format, self.0, self.1) }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn unpack(format: impl Format, source: Source<'_>, panel: &mut CodePanel) {
    // SAFETY: this function is compiled for what the words need.
    let isa = unsafe { Available::<Words8>::promise() };
    fill_codes(isa, format, source, panel);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn unpack_floats(source: Source<'_>, panel: &mut FloatPanel) {
    fill_floats(source, panel, |rows, lane, out| interleave_floats(rows, lane, out));
}

#[target_feature(enable = "avx2")]
pub(super) fn interleave_floats(
    rows: &[[f32; FLOAT_COLS]; STAGED_ROWS],
    lane: usize,
    out: &mut [[f32; LANES]],
) {
    for (i, out) in out.chunks_mut(8).enumerate() {
        let mut words = [_mm256_setzero_si256(); STAGED_ROWS];
        for (words, row) in words.iter_mut().zip(rows) {
            *words = _mm256_castps_si256(load_f32(&row.as_chunks().0[i]));
        }
        let columns = transpose(words);
        for (out, column) in out.iter_mut().zip(columns) {
            if let Some(out) = out[lane..].first_chunk_mut() {
                store_f32(out, _mm256_castsi256_ps(column));
            }
        }
    }
}

/// Eight rows of eight 32-bit words as eight columns.
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    let pair =
        |i: usize| (_mm256_unpacklo_epi32(r[i], r[i + 1]), _mm256_unpackhi_epi32(r[i], r[i + 1]));
    let [(a0, a1), (b0, b1), (c0, c1), (d0, d1)] = [pair(0), pair(2), pair(4), pair(6)];
    let four = |x, y| (_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
    let [(p0, p1), (p2, p3)] = [four(a0, b0), four(a1, b1)];
    let [(q0, q1), (q2, q3)] = [four(c0, d0), four(c1, d1)];
    let low = |p, q| _mm256_permute2x128_si256::<0x20>(p, q);
    let high = |p, q| _mm256_permute2x128_si256::<0x31>(p, q);
    [
        low(p0, q0),
        low(p1, q1),
        low(p2, q2),
        low(p3, q3),
        high(p0, q0),
        high(p1, q1),
        high(p2, q2),
        high(p3, q3),
    ]
}

/// How products of codes and activations are summed without leaving 16 bits.
mod depth {
    /// `8 * 2 * 15 * 127 < 2^15`.
    pub(super) const UP_TO_15: usize = 8;
    /// `4 * 2 * 31 * 127 < 2^15`.
    pub(super) const UP_TO_31: usize = 4;
    /// `2 * 2 * 63 * 127 < 2^15`.
    pub(super) const UP_TO_63: usize = 2;
    /// 128 is taken off every code first: `2 * 128 * 127 < 2^15`.
    pub(super) const UP_TO_255: usize = 1;
}

#[target_feature(enable = "avx2,fma")]
fn dot_codes(panel: &CodePanel, x: &[Rounded], stride: usize, acc: &mut [[f32; LANES]]) {
    use depth::*;
    match panel.coding.max {
        0..=15 => by_group::<UP_TO_15>(panel, x, stride, acc),
        16..=31 => by_group::<UP_TO_31>(panel, x, stride, acc),
        32..=63 => by_group::<UP_TO_63>(panel, x, stride, acc),
        64..=255 => by_group::<UP_TO_255>(panel, x, stride, acc),
    }
}

#[target_feature(enable = "avx2,fma")]
fn by_group<const DEPTH: usize>(
    panel: &CodePanel,
    x: &[Rounded],
    stride: usize,
    acc: &mut [[f32; LANES]],
) {
    match (panel.coding.group, panel.coding.level) {
        (Group::Of32, Level::Zero(_)) => by_rows::<DEPTH, 8, false>(panel, x, stride, acc),
        (Group::Of32, Level::Min) => by_rows::<DEPTH, 8, true>(panel, x, stride, acc),
        (Group::Of16, Level::Zero(_)) => by_rows::<DEPTH, 4, false>(panel, x, stride, acc),
        (Group::Of16, Level::Min) => by_rows::<DEPTH, 4, true>(panel, x, stride, acc),
    }
}

#[target_feature(enable = "avx2,fma")]
fn by_rows<const DEPTH: usize, const STEPS: usize, const MIN: bool>(
    panel: &CodePanel,
    x: &[Rounded],
    stride: usize,
    acc: &mut [[f32; LANES]],
) {
    let n_groups = panel.cols / GROUP;
    let mut rows = x.chunks(stride).map(|x| &x[..n_groups]);
    let mut next = || rows.next().expect("every row of the result has its activations");
    let mut rest = acc;
    // Sums of 16 bits that are taken over within a group need registers beside those of 32.
    if DEPTH == depth::UP_TO_255 || DEPTH >= STEPS {
        let (tiles, odd) = rest.as_chunks_mut::<TILE>();
        for acc in tiles {
            tile::<TILE, DEPTH, STEPS, MIN>(panel, [next(), next(), next(), next()], acc);
        }
        rest = odd;
    }
    let (pairs, single) = rest.as_chunks_mut::<2>();
    for acc in pairs {
        tile::<2, DEPTH, STEPS, MIN>(panel, [next(), next()], acc);
    }
    if let [acc] = single {
        tile::<1, DEPTH, STEPS, MIN>(panel, [next()], std::array::from_mut(acc));
    }
}

/// `R` rows of activations against a panel whose groups take `STEPS` lines of codes.
#[target_feature(enable = "avx2,fma")]
fn tile<const R: usize, const DEPTH: usize, const STEPS: usize, const MIN: bool>(
    panel: &CodePanel,
    x: [&[Rounded]; R],
    acc: &mut [[f32; LANES]; R],
) {
    let parts = 8 / STEPS;
    // What the integer sums start from, per unit of the sum of the activations' codes.
    let lifted = if DEPTH == depth::UP_TO_255 { 128 } else { 0 };
    let offset = match panel.coding.level {
        Level::Zero(zero) => lifted - zero,
        Level::Min => lifted,
    };
    let offset = _mm256_set1_epi32(offset);
    let n_groups = panel.cols / GROUP;
    assert!(x.iter().all(|x| x.len() == n_groups));
    let lines = &panel.codes.as_chunks::<STEPS>().0[..n_groups * parts];
    let (scales, mins) = (&panel.scales[..n_groups * parts], &panel.mins[..n_groups * parts]);
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    for r in 0..R {
        sums[r] = load_line(&acc[r]);
    }
    for g in 0..n_groups {
        for part in 0..parts {
            let k = g * parts + part;
            let codes = x.map(|x| &x[g].codes.as_chunks::<4>().0.as_chunks::<STEPS>().0[part]);
            let mut dots = products::<R, DEPTH, STEPS>(&lines[k], codes);
            let (scales, mins) = (load_line(&scales[k]), load_line(&mins[k]));
            for r in 0..R {
                let (sum, weighted) = x[r][g].sums_of(panel.coding.group, part);
                let scale = _mm256_set1_ps(x[r][g].scale);
                let start = _mm256_mullo_epi32(_mm256_set1_epi32(sum), offset);
                for half in 0..2 {
                    if !MIN || lifted != 0 {
                        dots[r][half] = _mm256_add_epi32(dots[r][half], start);
                    }
                    let dot = _mm256_cvtepi32_ps(dots[r][half]);
                    let scale = _mm256_mul_ps(scales[half], scale);
                    sums[r][half] = _mm256_fmadd_ps(dot, scale, sums[r][half]);
                    if MIN {
                        let weighted = _mm256_set1_ps(weighted);
                        sums[r][half] = _mm256_fmadd_ps(mins[half], weighted, sums[r][half]);
                    }
                }
            }
        }
    }
    for r in 0..R {
        store_half_f32(&mut acc[r], 0, sums[r][0]);
        store_half_f32(&mut acc[r], 1, sums[r][1]);
    }
}

/// Integer dot products of some columns: the lanes of the lines with each row of codes.
#[target_feature(enable = "avx2")]
fn products<const R: usize, const DEPTH: usize, const STEPS: usize>(
    lines: &[[u8; 4 * LANES]; STEPS],
    x: [&[[i8; 4]; STEPS]; R],
) -> [[__m256i; 2]; R] {
    let ones = _mm256_set1_epi16(1);
    let mut dots = [[_mm256_setzero_si256(); 2]; R];
    for first in (0..STEPS).step_by(DEPTH) {
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        for i in first..(first + DEPTH).min(STEPS) {
            let w = load_codes(&lines[i]).map(|w| Factor::of::<DEPTH>(w));
            for r in 0..R {
                let x = _mm256_set1_epi32(i32::from_le_bytes(x[r][i].map(|x| x as u8)));
                for half in 0..2 {
                    let product = w[half].times::<DEPTH>(x);
                    if DEPTH == 1 {
                        let sum = _mm256_madd_epi16(product, ones);
                        dots[r][half] = in_order(_mm256_add_epi32(dots[r][half], sum));
                    } else {
                        sums[r][half] = in_order(_mm256_add_epi16(sums[r][half], product));
                    }
                }
            }
        }
        if DEPTH > 1 {
            for r in 0..R {
                for half in 0..2 {
                    let sum = _mm256_madd_epi16(sums[r][half], ones);
                    dots[r][half] = _mm256_add_epi32(dots[r][half], sum);
                }
            }
        }
    }
    dots
}

/// Codes as they are multiplied: bytes without sign and, where 128 is taken off, what has the signs.
#[derive(Clone, Copy)]
struct Factor {
    size: __m256i,
    signed: __m256i,
}

impl Factor {
    #[target_feature(enable = "avx2")]
    fn of<const DEPTH: usize>(codes: __m256i) -> Factor {
        if DEPTH == depth::UP_TO_255 {
            let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(i8::MIN));
            Factor { size: _mm256_abs_epi8(signed), signed }
        } else {
            Factor { size: codes, signed: codes }
        }
    }

    /// Products with activations, the sums of two in 16 bits.
    #[target_feature(enable = "avx2")]
    fn times<const DEPTH: usize>(self, x: __m256i) -> __m256i {
        let lifted = DEPTH == depth::UP_TO_255;
        let x = if lifted { _mm256_sign_epi8(x, self.signed) } else { x };
        _mm256_maddubs_epi16(self.size, x)
    }
}

/// The same, from where on the compiler must have it: so it adds products as they come, and needs
/// no more registers than there are.
#[target_feature(enable = "avx2")]
fn in_order(mut x: __m256i) -> __m256i {
    // SAFETY: these are no instructions at all.
    unsafe {
        std::arch::asm!("/* {} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags));
    }
    x
}

#[target_feature(enable = "avx2,fma")]
fn dot_floats(panel: &FloatPanel, x: &[f32], stride: usize, acc: &mut [[f32; LANES]]) {
    let row = |r: usize| &x[r * stride..][..panel.cols];
    let (tiles, rest) = acc.as_chunks_mut::<TILE>();
    for (i, acc) in tiles.iter_mut().enumerate() {
        float_tile::<TILE>(panel, std::array::from_fn(|r| row(i * TILE + r)), acc);
    }
    for (i, acc) in rest.iter_mut().enumerate() {
        float_tile::<1>(panel, [row(tiles.len() * TILE + i)], std::array::from_mut(acc));
    }
}

#[target_feature(enable = "avx2,fma")]
fn float_tile<const R: usize>(panel: &FloatPanel, x: [&[f32]; R], acc: &mut [[f32; LANES]; R]) {
    for (i, lines) in panel.values[..panel.cols].chunks(GROUP).enumerate() {
        let mut columns = [&[][..]; R];
        for r in 0..R {
            columns[r] = &x[r][i * GROUP..][..lines.len()];
        }
        let mut parts = [[_mm256_setzero_ps(); 2]; R];
        for (k, line) in lines.iter().enumerate() {
            let w = [load_half_f32(line, 0), load_half_f32(line, 1)];
            for r in 0..R {
                let x = _mm256_set1_ps(columns[r][k]);
                for (part, w) in parts[r].iter_mut().zip(w) {
                    *part = _mm256_fmadd_ps(x, w, *part);
                }
            }
        }
        for r in 0..R {
            for (half, part) in parts[r].into_iter().enumerate() {
                let sum = _mm256_add_ps(load_half_f32(&acc[r], half), part);
                store_half_f32(&mut acc[r], half, sum);
            }
        }
    }
}

/// The two halves of a line.
#[target_feature(enable = "avx2")]
fn load_line(line: &[f32; LANES]) -> [__m256; 2] {
    [load_half_f32(line, 0), load_half_f32(line, 1)]
}

/// As [`load_line`].
#[target_feature(enable = "avx2")]
fn load_codes(line: &[u8; 4 * LANES]) -> [__m256i; 2] {
    // SAFETY: 64 bytes are readable from `line`, and these loads need no alignment.
    unsafe {
        let line = line.as_ptr().cast();
        [_mm256_loadu_si256(line), _mm256_loadu_si256(line.add(1))]
    }
}

#[target_feature(enable = "avx2")]
fn load_f32(x: &[f32; 8]) -> __m256 {
    // SAFETY: eight f32 are readable from `x`, and this load needs no alignment.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[target_feature(enable = "avx2")]
fn store_f32(out: &mut [f32; 8], x: __m256) {
    // SAFETY: eight f32 are writable from `out`, and this store needs no alignment.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), x) };
}

#[target_feature(enable = "avx2")]
fn load_half_f32(x: &[f32; LANES], half: usize) -> __m256 {
    load_f32(&x.as_chunks::<HALF>().0[half])
}

#[target_feature(enable = "avx2")]
fn store_half_f32(out: &mut [f32; LANES], half: usize, x: __m256) {
    store_f32(&mut out.as_chunks_mut::<HALF>().0[half], x);
}
