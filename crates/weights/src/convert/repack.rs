//! The GGUF blocks that are affine groups of 32 under another name: which they are, and what scale
//! and bias each group has. The elements themselves come from the definition of the block.

use half::f16;

use crate::{GgufType, Scheme, gguf::blocks::six_bit_pair};

/// Elements of a group.
pub(super) const GROUP: usize = 32;

/// The scheme that holds the same integers, if there is one.
pub(super) fn scheme(ty: GgufType) -> Option<Scheme> {
    let bits = match ty {
        GgufType::Q4_0 | GgufType::Q4_1 | GgufType::Q4K => 4,
        GgufType::Q5_0 | GgufType::Q5_1 | GgufType::Q5K => 5,
        GgufType::Q8_0 => 8,
        GgufType::Q2K | GgufType::Q3K | GgufType::Q6K | GgufType::Iq4Nl | GgufType::Mxfp4 => {
            return None;
        }
    };
    Some(Scheme::Affine { bits, group: GROUP as u16 })
}

/// Scale and bias of group `group` of the row that starts with `row`.
pub(super) fn affine(ty: GgufType, row: &[u8], group: usize) -> (f32, f32) {
    let (len, bytes) = ty.block();
    let block = &row[group * GROUP / len * bytes..][..bytes];
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    match ty {
        GgufType::Q4_0 => (half(0), -8.0 * half(0)),
        GgufType::Q5_0 => (half(0), -16.0 * half(0)),
        GgufType::Q8_0 => (half(0), -128.0 * half(0)),
        GgufType::Q4_1 | GgufType::Q5_1 => (half(0), half(2)),
        GgufType::Q4K | GgufType::Q5K => {
            let (scale, min) = six_bit_pair(&block[4..16], group % (len / GROUP));
            (half(0) * scale, -(half(2) * min))
        }
        GgufType::Q2K | GgufType::Q3K | GgufType::Q6K | GgufType::Iq4Nl | GgufType::Mxfp4 => {
            unreachable!("{ty:?} has no affine groups of {GROUP}")
        }
    }
}
