//! Every instruction set gives the bits of the scalar ops.

use backend::{Activation, BLOCK, NormGain, RopeLayout};
use proptest::prelude::*;

use super::Kernels;
use super::ops::{BlockScores, OpKernels, Running, Scoring};
use super::ops_scalar::OPS;

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Runs `f` with every table and compares with the scalar one.
fn check(f: impl Fn(&OpKernels) -> Vec<f32>) {
    let want = f(&OPS);
    for kernels in Kernels::available() {
        assert_eq!(bits(&f(kernels.ops)), bits(&want), "{:?}", kernels.isa);
    }
}

fn numbers(n: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![-3.0f32..3.0, -120.0f32..120.0], n)
}

fn halfs(n: usize) -> impl Strategy<Value = Vec<u16>> {
    let half = |x: f32| half::f16::from_f32(x).to_bits();
    prop::collection::vec((-4.0f32..4.0).prop_map(half), n)
}

/// Some queries of random head size with a block of keys and values, and which of those they see.
fn attention() -> impl Strategy<Value = (Vec<f32>, Vec<u16>, Vec<BlockScores>, [usize; 2])> {
    let shape = (1usize..10, 1usize..12, 0usize..BLOCK, 0usize..BLOCK);
    shape.prop_flat_map(|(n, eights, a, b)| {
        let weights = prop::collection::vec(prop::array::uniform32(0.0f32..1.0), n);
        let seen = [a.min(b), a.max(b) + 1];
        (numbers(n * 8 * eights), halfs(BLOCK * 8 * eights), weights, Just(seen))
    })
}

proptest! {
    #[test]
    fn rows_have_equal_bits(x in (1usize..90).prop_flat_map(|n| numbers(3 * n)), cap in 0.5f32..50.0) {
        let n = x.len() / 3;
        let (a, b) = x.split_at(n);
        for kind in [NormGain::Stored, NormGain::OnePlus] {
            check(|ops| {
                let mut out = a.to_vec();
                (ops.normalize)(&mut out, &b[..n], kind, 1e-6);
                out
            });
        }
        for act in [Activation::Silu, Activation::GeluTanh, Activation::GeluErf] {
            check(|ops| {
                let mut out = vec![0.0; n];
                (ops.glu)(act, a, &b[..n], &mut out);
                out
            });
        }
        check(|ops| {
            let mut out = a.to_vec();
            (ops.soft_cap)(&mut out, cap);
            out
        });
        check(|ops| {
            let mut out = a.to_vec();
            (ops.softmax)(&mut out);
            out
        });
        for layout in [RopeLayout::Halves, RopeLayout::Interleaved] {
            check(|ops| {
                let mut out = b.to_vec();
                (ops.rotate)(&mut out, layout, &a[..n / 2 * 2]);
                out
            });
        }
    }

    #[test]
    fn attention_has_equal_bits((q, keys, weights, [start, end]) in attention(), cap in 1.0f32..60.0) {
        let n = weights.len();
        check(|ops| {
            let mut out = vec![[f32::NAN; BLOCK]; n];
            (ops.scores)(&q, &keys, &mut out);
            out.concat()
        });
        check(|ops| {
            let mut sums = q.clone();
            (ops.add_values)(&weights, start..end, &keys, &mut sums);
            sums
        });
        for soft_cap in [None, Some(cap)] {
            check(|ops| {
                let (mut scores, mut running) = (weights[0], Running::START);
                let scoring = Scoring { scale: q[0], soft_cap };
                (ops.weigh)(&mut scores, start..end, scoring, &mut running);
                let again = (ops.weigh)(&mut scores, 0..BLOCK, scoring, &mut running);
                [&scores[..], &[running.max, running.sum, again]].concat()
            });
        }
    }
}
