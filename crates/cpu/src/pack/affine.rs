//! MLX affine groups: a little-endian stream of 2, 3, 4, 5, 6 or 8-bit codes per row; scales and
//! biases apart. And signed bytes in such groups, which have scales alone.

use weights::Float;

use super::{Codes, Format, LANES, Out, Visitor, legacy, spread};
use crate::simd::{Side, Words};

/// Codes of `BITS` bits in groups of `32 * RUNS`, with a scale and a bias each.
#[derive(Clone, Copy)]
struct Affine<const BITS: usize, const RUNS: usize>(Float);

/// Hands the format with these parameters to `visitor`.
#[inline]
pub(super) fn with_format(bits: u8, group: u16, float: Float, visitor: impl Visitor) {
    match bits {
        2 => with_bits::<2>(group, float, visitor),
        3 => with_bits::<3>(group, float, visitor),
        4 => with_bits::<4>(group, float, visitor),
        5 => with_bits::<5>(group, float, visitor),
        6 => with_bits::<6>(group, float, visitor),
        8 => with_bits::<8>(group, float, visitor),
        _ => unreachable!("affine codes of {bits} bits are refused when a model is opened"),
    }
}

#[inline]
fn with_bits<const BITS: usize>(group: u16, float: Float, visitor: impl Visitor) {
    match group {
        32 => visitor.visit(Affine::<BITS, 1>(float)),
        64 => visitor.visit(Affine::<BITS, 2>(float)),
        128 => visitor.visit(Affine::<BITS, 4>(float)),
        _ => unreachable!("affine groups of {group} are refused when a model is opened"),
    }
}

impl<const BITS: usize, const RUNS: usize> Format for Affine<BITS, RUNS> {
    const COLS: usize = 32;
    const BYTES: usize = 4 * BITS;
    const GROUPS: usize = 1;
    const SHARING: usize = RUNS;

    #[inline(always)]
    fn bytes_apart(self) -> [usize; 2] {
        [self.0.n_bytes(); 2]
    }

    #[inline(always)]
    fn numbers_apart<W: Words>(self, from: &[Side<'_, W>; 2], n: usize, out: &mut Out<'_, ()>) {
        let [scales, mins] = from;
        numbers::<W, RUNS>(self.0, scales, n, out.lane, out.scales);
        numbers::<W, RUNS>(self.0, mins, n, out.lane, out.mins);
    }

    #[inline(always)]
    fn block<W: Words>(self, rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
        run_of::<W, BITS>(rows, at, out);
    }
}

/// Signed bytes in groups of `32 * RUNS`, with a scale each.
#[derive(Clone, Copy)]
struct Signed<const RUNS: usize>(Float);

/// Hands the format of signed bytes in groups of so many to `visitor`.
#[inline]
pub(super) fn with_signed(group: u16, float: Float, visitor: impl Visitor) {
    match group {
        32 => visitor.visit(Signed::<1>(float)),
        64 => visitor.visit(Signed::<2>(float)),
        128 => visitor.visit(Signed::<4>(float)),
        _ => unreachable!("groups of {group} are not made when a model is opened"),
    }
}

impl<const RUNS: usize> Format for Signed<RUNS> {
    const COLS: usize = 32;
    const BYTES: usize = 32;
    const GROUPS: usize = 1;
    const SHARING: usize = RUNS;

    #[inline(always)]
    fn bytes_apart(self) -> [usize; 2] {
        [self.0.n_bytes(), 0]
    }

    #[inline(always)]
    fn numbers_apart<W: Words>(
        self,
        [scales, _]: &[Side<'_, W>; 2],
        n: usize,
        out: &mut Out<'_, ()>,
    ) {
        numbers::<W, RUNS>(self.0, scales, n, out.lane, out.scales);
    }

    #[inline(always)]
    fn block<W: Words>(self, rows: &Side<'_, W>, at: usize, out: &mut Out<'_, impl Codes<W>>) {
        out.run(0, legacy::signed_bytes(rows, at));
    }
}

/// `n` numbers of some rows, each `RUNS` times.
#[inline(always)]
fn numbers<W: Words, const RUNS: usize>(
    float: Float,
    side: &Side<'_, W>,
    n: usize,
    lane: usize,
    lines: &mut [[f32; LANES]],
) {
    // Sixteen bytes at a time, then one by one.
    let n_quads = n * float.n_bytes() / 16;
    for i in 0..n_quads {
        for (k, word) in side.quad(16 * i).into_iter().enumerate() {
            let word_at = 4 * i + k;
            match float {
                Float::F32 => put::<W, RUNS>(word.f32(), word_at, lane, lines),
                Float::F16 => {
                    put::<W, RUNS>(word.f16(), 2 * word_at, lane, lines);
                    put::<W, RUNS>(word.shr(16).f16(), 2 * word_at + 1, lane, lines);
                }
                Float::Bf16 => {
                    put::<W, RUNS>(word.shl(16).f32(), 2 * word_at, lane, lines);
                    put::<W, RUNS>(word.and(0xffff_0000).f32(), 2 * word_at + 1, lane, lines);
                }
            }
        }
    }
    for i in n_quads * 16 / float.n_bytes()..n {
        let number = match float {
            Float::F32 => side.word(4 * i).f32(),
            Float::F16 => side.half(2 * i).f16(),
            Float::Bf16 => side.half(2 * i).shl(16).f32(),
        };
        put::<W, RUNS>(number, i, lane, lines);
    }
}

/// Puts number `i` where its runs of 32 have theirs.
#[inline(always)]
fn put<W: Words, const RUNS: usize>(
    number: W::Floats,
    i: usize,
    lane: usize,
    lines: &mut [[f32; LANES]],
) {
    for line in &mut lines[i * RUNS..(i + 1) * RUNS] {
        W::put_floats(number, line, lane);
    }
}

/// 32 codes of `BITS` bits.
#[inline(always)]
fn run_of<W: Words, const BITS: usize>(
    rows: &Side<'_, W>,
    at: usize,
    out: &mut Out<'_, impl Codes<W>>,
) {
    // Words are read by fours where so many are there. Those past the codes are never used.
    let mut words = [rows.word(at); 8];
    for first in (0..BITS).step_by(4) {
        if first + 4 <= BITS {
            words[first..first + 4].copy_from_slice(&rows.quad(at + 4 * first));
        } else {
            for (i, word) in words[..BITS].iter_mut().enumerate().skip(first) {
                *word = rows.word(at + 4 * i);
            }
        }
    }
    // Spelt out for the reason that `Out::run` has, and each line at once, because words and codes
    // together would not fit the registers.
    macro_rules! lines {
        ($($line:literal)*) => {
            $(out.codes($line, line_of::<W, BITS>(&words, $line));)*
        };
    }
    lines!(0 1 2 3 4 5 6 7);
}

/// Codes `4 * line..4 * line + 4` of a run.
#[inline(always)]
fn line_of<W: Words, const BITS: usize>(words: &[W; 8], line: usize) -> W {
    let (word, bit) = (line * 4 * BITS / 32, (line * 4 * BITS % 32) as u32);
    let mut field = words[word].shr(bit);
    if bit as usize + 4 * BITS > 32 {
        field = field.or(words[word + 1].shl(32 - bit));
    }
    spread::<W, BITS>(field)
}
