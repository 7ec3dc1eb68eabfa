//! Speed of the gated delta rule by shape and number of rows: bytes of states read and written per
//! second, and multiply-adds per second.
//!
//! `cargo bench -p hearth-cpu --bench recurrent -- [threads [isa [part of a shape's name]]]`
//!
//! A pass goes through many layers, as that of a model does, so that the states of single rows are in
//! no cache.

use std::time::Instant;

use backend::ops::{DeltaWeights, Memory, RecurrentOps};
use backend::{Batch, DeltaLayout, GatedDelta, Span};
use hearth_cpu::{Cpu, Isa, Options};

/// Name, key heads, value heads. All have heads of 128 columns and 4 taps.
const SHAPES: [(&str, [usize; 2]); 3] =
    [("Qwen3.5-0.8B", [16, 16]), ("Qwen3.5-4B", [16, 32]), ("Qwen3.5-27B", [16, 48])];
const ROWS: [usize; 4] = [1, 4, 32, 256];
const LAYERS: usize = 24;
/// Every figure is the best of this many runs: what else the machine does only makes them slower.
const RUNS: usize = 7;

fn main() {
    let args: Vec<String> = std::env::args().filter(|arg| !arg.starts_with("--")).collect();
    let isa = args.get(2).and_then(|name| Isa::named(name));
    let threads = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let wanted = args.get(3).cloned().unwrap_or_default();
    let cpu = Cpu::new(&Options { threads, isa, ..Options::default() });
    println!("{} threads, {}", cpu.threads(), cpu.isa());
    println!("{:<14} rows  ms/layer   GB/s  GMAC/s", "shape");
    for (name, [k_heads, v_heads]) in SHAPES.iter().filter(|(name, _)| name.contains(&wanted)) {
        let (k_dim, v_dim, layout) = (128, 128, DeltaLayout::ByKind);
        let (k_heads, v_heads) = (*k_heads, *v_heads);
        let spec = GatedDelta { k_heads, v_heads, k_dim, v_dim, taps: 4, eps: 1e-6, layout };
        for rows in ROWS {
            let seconds = time(&cpu, &spec, rows);
            let bytes = (2 * 4 * spec.state_len()) as f64 / seconds;
            let macs = (3 * rows * v_heads * k_dim * v_dim) as f64 / seconds;
            let (ms, bytes, macs) = (seconds * 1e3, bytes / 1e9, macs / 1e9);
            println!("{name:<14} {rows:>4} {ms:>9.3} {bytes:>6.1} {macs:>7.1}");
        }
    }
}

/// Seconds of one layer of a pass of `rows` rows of one sequence.
fn time(cpu: &Cpu, spec: &GatedDelta, rows: usize) -> f64 {
    let mut x = cpu.buf(rows * spec.row_cols());
    for (i, x) in x.reshape(rows, spec.row_cols()).iter_mut().enumerate() {
        *x = (i % 97) as f32 * 0.02 - 1.0;
    }
    let vector = |n: usize, scale| -> Vec<f32> { (0..n).map(|i| (i % 7) as f32 * scale).collect() };
    let conv = cpu.vector(&vector(spec.taps * spec.conv_cols(), 0.1));
    let [a_log, dt_bias] = [-0.5, 0.1].map(|scale| cpu.vector(&vector(spec.v_heads, scale)));
    let gain = cpu.vector(&vector(spec.v_dim, 0.3));
    let weights = DeltaWeights { conv: &conv, a_log: &a_log, dt_bias: &dt_bias, gain: &gain };
    let mut layers: Vec<_> = (0..LAYERS).map(|_| cpu.states(spec, 2)).collect();
    let mut out = cpu.buf(rows * spec.v_cols());
    let mut staged = cpu.staged(rows);
    let mut best = f64::INFINITY;
    for run in 0..=RUNS as u32 {
        let mut span = Span::new(0..rows, 0, Vec::new());
        span.state_in = Some(run % 2);
        span.states_out = vec![(rows - 1, 1 - run % 2)];
        cpu.stage(&Batch { tokens: vec![0; rows], spans: vec![span], want: vec![] }, &mut staged);
        let start = Instant::now();
        for states in &mut layers {
            cpu.gated_delta(&x, weights, spec, states, &staged, &mut out);
        }
        if run > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best / LAYERS as f64
}
