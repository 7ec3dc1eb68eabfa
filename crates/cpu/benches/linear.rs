//! Speed of linear layers by packing and number of rows: bytes of weights read per second, and
//! multiply-adds per second.
//!
//! `cargo bench -p hearth-cpu --bench linear -- [threads [isa [part of a packing's name [rows [outputs]]]]]`
//!
//! Elements are arbitrary bytes; only the time is looked at, and it does not depend on them unless
//! scales are subnormal.

use std::time::Instant;

use backend::ops::{DenseOps, Input, Memory, Output};
use hearth_cpu::{Activations, Cpu, Isa, Options};
use weights::{Float, GgufType, Matrix, Packing};

/// Outputs of the layer, unless others are asked for: more bytes than the caches hold, as in a real
/// model.
const OUTPUTS: usize = 32_768;
/// Columns of the layer.
const COLS: usize = 1536;
const ROWS: [usize; 4] = [1, 4, 8, 128];
/// Every figure is the median of this many runs.
const RUNS: usize = 31;

fn main() {
    let args: Vec<String> = std::env::args().filter(|arg| !arg.starts_with("--")).collect();
    let isa = args.get(2).and_then(|name| Isa::named(name));
    let threads = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let wanted = args.get(3).cloned().unwrap_or_default().to_lowercase();
    let cpu = Cpu::new(&Options { threads, activations: Activations::Int8, isa });
    let rows = args.get(4).and_then(|rows| rows.parse().ok());
    let outputs = args.get(5).and_then(|outputs| outputs.parse().ok()).unwrap_or(OUTPUTS);
    println!("{} threads, {}, {outputs} x {COLS}", cpu.threads(), cpu.isa());
    println!("{:<44} rows       ms    GB/s  GMAC/s", "packing");
    for packing in packings() {
        let name = format!("{packing:?}");
        if name.to_lowercase().contains(&wanted) {
            match rows {
                Some(rows) => measure(&cpu, &name, packing, (rows, outputs)),
                None => {
                    ROWS.iter().for_each(|rows| measure(&cpu, &name, packing, (*rows, outputs)))
                }
            }
        }
    }
}

fn measure(cpu: &Cpu, name: &str, packing: Packing, (rows, outputs): (usize, usize)) {
    let matrix = matrix(packing, outputs);
    let n_bytes = matrix.data.len() + matrix.scales.len() + matrix.biases.len();
    let weight = cpu.weight(&[matrix]);
    let mut x = cpu.buf(rows * COLS);
    for (i, x) in x.reshape(rows, COLS).iter_mut().enumerate() {
        *x = (i % 97) as f32 * 0.1 - 4.0;
    }
    let mut out = cpu.buf(rows * outputs);
    let mut seconds: Vec<f64> = (0..=RUNS)
        .map(|_| {
            let start = Instant::now();
            cpu.linear(Input::Rows(&x), &weight, None, Output::Into(&mut out));
            start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds[RUNS / 2];
    let macs = (rows * outputs * COLS) as f64;
    println!(
        "{name:<44} {rows:>4} {:>8.2} {:>7.2} {:>7.1}",
        median * 1e3,
        n_bytes as f64 / median / 1e9,
        macs / median / 1e9
    );
}

fn packings() -> Vec<Packing> {
    use GgufType::*;
    let affine = |bits, group| Packing::Affine { bits, group, scale: Float::Bf16 };
    let mut all = vec![Packing::Plain(Float::F32), Packing::Plain(Float::Bf16)];
    all.extend([affine(4, 64), affine(8, 64), affine(2, 64), affine(3, 64), affine(6, 64)]);
    all.extend([Packing::Mxfp4, Packing::Nvfp4, Packing::Mxfp8]);
    let gguf = [Q4_0, Q4_1, Q5_0, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Mxfp4];
    all.extend(gguf.into_iter().map(Packing::Gguf));
    all
}

fn matrix(packing: Packing, rows: usize) -> Matrix {
    let bytes = |n: usize| (0..n).map(|i| (i * 37 % 61) as u8).collect::<Vec<u8>>().into();
    // Neither so small nor so large that the processor would take longer.
    let numbers = |n: usize| (0..n).map(|i| (0x30 + i % 13) as u8).collect::<Vec<u8>>().into();
    let n_scales = rows * packing.row_scale_bytes(COLS);
    let n_biases = if matches!(packing, Packing::Affine { .. }) { n_scales } else { 0 };
    Matrix {
        name: String::new(),
        rows,
        cols: COLS,
        packing,
        data: bytes(rows * packing.row_bytes(COLS)),
        scales: numbers(n_scales),
        biases: numbers(n_biases),
    }
}
