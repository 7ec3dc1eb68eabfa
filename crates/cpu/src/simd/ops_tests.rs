//! Every instruction set gives the bits of the scalar ops.

use std::ops::Range;

use backend::{Activation, BLOCK, KvFormat, NormGain, RopeLayout};
use proptest::prelude::*;

use super::ops::{BlockScores, OpKernels, Running};
use super::ops_delta::{Convolution, ConvolutionEnd, Decay, DeltaStep, STATE_COLS, Write};
use super::ops_scalar::OPS;
use super::{Kernels, Keys, Queries, Values, keys_head, values_head};
use crate::pack::FloatPanel;

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

/// Blocks of `cols` columns in every format, the one in 8 bits with so many bytes before its codes.
fn block(cols: usize, head: usize) -> impl Strategy<Value = [Vec<u8>; 3]> {
    let half = |x: f32| half::f16::from_f32(x).to_le_bytes();
    let halfs = prop::collection::vec((-4.0f32..4.0).prop_map(half), BLOCK * cols);
    let scale = |x: f32| half::bf16::from_f32(x).to_le_bytes();
    let scales = move |n| prop::collection::vec((0.0f32..0.1).prop_map(scale), n);
    let codes = prop::collection::vec(-127i8..=127, BLOCK * cols);
    // Also such that sums of products leave 32 bits, which no real block's do.
    let wholes = prop::collection::vec(any::<i16>().prop_map(i16::to_le_bytes), BLOCK * cols);
    (halfs, scales(head / 2), codes, scales(BLOCK), wholes).prop_map(
        |(halfs, head, codes, scales, wholes)| {
            let codes = codes.into_iter().map(|code| code as u8);
            let codes = head.into_iter().flatten().chain(codes).collect();
            [[scales.concat(), wholes.concat()].concat(), halfs.concat(), codes]
        },
    )
}

/// What some queries have to do with a block: `16 * sixteens` columns, and the keys that are seen.
#[derive(Clone, Debug)]
struct Attending {
    q: Vec<f32>,
    /// In the order of [`KvFormat::ALL`].
    keys: [Vec<u8>; 3],
    values: [Vec<u8>; 3],
    weights: Vec<BlockScores>,
    seen: Range<usize>,
}

fn attending() -> impl Strategy<Value = Attending> {
    let shape = (1usize..20, 1usize..10, seen(1));
    shape.prop_flat_map(|(n, sixteens, seen)| {
        let cols = 16 * sixteens;
        let weight = prop_oneof![9 => 0.0f32..1.0, 1 => Just(0.0)];
        let weights = prop_oneof![
            8 => prop::array::uniform32(weight),
            1 => prop::array::uniform32(0.0f32..1e-31),
            1 => Just([0.0; BLOCK]),
        ];
        let weights = prop::collection::vec(weights, n);
        let keys = block(cols, keys_head(KvFormat::Int8, cols));
        let values = block(cols, values_head(KvFormat::Int8, cols));
        (numbers(n * cols), keys, values, weights).prop_map(move |(q, keys, values, weights)| {
            Attending { q, keys, values, weights, seen: seen.clone() }
        })
    })
}

/// Some keys of `n_blocks` blocks.
fn seen(n_blocks: usize) -> impl Strategy<Value = Range<usize>> {
    let key = 0..n_blocks * BLOCK;
    (key.clone(), key).prop_map(|(a, b)| a.min(b)..a.max(b) + 1)
}

/// Scores of some queries with some blocks, and what they see.
fn scored() -> impl Strategy<Value = (Vec<BlockScores>, usize, Range<usize>)> {
    (1usize..4, 1usize..6).prop_flat_map(|(stride, n_blocks)| {
        let scores =
            prop::collection::vec(prop::array::uniform32(-60.0f32..60.0), stride * n_blocks);
        (scores, Just(stride), seen(n_blocks))
    })
}

/// Some panels of a few columns, and a number for each lane.
fn panels() -> impl Strategy<Value = (Vec<f32>, Vec<f32>, usize)> {
    (1usize..5, 1usize..20)
        .prop_flat_map(|(n, cols)| (numbers(16 * n), numbers(16 * n * cols), Just(cols)))
}

