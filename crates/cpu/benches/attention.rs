//! Speed of attention by shape, format of keys and values, depth and number of rows: bytes of keys
//! and values read per second and multiply-adds per second, beside what this machine can read and
//! multiply at most.
//!
//! `cargo bench -p hearth-cpu --bench attention -- [threads [isa [part of a shape's name]]]`
//!
//! A pass goes through many layers, as that of a model does, so that what it reads at depth is in no
//! cache.

use std::hint::black_box;
use std::time::Instant;

use backend::ops::{AttentionLayer, AttentionOps, Memory};
use backend::{Attention, BLOCK, Batch, KvFormat, Span, Values};
use hearth_cpu::{Buf, Cpu, Isa, Options, Pages, Pool};

#[path = "../src/simd/peak.rs"]
mod peak;

/// Name, heads, key heads, head size.
const SHAPES: [(&str, [usize; 3]); 3] =
    [("SmolLM2-135M", [9, 3, 64]), ("Qwen2.5-0.5B", [14, 2, 64]), ("Qwen2.5-1.5B", [12, 2, 128])];
const DEPTHS: [usize; 3] = [128, 2048, 8192];
/// Rows at each depth: one token, or a guess to be verified.
const ROWS: [usize; 3] = [1, 4, 8];
/// Chunks of a prompt: where they start, and their rows.
const PROMPTS: [(usize, usize); 2] = [(0, 512), (1536, 512)];
const LAYERS: usize = 24;
/// Every figure is the best of this many runs: what else the machine does only makes them slower.
const RUNS: usize = 7;

/// What the machine can do at most, with the threads asked for.
struct Peak {
    /// Bytes read from memory per second.
    bytes: f64,
    /// Fused multiply-adds per second.
    macs: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().filter(|arg| !arg.starts_with("--")).collect();
    let isa = args.get(2).and_then(|name| Isa::named(name));
    let threads = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let wanted = args.get(3).cloned().unwrap_or_default();
    let cpu = Cpu::new(&Options { threads, isa, ..Options::default() });
    let peak = Peak::measure(&Pool::new(threads));
    let (bytes, macs) = (peak.bytes / 1e9, peak.macs / 1e9);
    println!("{} threads, {}: {bytes:.1} GB/s, {macs:.1} GMAC/s", cpu.threads(), cpu.isa());
    println!("{:<14} format position rows  ms/layer   GB/s         GMAC/s", "shape");
    let shapes = SHAPES.iter().flat_map(|shape| KvFormat::ALL.map(|format| (shape, format)));
    for ((name, shape), format) in shapes.filter(|((name, _), _)| name.contains(&wanted)) {
        let mut layers = Layers::new(&cpu, *shape, format);
        let passes = DEPTHS.iter().flat_map(|depth| ROWS.map(|rows| (*depth, rows)));
        for (position, rows) in passes.chain(PROMPTS) {
            let seconds = layers.pass(&cpu, position, rows);
            let bytes = layers.bytes(position + rows) / seconds;
            let macs = layers.macs(position, rows) / seconds;
            println!(
                "{name:<14} {format:<5?} {position:>8} {rows:>4} {:>9.3} {:>6.1} ({:>3.0} %) {:>7.1} ({:>3.0} %)",
                seconds * 1e3,
                bytes / 1e9,
                bytes / peak.bytes * 100.0,
                macs / 1e9,
                macs / peak.macs * 100.0
            );
        }
    }
}

/// The shortest of some runs of `f`, in seconds.
fn best(mut f: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..=RUNS).map(run).skip(1).fold(f64::INFINITY, f64::min)
}

impl Peak {
    fn measure(pool: &Pool) -> Peak {
        let threads = pool.threads();
        let data = vec![1u64; (256 << 20) / 8];
        let part = data.len() / (threads * 16);
        let read = best(|| {
            pool.run(threads * 16, &|i| {
                black_box(
                    data[i * part..][..part].iter().fold(0u64, |sum, x| sum.wrapping_add(*x)),
                );
            });
        });
        let n = 1 << 28;
        let multiply = best(|| pool.run(threads, &|_| _ = peak::multiply_add(n)));
        Peak { bytes: (data.len() * 8) as f64 / read, macs: (threads * n) as f64 / multiply }
    }
}

/// Layers that hold keys and values for the greatest depth.
struct Layers {
    spec: Attention,
    format: KvFormat,
    pages: Vec<Pages>,
    qkv: Buf,
    out: Buf,
}

impl Layers {
    fn new(cpu: &Cpu, [heads, kv_heads, head_dim]: [usize; 3], format: KvFormat) -> Layers {
        let scale = (head_dim as f32).powf(-0.5);
        let spec = Attention {
            heads,
            kv_heads,
            head_dim,
            values: Values::Own(head_dim),
            scale,
            window: None,
            growth: None,
            soft_cap: None,
        };
        let end = DEPTHS.iter().max().unwrap_or(&0).next_multiple_of(512);
        let pages = (0..LAYERS).map(|_| cpu.pages(&spec, format, end / BLOCK + 1)).collect();
        let (qkv, out) = (cpu.buf(512 * spec.qkv_cols()), cpu.buf(512 * spec.out_cols()));
        let mut layers = Layers { spec, format, pages, qkv, out };
        // Rows that see themselves alone store their keys and values for next to nothing.
        layers.spec.window = Some(1);
        (0..end).step_by(512).for_each(|first| layers.run(cpu, first, 512));
        layers.spec.window = None;
        layers
    }

    /// Seconds of one layer of a pass.
    fn pass(&mut self, cpu: &Cpu, position: usize, rows: usize) -> f64 {
        best(|| self.run(cpu, position, rows)) / LAYERS as f64
    }

    fn run(&mut self, cpu: &Cpu, position: usize, rows: usize) {
        let qkv = self.qkv.reshape(rows, self.spec.qkv_cols());
        for (i, x) in qkv.iter_mut().enumerate() {
            *x = ((i + position) % 97) as f32 * 0.02 - 1.0;
        }
        let blocks = (0..(position + rows).div_ceil(BLOCK) as u32).collect();
        let span = Span::new(0..rows, position, blocks);
        let batch = Batch { tokens: vec![0; rows], spans: vec![span], want: Vec::new() };
        let mut staged = cpu.staged(rows);
        cpu.stage(&batch, &mut staged);
        for pages in &mut self.pages {
            let layer = AttentionLayer { spec: &self.spec, sinks: None };
            cpu.attend(&self.qkv, layer, pages, &staged, &mut self.out);
        }
    }

    /// Bytes of the keys and values of `positions` positions.
    fn bytes(&self, positions: usize) -> f64 {
        let blocks = positions as f64 / BLOCK as f64;
        blocks * self.spec.block_bytes(self.format) as f64
    }

    /// Multiply-adds of keys and values with the queries that see them.
    fn macs(&self, position: usize, rows: usize) -> f64 {
        let seen = rows * position + rows * (rows + 1) / 2;
        (2 * seen * self.spec.q_cols()) as f64
    }
}
