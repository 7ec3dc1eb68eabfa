//! Every instruction set gives the bits of the scalar kernels.

use super::{Kernels, scalar};
use crate::rounded::{GROUP, Rounded};

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next() * (10.0 * next()).exp2()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn floats_have_equal_bits() {
    for kernels in Kernels::available() {
        for n in 0..100 {
            let (a, b) = (numbers(n, 1), numbers(n, 2));
            let (mut got, mut want) = (b.clone(), b);
            (kernels.axpy)(0.3, &a, &mut got);
            (scalar::KERNELS.axpy)(0.3, &a, &mut want);
            assert_eq!(bits(&got), bits(&want), "axpy of {n} on {:?}", kernels.isa);
        }
    }
}

#[test]
fn narrowing_rounds_to_even() {
    let x: Vec<f32> = numbers(1000, 5).into_iter().chain([1.0 + 2f32.powi(-11), 1e-8]).collect();
    for kernels in Kernels::available() {
        let mut got = vec![0; x.len()];
        (kernels.narrow)(&x, &mut got);
        let want: Vec<u16> = x.iter().map(|x| half::f16::from_f32(*x).to_bits()).collect();
        assert_eq!(got, want, "{:?}", kernels.isa);
    }
}

#[test]
fn rounded_activations_have_equal_bits() {
    let mut x = numbers(64 * GROUP, 9);
    // Ties, the ends of the range, and what is not finite.
    for (i, odd) in [0.5, 1.5, -2.5, 127.0, -127.0, 0.0, 1e-37].into_iter().enumerate() {
        x[i] = odd;
    }
    (x[40], x[70], x[100]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    x[128..160].fill(0.0);
    x[160..192].fill(5e-37);
    let round = |kernels: &Kernels, x: &[f32]| {
        let mut out = vec![Rounded::default(); x.len() / GROUP];
        (kernels.round)(x, &mut out);
        out
    };
    let floats = |x: &Rounded| {
        let of_halves = x.half_weighted;
        [x.scale, x.weighted, of_halves[0], of_halves[1]]
            .map(|x| (!x.is_nan()).then(|| x.to_bits()))
    };
    // Some instruction sets take groups together: other ones where there are more or fewer.
    for x in [&x[..], &x[..3 * GROUP], &x[GROUP..14 * GROUP]] {
        let want = round(&scalar::KERNELS, x);
        for kernels in Kernels::available() {
            for (got, want) in round(kernels, x).iter().zip(&want) {
                assert_eq!((got.codes, got.sum), (want.codes, want.sum), "{:?}", kernels.isa);
                assert_eq!(got.half_sums, want.half_sums, "{:?}", kernels.isa);
                assert_eq!(floats(got), floats(want), "{:?}", kernels.isa);
            }
        }
    }
}
