//! Four-bit floats: sign, two bits of exponent, one of fraction. Twice their values are whole
//! numbers from -12 to 12, so they become codes, and their scales are halved.

use super::{Codes, Format, Level, Out, legacy, spread};
use crate::float::{e4m3_to_f32, e8m0_to_f32, half_of_e8m0};
use crate::simd::{Side, Words};

/// The code of zero.
pub(super) const ZERO: u8 = 12;
/// What the codes mean.
pub(super) const LEVEL: Level = Level::Zero(ZERO as i32);
/// Codes by nibble: 0, 1, 2, 3, 4, 6, 8, 12 doubled values up, then down.
const CODES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// What every byte of scale stands for. A table, because sixteen rows are looked up faster than
/// computed.
macro_rules! scales {
    ($byte:ident => $scale:expr) => {{
        let mut scales = [0.0; 256];
        let mut i = 0;
        while i < scales.len() {
            let $byte = i as u8;
            scales[i] = $scale;
            i += 1;
        }
        scales
    }};
}

/// MLX: low nibble first; apart from the codes, `PARTS` bytes of scale per 32 elements, which stand
/// for the numbers of the table.
#[derive(Clone, Copy)]
pub(super) struct Fp4<const PARTS: usize>(&'static [f32; 256]);

/// A power of two per 32 elements.
pub(super) const MXFP4: Fp4<1> = Fp4(&MXFP4_SCALES);
/// An 8-bit float per 16 elements.
pub(super) const NVFP4: Fp4<2> = Fp4(&NVFP4_SCALES);

/// As [`NVFP4`], scales divided by a number.
#[derive(Clone, Copy)]
pub(super) struct Divided(pub(super) f32);

impl Format for Divided {
    const COLS: usize = 32;
    const BYTES: usize = 16;
    const GROUPS: usize = 2;

    #[inline(always)]
    fn bytes_apart(self) -> [usize; 2] {
        [2, 0]
    }

    #[inline(always)]
    fn numbers_apart<W: Words>(
        self,
        [scales, _]: &[Side<'_, W>; 2],
        n: usize,
        out: &mut Out<'_, ()>,
    ) {
        for i in 0..2 * n {
            let scale = |[byte]: [u8; 1]| 0.5 * (e4m3_to_f32(byte) / self.0);
            out.scale::<W>(i, scales.floats(i, scale));
        }
    }

    #[inline(always)]
    fn block<W: Words>(self, rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
        alternating(rows, at, out);
    }
}

static MXFP4_SCALES: [f32; 256] = scales!(byte => 0.5 * e8m0_to_f32(byte));
static NVFP4_SCALES: [f32; 256] = scales!(byte => 0.5 * e4m3_to_f32(byte));
static GGUF_SCALES: [f32; 256] = scales!(byte => half_of_e8m0(byte));

impl<const PARTS: usize> Format for Fp4<PARTS> {
    const COLS: usize = 32;
    const BYTES: usize = 16;
    const GROUPS: usize = PARTS;

    #[inline(always)]
    fn bytes_apart(self) -> [usize; 2] {
        [PARTS, 0]
    }

    #[inline(always)]
    fn numbers_apart<W: Words>(
        self,
        [scales, _]: &[Side<'_, W>; 2],
        n: usize,
        out: &mut Out<'_, ()>,
    ) {
        for i in 0..PARTS * n {
            out.scale::<W>(i, scales.floats(i, |[scale]| self.0[usize::from(scale)]));
        }
    }

    #[inline(always)]
    fn block<W: Words>(self, rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
        alternating(rows, at, out);
    }
}

/// GGUF: the scale in front of sixteen bytes, whose low nibbles come first.
#[inline(always)]
pub(super) fn gguf_mxfp4<W: Words>(
    rows: &Side<'_, W>,
    at: usize,
    out: &mut Out<'_, impl Codes<W>>,
) {
    out.run(0, legacy::look_up(legacy::nibbles(rows, at + 1), &CODES));
    out.scale::<W>(0, rows.floats(at, |[scale]| GGUF_SCALES[usize::from(scale)]));
}

#[inline(always)]
fn alternating<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    let [a, b, c, d] = rows.quad(at);
    let mut nibbles = [a, a.shr(16), b, b.shr(16), c, c.shr(16), d, d.shr(16)];
    for nibbles in &mut nibbles {
        *nibbles = spread::<W, 4>(*nibbles);
    }
    out.run(0, legacy::look_up(nibbles, &CODES));
}
