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

/// MLX: low nibble first; apart from the codes, `PARTS` bytes of scale per 32 elements, which the
/// function widens.
#[derive(Clone, Copy)]
pub(super) struct Fp4<const PARTS: usize>(fn(u8) -> f32);

/// A power of two per 32 elements.
pub(super) const MXFP4: Fp4<1> = Fp4(|scale| 0.5 * e8m0_to_f32(scale));
/// An 8-bit float per 16 elements.
pub(super) const NVFP4: Fp4<2> = Fp4(|scale| 0.5 * e4m3_to_f32(scale));

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
            out.scale::<W>(i, scales.floats(i, |[scale]| (self.0)(scale)));
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
    for (line, nibbles) in legacy::nibbles(rows, at + 1).into_iter().enumerate() {
        out.codes(line, nibbles.lookup(&CODES));
    }
    out.scale::<W>(0, rows.floats(at, |[scale]| half_of_e8m0(scale)));
}

#[inline(always)]
fn alternating<W: Words>(rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
    for (i, packed) in rows.quad(at).into_iter().enumerate() {
        out.codes(2 * i, spread::<W, 4>(packed).lookup(&CODES));
        out.codes(2 * i + 1, spread::<W, 4>(packed.shr(16)).lookup(&CODES));
    }
}
