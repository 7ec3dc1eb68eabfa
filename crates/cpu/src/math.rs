//! Functions of one number, from IEEE operations alone: the same bits on every platform, and plain
//! enough that the compiler turns a loop over them into vector code of any width.
//!
//! Not a libm: each is as accurate as the op that uses it needs, and says how much that is. They
//! are inlined everywhere, because a fused multiply-add is only fast inside a function that was
//! compiled for an instruction set that has one.

/// `e^x` within 2 units in the last place. Flushes to zero below -87.3 and is infinite above 88.3,
/// a little before f32 ends on either side.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// `1.5 * 2^23`: adding it leaves the nearest integer in the low bits of the sum.
    const SHIFT: f32 = 12_582_912.0;
    /// `ln 2` in two parts, the first so short that its multiples are exact.
    const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// Of `(e^r - 1 - r) / r^2` for `|r| <= ln 2 / 2`, from the highest power down.
    const TAIL: [f32; 5] = [1.381_46e-3, 8.368_717e-3, 4.166_839e-2, 1.666_652_1e-1, 0.499_999_94];
    let inside = clamp(x, -87.3, 88.3);
    let shifted = inside.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = n.mul_add(-LN2[1], n.mul_add(-LN2[0], inside));
    let fraction = polynomial(&TAIL, r).mul_add(r * r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    let y = fraction * power;
    let y = if x < -87.3 { 0.0 } else { y };
    if x > 88.3 { f32::INFINITY } else { y }
}

/// `2^x` for `x <= 0`, within 3 units in the last place down to -126. Flushes to zero below -126.5.
#[inline(always)]
pub(crate) fn exp2_below_one(x: f32) -> f32 {
    /// `1.5 * 2^23 + 127`: adding it leaves the nearest integer in the low bits of the sum, biased
    /// as an exponent is.
    const SHIFT: f32 = 12_583_039.0;
    /// Of `2^r` for `|r| <= 1/2`, from the highest power down.
    #[allow(clippy::approx_constant, reason = "the best polynomial does not begin as the series")]
    const POWER: [f32; 6] =
        [1.326_472_1e-3, 9.671_513e-3, 5.550_733_6e-2, 2.402_224_2e-1, 6.931_47e-1, 1.0];
    let inside = if x < -127.0 { -127.0 } else { x };
    let shifted = inside + SHIFT;
    let r = inside - (shifted - SHIFT);
    polynomial(&POWER, r) * f32::from_bits(shifted.to_bits() << 23)
}

/// `1 / (1 + e^-x)` within 4 units in the last place, down to where it is about 1e-38.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `max(x, 0)`.
#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

/// `max(x, 0)^2`.
#[inline(always)]
pub(crate) fn relu_squared(x: f32) -> f32 {
    relu(x) * relu(x)
}

/// `ln(1 + e^x)` within 4 units in the last place, down to where it is about 1e-38.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    /// Of `atanh(s) / s` in `s^2`, for `s <= 1/3`, from the highest power down.
    const SERIES: [f32; 7] =
        [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    let small = exp(-x.abs());
    // ln(1 + u) is twice the inverse hyperbolic tangent of u / (2 + u).
    let s = small / (2.0 + small);
    let log = 2.0 * s * polynomial(&SERIES, s * s);
    let above = if x > 0.0 { x } else { 0.0 };
    above + log
}

/// [`softplus`] in f64.
pub(crate) fn wide_softplus(x: f32) -> f64 {
    let x = f64::from(x);
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

/// `g * sigmoid(slope * g) * (u + 1)` where `g = min(gate, limit)` and `u` is `up` moved into
/// `-limit..=limit`.
#[inline(always)]
pub(crate) fn clamped_swish(gate: f32, up: f32, slope: f32, limit: f32) -> f32 {
    let gate = if gate > limit { limit } else { gate };
    gate * sigmoid(slope * gate) * (clamp(up, -limit, limit) + 1.0)
}

/// `tanh x` within 4 units in the last place.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    /// Of `(tanh(x) / x - 1) / x^2` in `x^2`, for `|x| <= 0.64`.
    const SMALL: [f32; 5] =
        [-5.591_016_3e-3, 2.053_882e-2, -5.370_965_6e-2, 1.333_109_3e-1, -3.333_327e-1];
    let size = x.abs();
    let square = x * x;
    let small = (polynomial(&SMALL, square) * square).mul_add(size, size);
    let large = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    let y = if size < 0.63 { small } else { large };
    y.copysign(x)
}

/// GELU by its tanh approximation: `x * (1 + tanh(u)) / 2`, which is `x * sigmoid(2 u)`. Within 24
/// units in the last place down to -3, where it becomes negligible.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    /// Twice the square root of `2 / pi`.
    const TWICE: f32 = 1.595_769;
    let cube = x * x * x;
    x * sigmoid(TWICE * cube.mul_add(0.044_715, x))
}

