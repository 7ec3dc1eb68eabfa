//! Kernels in plain Rust, inlined into each instruction set's own functions and vectorised there by
//! the compiler. No arithmetic here depends on how wide that turns out.

/// See [`super::Kernels::dot`].
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let ((a16, a_rest), (b16, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut lanes = [0.0f32; 16];
    for (a, b) in a16.iter().zip(b16) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane = a.mul_add(*b, *lane);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane = a.mul_add(*b, *lane);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// See [`super::Kernels::axpy`].
#[inline(always)]
pub(super) fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len());
    for (y, x) in y.iter_mut().zip(x) {
        *y = a.mul_add(*x, *y);
    }
}

/// See [`super::Kernels::widen`].
#[inline(always)]
pub(super) fn widen(x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    for (out, x) in out.iter_mut().zip(x) {
        *out = f16_to_f32(*x);
    }
}

/// The value of an f16, by moving its exponent and fraction into an f32 whose exponent is then
/// corrected by one exact multiplication, which also takes care of subnormals.
#[inline(always)]
pub(super) fn f16_to_f32(x: u16) -> f32 {
    let sign = (u32::from(x) & 0x8000) << 16;
    let magnitude = (u32::from(x) & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let bits = if magnitude >= 0x7c00 << 13 { special } else { finite };
    f32::from_bits(sign | bits)
}
