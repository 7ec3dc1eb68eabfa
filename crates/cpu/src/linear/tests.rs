//! What linear layers promise: the right numbers, and the same bytes however they are computed.

use backend::ops::{DenseOps, Input, Memory, Output, RowNorm};
use backend::{Activation, NormGain};
use proptest::prelude::*;
use weights::{Float, GgufType, Matrix, Packing};

use super::samples::{Random, matrix, packings};
use super::{Finish, Meeting, grouped, linear, pieces};
use crate::{Activations, Buf, Cpu, Isa, Kernels, Options, Weight};

/// All that this machine has.
fn isas() -> impl Iterator<Item = Isa> {
    Kernels::available().map(|kernels| kernels.isa)
}

fn cpu(threads: usize, activations: Activations, isa: Isa) -> Cpu {
    Cpu::new(&Options { threads, activations, isa: Some(isa) })
}

fn buf(cpu: &Cpu, cols: usize, values: &[f32]) -> Buf {
    let mut buf = cpu.buf(values.len());
    buf.reshape(values.len() / cols, cols).copy_from_slice(values);
    buf
}

fn product(cpu: &Cpu, rows: usize, x: &[f32], w: &Weight, bias: Option<&[f32]>) -> Vec<f32> {
    assert_eq!(x.len(), rows * w.cols());
    let mut out = cpu.buf(rows * w.rows());
    let bias = bias.map(|bias| cpu.vector(bias));
    let x = buf(cpu, w.cols(), x);
    linear(cpu, Input::Rows(&x), w, bias.as_ref(), Output::Into(&mut out));
    out.values().to_vec()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The product in f64, and what its terms add up to without their signs.
fn plain_loops(x: &[f32], parts: &[Matrix]) -> Vec<(f64, f64)> {
    let cols = parts[0].cols;
    let mut out = Vec::new();
    for x in x.chunks_exact(cols) {
        for part in parts {
            for row in 0..part.rows {
                let mut w = vec![0.0; cols];
                part.dequantize_row(row, &mut w);
                let terms = || x.iter().zip(&w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                out.push((terms().sum(), terms().map(f64::abs).sum()));
            }
        }
    }
    out
}

#[test]
fn exact_activations_give_the_product() {
    let mut random = Random(1);
    let cpu = cpu(2, Activations::Exact, Isa::Avx2);
    for packing in packings() {
        let parts = [matrix(&mut random, packing, 21, 768), matrix(&mut random, packing, 3, 768)];
        let x = random.floats(5 * 768);
        let got = product(&cpu, 5, &x, &cpu.weight(&parts), None);
        for (got, (want, size)) in got.iter().zip(plain_loops(&x, &parts)) {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 1e-6 * size, "{packing:?}: {got} for {want}");
        }
    }
}

#[test]
fn rounded_activations_stay_close() {
    let mut random = Random(2);
    let cpu = cpu(2, Activations::Int8, Isa::Avx2);
    for packing in packings() {
        let parts = [matrix(&mut random, packing, 40, 1024)];
        let x = random.floats(4 * 1024);
        let got = product(&cpu, 4, &x, &cpu.weight(&parts), None);
        let want = plain_loops(&x, &parts);
        let error: f64 = got.iter().zip(&want).map(|(g, (w, _))| (f64::from(*g) - w).powi(2)).sum();
        let size: f64 = want.iter().map(|(w, _)| w * w).sum();
        // Uniform numbers rounded to 1/127 of the largest: 2 / 127 / sqrt(12) of 0.58.
        let relative = (error / size).sqrt();
        assert!(relative < 0.01, "{packing:?}: relative error {relative}");
    }
}

/// Numbers that 8 bits hold exactly, against codes and activations of the largest size, of one sign
/// and of alternating signs: wherever a kernel could run out of bits, it does here.
#[test]
fn extreme_codes_do_not_overflow() {
    let mut random = Random(3);
    for packing in packings() {
        let ordinary = matrix(&mut random, packing, 16, 512);
        for fill in [0x00, 0x77, 0x7f, 0x80, 0x88, 0xf0, 0x0f, 0xff] {
            let mut extreme = ordinary.clone();
            extreme.data = all_codes(packing, &ordinary.data, fill).into();
            for pattern in [[127.0, 127.0], [127.0, -127.0], [-127.0, -127.0]] {
                let x: Vec<f32> = pattern.into_iter().cycle().take(512).collect();
                let want = plain_loops(&x, std::slice::from_ref(&extreme));
                for isa in isas() {
                    let cpu = cpu(1, Activations::Int8, isa);
                    let got = product(&cpu, 1, &x, &cpu.weight(&[extreme.clone()]), None);
                    for (got, (want, size)) in got.iter().zip(&want) {
                        let close = (f64::from(*got) - want).abs() <= 2e-6 * size;
                        assert!(close, "{packing:?} {fill:#x} on {isa:?}: {got} for {want}");
                    }
                }
            }
        }
    }
}

/// `data` with every code byte replaced; scales inside blocks stay.
fn all_codes(packing: Packing, data: &[u8], fill: u8) -> Vec<u8> {
    // Where what stays starts and ends.
    let keep: &[(usize, usize)] = match packing {
        Packing::Plain(_) => return data.to_vec(),
        Packing::Mxfp8 | Packing::Fp8Blocks { .. } => return vec![fill & 0x7e; data.len()],
        Packing::Gguf(ty) => match ty {
            GgufType::Q4_0 | GgufType::Q5_0 | GgufType::Q8_0 | GgufType::Iq4Nl => &[(0, 2)],
            GgufType::Q4_1 | GgufType::Q5_1 => &[(0, 4)],
            GgufType::Mxfp4 => &[(0, 1)],
            GgufType::Q2K => &[(0, 16), (80, 84)],
            GgufType::Q3K => &[(96, 110)],
            GgufType::Q4K | GgufType::Q5K => &[(0, 16)],
            GgufType::Q6K => &[(192, 210)],
        },
        _ => &[],
    };
    let block = if let Packing::Gguf(ty) = packing { ty.block().1 } else { data.len() };
    let byte = |(i, old): (usize, &u8)| {
        if keep.iter().any(|(start, end)| (*start..*end).contains(&(i % block))) {
            *old
        } else {
            fill
        }
    };
    data.iter().enumerate().map(byte).collect()
}

#[test]
fn what_is_not_finite_shows() {
    let mut random = Random(4);
    for packing in [Packing::Gguf(GgufType::Q4_0), Packing::Plain(Float::F32)] {
        let w = matrix(&mut random, packing, 16, 64);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = random.floats(2 * 64);
            x[70] = bad;
            let cpu = cpu(1, Activations::Int8, Isa::Avx2);
            let out = product(&cpu, 2, &x, &cpu.weight(std::slice::from_ref(&w)), None);
            assert!(out[..16].iter().all(|x| x.is_finite()), "the row before is not touched");
            assert!(out[16..].iter().all(|x| !x.is_finite()), "{packing:?} hides {bad}");
        }
    }
}

