//! GGUF blocks and signed bytes as MLX's affine groups, without loss: unsigned codes in a bit stream, and
//! `w = scale * code + bias` for each group. Where scale and bias have more digits than the activations'
//! type, they are rounded when the weight is taken over, as all scales are.
//!
//! Not the definition of any block: that is [`Matrix::dequantize_row`], and the tests compare.

use half::f16;
use weights::{Float, GgufType, Matrix, Packing};

/// Affine groups of all rows.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Columns of a group.
    pub(crate) group: usize,
    pub(crate) bits: usize,
    /// Little-endian bit stream, row by row.
    pub(crate) codes: Vec<u8>,
    /// One for each group.
    pub(crate) scales: Vec<f32>,
    /// Likewise.
    pub(crate) biases: Vec<f32>,
}

/// Columns that share a scale in all blocks that can be said in MLX's groups.
const GROUP: usize = 32;

/// What takes groups of [`GROUP`] codes.
struct Taker {
    groups: Groups,
}

impl Taker {
    fn push(&mut self, codes: [u8; GROUP], scale: f32, bias: f32) {
        let Groups { bits, codes: out, scales, biases, .. } = &mut self.groups;
        scales.push(scale);
        biases.push(bias);
        let (mut word, mut filled) = (0u64, 0);
        for code in codes {
            word |= u64::from(code) << filled;
            filled += *bits;
            while filled >= 8 {
                out.push(word as u8);
                word >>= 8;
                filled -= 8;
            }
        }
    }
}

/// The groups of a matrix, if its packing can be said in groups.
pub(crate) fn groups_of(matrix: &Matrix) -> Option<Groups> {
    let bits = match matrix.packing {
        Packing::Int8 { .. } => 8,
        Packing::Gguf(GgufType::Q4_0 | GgufType::Q4_1 | GgufType::Q4K) => 4,
        Packing::Gguf(GgufType::Q5_0 | GgufType::Q5_1 | GgufType::Q5K) => 5,
        Packing::Gguf(GgufType::Q8_0) => 8,
        _ => return None,
    };
    let none = Groups { group: GROUP, bits, codes: vec![], scales: vec![], biases: vec![] };
    let mut taker = Taker { groups: none };
    match matrix.packing {
        Packing::Int8 { group, scale } => signed(matrix, (group as usize, scale), &mut taker),
        Packing::Gguf(ty) => {
            let block = ty.block().1;
            matrix.data.chunks_exact(block).for_each(|bytes| unblock(ty, bytes, &mut taker));
        }
        _ => return None,
    }
    Some(taker.groups)
}

/// Signed bytes, a scale for each group of some columns.
fn signed(matrix: &Matrix, (group, scale): (usize, Float), taker: &mut Taker) {
    let mut scales = vec![0.0; matrix.scales.len() / scale.n_bytes()];
    scale.read(&matrix.scales, &mut scales);
    for (i, bytes) in matrix.data.as_chunks::<GROUP>().0.iter().enumerate() {
        let scale = scales[i * GROUP / group];
        taker.push(bytes.map(|code| code ^ 0x80), scale, -128.0 * scale);
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Code `i` of a block of 32: low nibbles are the first sixteen, high ones the others.
fn nibble(nibbles: &[u8], i: usize) -> u8 {
    nibbles[i % 16] >> (4 * (i / 16)) & 15
}

fn unblock(ty: GgufType, b: &[u8], taker: &mut Taker) {
    let d = half_at(b, 0);
    match ty {
        GgufType::Q4_0 => {
            taker.push(std::array::from_fn(|i| nibble(&b[2..], i)), d, -8.0 * d);
        }
        GgufType::Q4_1 => {
            taker.push(std::array::from_fn(|i| nibble(&b[4..], i)), d, half_at(b, 2));
        }
        GgufType::Q5_0 | GgufType::Q5_1 => {
            let (at, bias) = if ty == GgufType::Q5_0 { (2, -16.0 * d) } else { (4, half_at(b, 2)) };
            let code = |i: usize| nibble(&b[at + 4..], i) | (b[at + i / 8] >> (i % 8) & 1) << 4;
            taker.push(std::array::from_fn(code), d, bias);
        }
        GgufType::Q8_0 => {
            taker.push(std::array::from_fn(|i| b[2 + i] ^ 0x80), d, -128.0 * d);
        }
        GgufType::Q4K | GgufType::Q5K => super_block(ty, b, taker),
        _ => unreachable!("`groups_of` names the types"),
    }
}

/// Eight groups, whose scales and minimums have six bits each.
fn super_block(ty: GgufType, b: &[u8], taker: &mut Taker) {
    let (d, min, packed) = (half_at(b, 0), half_at(b, 2), &b[4..16]);
    // Q5_K has the fifth bits of all codes first, a bit plane for each group.
    let (high, low) = if ty == GgufType::Q5K { b[16..].split_at(32) } else { b[16..].split_at(0) };
    for group in 0..8 {
        let (scale, bias) = if group < 4 {
            (packed[group] & 63, packed[group + 4] & 63)
        } else {
            let upper = |at: usize| packed[at] >> 6 << 4;
            let both = packed[group + 4];
            (both & 15 | upper(group - 4), both >> 4 | upper(group))
        };
        let code = |i: usize| {
            let nibble = low[group / 2 * 32 + i] >> (4 * (group % 2)) & 15;
            nibble | high.get(i).map_or(0, |bits| (bits >> group & 1) << 4)
        };
        let (scale, bias) = (d * f32::from(scale), -min * f32::from(bias));
        taker.push(std::array::from_fn(code), scale, bias);
    }
}
