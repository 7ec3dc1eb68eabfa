//! Activations rounded to 8 bits, in groups with a scale of their own.
//!
//! `x ~ scale * code` with `scale = max |x| / 127` over the group, codes rounded to nearest, ties to
//! even. A row's groups depend on nothing but the row.

use crate::pack;

/// Activations that share a scale.
pub(crate) const GROUP: usize = 32;

/// One group, with what every product with it needs: a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rounded {
    /// From -127 to 127.
    pub(crate) codes: [i8; GROUP],
    /// What a code of one stands for. Zero if the group is nothing but zeros; not finite if the
    /// group is not.
    pub(crate) scale: f32,
    /// Sum of the codes.
    pub(crate) sum: i32,
    /// `scale * sum`.
    pub(crate) weighted: f32,
    /// Sums of the codes of either half.
    pub(crate) half_sums: [i32; 2],
    /// `scale * half_sums`.
    pub(crate) half_weighted: [f32; 2],
    /// `-8 * sum`: what products with 4-bit codes around 8 start from.
    pub(crate) from_eight: i32,
}

impl Rounded {
    /// Groups in which nothing is as large count as zeros.
    pub(crate) const SMALLEST: f32 = 1e-36;
    /// The code of a group's largest magnitude.
    pub(crate) const LARGEST_CODE: f32 = 127.0;

    /// The scale of a group with largest magnitude `largest`, and what to multiply numbers with to
    /// get codes. Groups whose inverse would overflow count as zero; those with an infinity or a NaN
    /// get codes of zero and a scale that makes every product a NaN.
    #[inline(always)]
    pub(crate) fn scale_of(largest: f32) -> (f32, f32) {
        if largest < Rounded::SMALLEST {
            (0.0, 0.0)
        } else if largest < f32::INFINITY {
            (largest / Rounded::LARGEST_CODE, Rounded::LARGEST_CODE / largest)
        } else {
            (f32::NAN, 0.0)
        }
    }

    /// Sets everything but the codes.
    #[inline(always)]
    pub(crate) fn describe(&mut self, scale: f32, half_sums: [i32; 2]) {
        self.scale = scale;
        self.sum = half_sums[0] + half_sums[1];
        self.weighted = scale * self.sum as f32;
        self.half_sums = half_sums;
        self.half_weighted = half_sums.map(|sum| scale * sum as f32);
        self.from_eight = -8 * self.sum;
    }

    /// Sum and weighted sum over one group of a coding: part 0 or 1 of this group.
    #[inline(always)]
    pub(crate) fn sums_of(&self, group: pack::Group, part: usize) -> (i32, f32) {
        match group {
            pack::Group::Of32 => (self.sum, self.weighted),
            pack::Group::Of16 => (self.half_sums[part], self.half_weighted[part]),
        }
    }
}