#[test]
fn tiny_and_zero_activations_give_zero() {
    let w = matrix(&mut Random(5), Packing::Gguf(GgufType::Q4_1), 16, 64);
    let cpu = cpu(1, Activations::Int8, Isa::Avx2);
    for x in [0.0, -0.0, 1e-45, 1e-38] {
        let out = product(&cpu, 1, &[x; 64], &cpu.weight(std::slice::from_ref(&w)), None);
        assert!(out.iter().all(|out| *out == 0.0), "{x} gives {out:?}");
    }
}

#[test]
fn the_bias_is_added_last() {
    let mut random = Random(6);
    let w = matrix(&mut random, Packing::Gguf(GgufType::Q8_0), 35, 64);
    let (x, bias) = (random.floats(3 * 64), random.floats(35));
    let cpu = cpu(2, Activations::Int8, Isa::Avx2);
    let w = cpu.weight(&[w]);
    let without = product(&cpu, 3, &x, &w, None);
    let with = product(&cpu, 3, &x, &w, Some(&bias));
    let want: Vec<f32> = without.iter().zip(bias.iter().cycle()).map(|(x, b)| x + b).collect();
    assert_eq!(bits(&with), bits(&want));
}

#[test]
fn pieces_cover_every_column() {
    for cols in [1, 31, 32, 255, 256, 576, 768, 800, 896, 1536, 4864, 8960] {
        for most in [256, 768] {
            let all: Vec<_> = pieces(16..32, cols, most).collect();
            assert_eq!((all[0].cols.start, all[all.len() - 1].cols.end), (0, cols));
            for piece in &all {
                assert!(piece.rows == (16..32) && piece.cols.len() <= most);
                assert!(piece.cols.start.is_multiple_of(256));
            }
            assert!(all.windows(2).all(|pair| pair[0].cols.end == pair[1].cols.start));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    /// Neither the instruction set, nor the threads, nor the other rows of a call change a bit.
    #[test]
    fn however_it_is_computed_the_bytes_are_the_same(
        seed in any::<u64>(),
        n_rows in 1..=64usize,
        packing in prop::sample::select(packings()),
        second in prop::sample::select(packings()),
        (outputs, more_outputs) in (1..60usize, 0..20usize),
        n_granules in 1..=4usize,
        exact in any::<bool>(),
    ) {
        let mut random = Random(seed);
        let activations = if exact { Activations::Exact } else { Activations::Int8 };
        let long = packing.granule().max(second.granule()).max(if exact { 1 } else { 32 });
        // Packings without a granule may end anywhere.
        let odd = if long == 1 { random.below(7) } else { 0 };
        let cols = n_granules * long.next_multiple_of(32) + odd;
        let parts = [
            matrix(&mut random, packing, outputs, cols),
            matrix(&mut random, second, more_outputs, cols),
        ];
        let x = random.floats(n_rows * cols);
        let slow = cpu(1, activations, Isa::Scalar);
        let weight = slow.weight(&parts);
        let want = bits(&product(&slow, n_rows, &x, &weight, None));
        let outputs = weight.rows();
        for isa in isas() {
            let cpu = cpu(1 + random.below(4), activations, isa);
            prop_assert_eq!(&bits(&product(&cpu, n_rows, &x, &weight, None)), &want);
            let mut row = 0;
            while row < n_rows {
                let n = 1 + random.below((n_rows - row).min(9));
                let x = &x[row * cols..(row + n) * cols];
                let got = bits(&product(&cpu, n, x, &weight, None));
                prop_assert_eq!(&got[..], &want[row * outputs..(row + n) * outputs]);
                row += n;
            }
        }
    }

    /// A layer that norms, adds or gates gives the bits of the ops one after the other.
    #[test]
    fn fused_is_what_the_ops_give_one_by_one(
        seed in any::<u64>(),
        n_rows in 1..=140usize,
        packing in prop::sample::select(packings()),
        second in prop::sample::select(packings()),
        half in 1..60usize,
        threads in 1..=3usize,
    ) {
        let mut random = Random(seed);
        let cols = packing.granule().max(second.granule()).next_multiple_of(32);
        // The halves end inside a panel, and the parts where they like.
        let cut = random.below(2 * half + 1);
        let parts = [
            matrix(&mut random, packing, cut, cols),
            matrix(&mut random, second, 2 * half - cut, cols),
        ];
        let (x, y) = (random.floats(n_rows * cols), random.floats(n_rows * 2 * half));
        let (gain, bias) = (random.floats(cols), random.floats(2 * half));
        let cpu = Cpu::new(&Options { threads, ..Options::default() });
        let (w, gain, bias) = (cpu.weight(&parts), cpu.vector(&gain), cpu.vector(&bias));
        let norm = RowNorm::rms(&gain, NormGain::OnePlus, 1e-6);
        let x = buf(&cpu, cols, &x);
        let bias = Some(&bias);
        let mut normed = cpu.buf(n_rows * cols);
        cpu.norm(&x, norm, &mut normed);
        let mut plain = cpu.buf(n_rows * 2 * half);
        cpu.linear(Input::Rows(&normed), &w, bias, Output::Into(&mut plain));
        let mut out = cpu.buf(n_rows * 2 * half);
        cpu.linear(Input::Normed { x: &x, norm }, &w, bias, Output::Into(&mut out));
        prop_assert_eq!(bits(out.values()), bits(plain.values()));

        let mut want = buf(&cpu, 2 * half, &y);
        cpu.add(&mut want, &plain, 1.0);
        let mut got = buf(&cpu, 2 * half, &y);
        cpu.linear(Input::Normed { x: &x, norm }, &w, bias, Output::Onto(&mut got));
        prop_assert_eq!(bits(got.values()), bits(want.values()));

        let ones = vec![1.0; half];
        let halves = plain.values().chunks_exact(half).flat_map(|gates| [gates, &ones].concat());
        let with_ones = buf(&cpu, 2 * half, &halves.collect::<Vec<f32>>());
        let mut activated = cpu.buf(n_rows * 2 * half);
        for act in Activation::ALL {
            cpu.glu(&with_ones, act, &mut want);
            cpu.linear(Input::Rows(&normed), &w, bias, Output::Activated(act, &mut activated));
            prop_assert_eq!(bits(activated.values()), bits(want.values()));
            cpu.glu(&plain, act, &mut want);
            cpu.linear(Input::Rows(&normed), &w, bias, Output::Gated(act, &mut got));
            prop_assert_eq!(bits(got.values()), bits(want.values()));
        }
    }

    /// Experts computed together are what each gives alone.
    #[test]
    fn groups_are_what_each_gives_alone(
        seed in any::<u64>(),
        packing in prop::sample::select(packings()),
        inner in 1..40usize,
        n_experts in 1..6usize,
        stacked in any::<bool>(),
    ) {
        let mut random = Random(seed);
        let cols = packing.granule().next_multiple_of(32);
        let all = matrix(&mut random, packing, inner * n_experts, cols);
        // Cut at places that are no borders of experts, unless stacked in one part.
        let cut = all.rows / 2;
        let cpu = cpu(2, Activations::Int8, Isa::Avx2);
        let weight = if stacked || matches!(packing, Packing::Fp8Blocks { .. }) {
            cpu.weight(&[all])
        } else {
            cpu.weight(&[all.rows_range(0..cut), all.rows_range(cut..inner * n_experts)])
        };
        let mut groups = Vec::new();
        let mut n_rows = 0;
        for expert in 0..n_experts {
            let rows = n_rows..n_rows + random.below(4);
            n_rows = rows.end;
            groups.push(Meeting { rows, outputs: expert * inner..(expert + 1) * inner });
        }
        let x = random.floats(n_rows * cols);
        let mut together = cpu.buf(n_rows * inner);
        let out = (Finish::Set, &mut together);
        grouped(&cpu, &buf(&cpu, cols, &x), (&weight, None), &groups, out);
        for group in groups.iter().filter(|group| !group.rows.is_empty()) {
            let x = &x[group.rows.start * cols..group.rows.end * cols];
            let alone = product(&cpu, group.rows.len(), x, &weight, None);
            for (row, alone) in group.rows.clone().zip(alone.chunks(weight.rows())) {
                prop_assert_eq!(bits(together.row(row)), bits(&alone[group.outputs.clone()]));
            }
        }
    }
}