/// What an earlier sequence left in a block must not be seen, be it no number at all.
#[test]
fn values_that_weigh_nothing_show_in_nothing() {
    let (nan, one) = (half::bf16::NAN.to_le_bytes(), half::bf16::ONE.to_le_bytes());
    let scales = (0..BLOCK).flat_map(|key| if key < 5 { one } else { nan });
    let codes = (0..BLOCK * 16).flat_map(|_| 3i16.to_le_bytes());
    let values: Vec<u8> = scales.chain(codes).collect();
    let mut weights = [0.0; BLOCK];
    weights[..5].fill(0.5);
    for kernels in Kernels::available() {
        let mut sums = [0.0; 16];
        let values = Values::new(KvFormat::Int16, 16, &values);
        (kernels.ops.add_values)(&[weights], 0..BLOCK, values, &mut sums);
        assert!(sums.iter().all(|sum| (sum - 7.5).abs() < 1e-3), "{:?}: {sums:?}", kernels.isa);
    }
}

proptest! {
    #[test]
    fn sums_over_lanes_have_equal_bits((x, w, cols) in panels()) {
        let panel = |w: &[f32]| {
            let mut panel = FloatPanel { cols, ..FloatPanel::default() };
            panel.values[..cols].copy_from_slice(w.as_chunks().0);
            panel
        };
        let panels: Vec<FloatPanel> = w.chunks(16 * cols).map(panel).collect();
        check(|ops| {
            let mut out = vec![f32::NAN; cols];
            (ops.combine)(&x, &panels, &mut out);
            out
        });
    }

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
        check(|ops| {
            let mut out = a.to_vec();
            (ops.center)(&mut out);
            out
        });
        for act in Activation::ALL {
            check(|ops| {
                let mut out = vec![0.0; n];
                (ops.glu)(act, a, &b[..n], &mut out);
                out
            });
            check(|ops| {
                let mut out = a.to_vec();
                (ops.activate)(act, &mut out);
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
            (ops.gate)(&mut out, &b[..n]);
            out
        });
        check(|ops| {
            let mut out = a.to_vec();
            (ops.softmax)(&mut out);
            out
        });
        for odd in [None, Some(f32::NAN), Some(f32::INFINITY), Some(1e-20), Some(1e25)] {
            let mut x = a.to_vec();
            odd.iter().for_each(|odd| x[0] = *odd);
            check(|ops| {
                let mut codes = [vec![0; n], vec![0; n]];
                let scale = f32::from((ops.round_stored)(&x, &mut codes[0]));
                let codes_of = |codes: &[i16]| codes.iter().map(|code| f32::from(*code)).collect();
                let query = (ops.round_query)(&x, &mut codes[1]);
                let codes: Vec<Vec<f32>> = codes.iter().map(|codes| codes_of(codes)).collect();
                [codes.concat(), vec![scale, query]].concat()
            });
        }
        for layout in [RopeLayout::Halves, RopeLayout::Interleaved] {
            check(|ops| {
                let mut out = b.to_vec();
                (ops.rotate)(&mut out, layout, &a[..n / 2 * 2]);
                out
            });
        }
    }

    #[test]
    fn products_have_equal_bits(Attending { q, keys, values, weights, seen } in attending()) {
        let cols = q.len() / weights.len();
        let mut codes = vec![0; q.len()];
        let queries = q.chunks_exact(cols).zip(codes.chunks_exact_mut(cols));
        let scales: Vec<f32> = queries.map(|(q, codes)| (OPS.round_query)(q, codes)).collect();
        let queries = Queries { floats: &q, codes: &codes, scales: &scales };
        for (i, format) in KvFormat::ALL.into_iter().enumerate() {
            let (keys, values) =
                (Keys::new(format, cols, &keys[i]), Values::new(format, cols, &values[i]));
            check(|ops| {
                let mut out = vec![[f32::NAN; BLOCK]; weights.len()];
                (ops.scores)(queries, keys, &mut out);
                out.concat()
            });
            if format != KvFormat::Int16 {
                check(|ops| {
                    let mut out = vec![[f32::NAN; BLOCK]; weights.len()];
                    (ops.scores_by_row)(&q, values, &mut out);
                    out.concat()
                });
            }
            // Also to nothing, where the least shows.
            for start in [q.clone(), vec![0.0; q.len()]] {
                check(|ops| {
                    let mut sums = start.clone();
                    (ops.add_values)(&weights, seen.clone(), values, &mut sums);
                    sums
                });
            }
        }
    }

    #[test]
    fn recurrent_steps_have_equal_bits(
        (n, numbers) in (1usize..40).prop_flat_map(|n| (Just(n), numbers(34 * n + 64))),
        decay in 0.0f32..1.0,
        beta in 0.0f32..1.0,
    ) {
        let (state, rest) = numbers.split_at(STATE_COLS * n);
        let (q, rest) = rest.split_at(n);
        let (k, v) = rest.split_at(n);
        let v = &v.as_chunks().0[0];
        let decays: Vec<f32> = q.iter().map(|x| x.abs() / 120.0).collect();
        for decay in [Decay::All(decay), Decay::Rows(&decays)] {
            for write in [Write::Values, Write::Difference(beta)] {
                check(|ops| {
                    let mut state = state.as_chunks().0.to_vec();
                    let mut out = [0.0; STATE_COLS];
                    (ops.delta)(&mut state, DeltaStep { q, k, v, decay, write }, &mut out);
                    [state.concat(), out.to_vec()].concat()
                });
            }
        }
        check(|ops| {
            let mut out = q.to_vec();
            (ops.decays)(&mut out, k, beta);
            out
        });
        let (rows, taps) = numbers.split_at(17 * n);
        for (bias, end) in [(None, ConvolutionEnd::Silu), (Some(q), ConvolutionEnd::Plain)] {
            check(|ops| {
                let mut out = vec![0.0; n];
                let (stride, tap_stride, n_taps) = (n + 1, n, 4);
                let convolution =
                    Convolution { rows, stride, taps, tap_stride, n_taps, bias, end };
                (ops.convolve)(convolution, &mut out);
                out
            });
        }
    }

    #[test]
    fn softmaxes_have_equal_bits((scores, stride, seen) in scored(), cap in 1.0f32..60.0) {
        for cap in [None, Some(cap)] {
            check(|ops| {
                let mut scores = scores.clone();
                let mut running = (ops.weigh)(&mut scores, stride, seen.clone(), cap);
                let later = Running { max: scores[0][1], sum: scores[0][2] };
                let (mut sums, later_sums) = (scores[0], scores[scores.len() - 1]);
                (ops.merge)(&mut running, &mut sums, later, &later_sums);
                [scores.concat(), sums.to_vec(), vec![running.max, running.sum]].concat()
            });
        }
    }

    #[test]
    fn merging_is_one_softmax((scores, _, seen) in scored()) {
        let run = |mut blocks: Vec<BlockScores>, seen: Range<usize>| {
            let running = (OPS.weigh)(&mut blocks, 1, seen, None);
            (running, blocks.concat())
        };
        let (Running { max, sum: total }, weights) = run(scores.clone(), seen.clone());
        let mut merged = (Running::START, vec![0.0; weights.len()]);
        for (i, block) in scores.iter().enumerate() {
            let inside = |key: usize| key.clamp(i * BLOCK, (i + 1) * BLOCK) - i * BLOCK;
            let seen = inside(seen.start)..inside(seen.end);
            if !seen.is_empty() {
                let (later, weights) = run(vec![*block], seen);
                let mut sums = vec![0.0; merged.1.len()];
                sums[i * BLOCK..][..BLOCK].copy_from_slice(&weights);
                (OPS.merge)(&mut merged.0, &mut merged.1, later, &sums);
            }
        }
        for (got, want) in merged.1.iter().zip(&weights) {
            let (got, want) = (got / merged.0.sum, want / total);
            prop_assert!((got - want).abs() < 1e-6, "{got}, not {want}");
        }
        prop_assert_eq!(merged.0.max, max);
    }
}