/// GELU by the error function: `x * (1 + erf(x / sqrt 2)) / 2`, within 12 units in the last place.
#[inline(always)]
pub(crate) fn gelu_erf(x: f32) -> f32 {
    /// Of `erf(z) / z` in `z^2`, for `|z| <= 1`.
    const SMALL: [f32; 7] = [
        7.853_861_5e-5,
        -8.010_193_7e-4,
        5.188_327_7e-3,
        -2.685_379_4e-2,
        1.128_358_54e-1,
        -3.761_262_6e-1,
        std::f32::consts::FRAC_2_SQRT_PI,
    ];
    /// Of `erfc(z) * e^(z^2)` in `1 / (z + 2)`, for `0.99 <= z <= 10`.
    const LARGE: [f32; 9] = [
        20.544_899,
        -23.432_384,
        1.437_266_2,
        3.431_870_2,
        2.515_168_7,
        2.025_591_9,
        1.123_809_2,
        0.564_405_86,
        -4.240_804e-6,
    ];
    // Beyond 14 nothing is left of the tail.
    let size = clamp(x.abs(), 0.0, 14.0);
    let z = size * std::f32::consts::FRAC_1_SQRT_2;
    let inner = 0.5 * (polynomial(&SMALL, z * z) * z);
    // What rounding took from the exponent is put back to first order.
    let half_square = 0.5 * size * size;
    let lost = (0.5 * size).mul_add(size, -half_square);
    let tail = exp(-half_square) * (1.0 - lost) * polynomial(&LARGE, 1.0 / (z + 2.0)) * 0.5;
    // The normal distribution's weight above `size`.
    let above = if z < 1.0 { 0.5 - inner } else { tail };
    let below = if x < 0.0 { above } else { 1.0 - above };
    x * below
}

/// `x` moved into `low..=high`; not a number stays what it is.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// Horner's rule, coefficients from the highest power down.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut y = coefficients[0];
    for c in &coefficients[1..] {
        y = y.mul_add(x, *c);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with an f64 function over `low..high`, in units of the last place of the result.
    fn check(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, range: [f32; 2], ulps: f64) {
        let n = 40_000;
        for i in 0..=n {
            let x = range[0] + (range[1] - range[0]) * (i as f32 / n as f32);
            let want = exact(f64::from(x));
            let ulp = f64::from(f32::from_bits((want as f32).abs().to_bits() + 1))
                - f64::from((want as f32).abs());
            let off = (f64::from(f(x)) - want).abs() / ulp;
            assert!(off <= ulps, "at {x:e}: {:e}, not {want:e}, {off} units off", f(x));
        }
    }

    #[test]
    fn functions_are_accurate() {
        check(exp, libm::exp, [-87.2, 88.2], 2.0);
        check(exp, libm::exp, [-1.0, 1.0], 2.0);
        check(exp2_below_one, libm::exp2, [-126.0, 0.0], 3.0);
        check(exp2_below_one, libm::exp2, [-2.0, 0.0], 3.0);
        check(sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), [-86.0, 30.0], 4.0);
        check(silu, |x| x / (1.0 + libm::exp(-x)), [-86.0, 30.0], 4.0);
        check(softplus, |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())), [-86.0, 30.0], 4.0);
        for range in [[-1.0, 1.0], [-20.0, 20.0], [-1e-3, 1e-3]] {
            check(tanh, libm::tanh, range, 4.0);
        }
        let gelu = |x: f64| 0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2);
        check(gelu_erf, gelu, [-12.0, 10.0], 12.0);
        let approximation = |x: f64| {
            let twice = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
            x / (1.0 + libm::exp(-twice * (x + 0.044715 * x * x * x)))
        };
        check(gelu_tanh, approximation, [-3.0, 10.0], 24.0);
    }

    #[test]
    fn ends_are_what_they_should_be() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(1000.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp2_below_one(0.0), 1.0);
        assert_eq!(exp2_below_one(-127.0), 0.0);
        assert_eq!(exp2_below_one(f32::NEG_INFINITY), 0.0);
        assert!(exp2_below_one(f32::NAN).is_nan());
        assert_eq!(tanh(100.0), 1.0);
        assert_eq!(tanh(-100.0), -1.0);
        assert_eq!(tanh(0.0), 0.0);
        assert_eq!(silu(-1000.0), 0.0);
        assert_eq!(silu(1000.0), 1000.0);
        assert_eq!(softplus(-1000.0), 0.0);
        assert_eq!(softplus(1000.0), 1000.0);
        assert!(softplus(f32::NAN).is_nan());
        assert_eq!(gelu_erf(1000.0), 1000.0);
        assert_eq!(gelu_erf(-1000.0), 0.0);
        assert_eq!(gelu_tanh(-1000.0), 0.0);
    }
}
