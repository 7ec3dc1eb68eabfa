//! Speed of layers with a state by shape and number of rows: bytes of states read and written per
//! second, and multiply-adds per second.
//!
//! `cargo bench -p hearth-cpu --bench recurrent -- [threads [isa [part of a shape's name]]]`
//!
//! A pass goes through many layers, as that of a model does, so that the states of single rows are in
//! no cache.

use std::time::Instant;

use backend::ops::{ConvWeights, DeltaRows, DeltaWeights, Mamba2Weights, Memory, RecurrentOps};
use backend::{
    Batch, DeltaLayout, DeltaRule, GatedDelta, Mamba2, MambaGate, MambaScales, ReadOrder,
    Recurrence, ShortConv, Span,
};
use hearth_cpu::{Buf, Cpu, Isa, Options, Staged, States, Vector};

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
    println!("{:<16} rows  ms/layer   GB/s  GMAC/s", "shape");
    for (name, spec) in shapes().iter().filter(|(name, _)| name.contains(&wanted)) {
        let layer = Layer::new(&cpu, spec);
        for rows in ROWS {
            let seconds = layer.time(&cpu, rows);
            let bytes = (2 * 4 * spec.state_len()) as f64 / seconds;
            let macs = (rows * macs_per_row(spec)) as f64 / seconds;
            let (ms, bytes, macs) = (seconds * 1e3, bytes / 1e9, macs / 1e9);
            println!("{name:<16} {rows:>4} {ms:>9.3} {bytes:>6.1} {macs:>7.1}");
        }
    }
}

/// Layers as published models have them.
fn shapes() -> Vec<(&'static str, Recurrence)> {
    let delta = |k_heads, v_heads, rule| {
        let (k_dim, v_dim, layout) = (128, 128, DeltaLayout::ByKind);
        let (taps, eps) = (4, 1e-6);
        Recurrence::GatedDelta(GatedDelta {
            k_heads,
            v_heads,
            k_dim,
            v_dim,
            taps,
            eps,
            rule,
            layout,
            read_order: ReadOrder::ByKeyHead,
        })
    };
    let mamba = |heads, groups, state| {
        Recurrence::Mamba2(Mamba2 {
            heads,
            head_dim: 64,
            groups,
            state,
            taps: 4,
            dt_limit: [0.0, f32::INFINITY],
            scales: MambaScales::NONE,
            gate: MambaGate::ThenNorm(1e-5),
        })
    };
    let conv = |cols| Recurrence::ShortConv(ShortConv { cols, taps: 3 });
    vec![
        ("Qwen3.5-0.8B", delta(16, 16, DeltaRule::PerHead)),
        ("Qwen3.5-4B", delta(16, 32, DeltaRule::PerHead)),
        ("Qwen3.5-27B", delta(16, 48, DeltaRule::PerHead)),
        ("Kimi-Linear-48B", delta(32, 32, DeltaRule::PerChannel)),
        ("Granite-4-tiny", mamba(48, 1, 128)),
        ("Nemotron-9B-v2", mamba(128, 8, 128)),
        ("LFM2-1.2B", conv(2048)),
    ]
}

fn macs_per_row(spec: &Recurrence) -> usize {
    match spec {
        Recurrence::GatedDelta(spec) => 3 * spec.v_heads * spec.k_dim * spec.v_dim,
        Recurrence::Mamba2(spec) => 2 * spec.inner() * spec.state,
        Recurrence::ShortConv(spec) => spec.taps * spec.cols,
    }
}

/// A layer with some weights.
struct Layer<'a> {
    spec: &'a Recurrence,
    taps: Vector,
    /// A number for each head, or for each decay.
    heads: Vector,
    /// A number for each column of a head, or of all.
    gain: Vector,
}

impl<'a> Layer<'a> {
    fn new(cpu: &Cpu, spec: &'a Recurrence) -> Self {
        let vector = |n: usize, scale: f32| {
            cpu.vector(&(0..n).map(|i| (i % 7) as f32 * scale).collect::<Vec<_>>())
        };
        let (columns, heads, gain) = match spec {
            Recurrence::GatedDelta(spec) => (spec.conv_cols(), spec.decay_cols(), spec.v_dim),
            Recurrence::Mamba2(spec) => (spec.conv_cols(), spec.heads, spec.inner()),
            Recurrence::ShortConv(spec) => (spec.cols, 0, 0),
        };
        Layer {
            spec,
            taps: vector(4 * columns, 0.1),
            heads: vector(heads, -0.2),
            gain: vector(gain, 0.3),
        }
    }

    /// Seconds of one layer of a pass of `rows` rows of one sequence.
    fn time(&self, cpu: &Cpu, rows: usize) -> f64 {
        let cols = self.spec.row_cols();
        let mut x = cpu.buf(rows * cols);
        for (i, x) in x.reshape(rows, cols).iter_mut().enumerate() {
            *x = (i % 97) as f32 * 0.02 - 1.0;
        }
        let mut layers: Vec<_> = (0..LAYERS).map(|_| cpu.states(self.spec, 2)).collect();
        let mut out = cpu.buf(rows * self.spec.out_cols());
        let mut staged = cpu.staged(rows);
        let mut best = f64::INFINITY;
        for run in 0..=RUNS as u32 {
            let mut span = Span::new(0..rows, 0, Vec::new());
            span.state_in = Some(run % 2);
            span.states_out = vec![(rows - 1, 1 - run % 2)];
            let batch = Batch { tokens: vec![0; rows], spans: vec![span], want: vec![] };
            cpu.stage(&batch, &mut staged);
            let start = Instant::now();
            for states in &mut layers {
                self.run(cpu, (&x, &staged), states, &mut out);
            }
            if run > 0 {
                best = best.min(start.elapsed().as_secs_f64());
            }
        }
        best / LAYERS as f64
    }

    fn run(&self, cpu: &Cpu, (x, batch): (&Buf, &Staged), states: &mut States, out: &mut Buf) {
        let Layer { taps, heads, gain, .. } = self;
        let conv = ConvWeights { taps, bias: None };
        match self.spec {
            Recurrence::GatedDelta(spec) => {
                let weights = DeltaWeights { conv, a_log: heads, dt_bias: heads, gain };
                cpu.gated_delta(DeltaRows::whole(x), weights, spec, states, batch, out);
            }
            Recurrence::Mamba2(spec) => {
                let gain = Some(gain);
                let weights =
                    Mamba2Weights { conv, a_log: heads, dt_bias: heads, skip: heads, gain };
                cpu.mamba2(x, weights, spec, states, batch, out);
            }
            Recurrence::ShortConv(spec) => cpu.short_conv(x, conv, spec, states, batch, out),
        }
    }
}
