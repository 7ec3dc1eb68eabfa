//! The two ends of latent attention: a linear layer for each head, and what is cheap around it.
//!
//! The heads' rows are laid out one head after the other, which makes the linear layers of all heads
//! one parallel region. A weight that lies the way of a linear layer is multiplied like any other. One
//! that lies the other way round is used in place too: its rows, sixteen at a time, are widened to f32
//! just before every row of queries is multiplied with them. So nothing is copied when a model is
//! loaded; the sum of an output, taken by `OpKernels::combine`, depends on its own row and column
//! alone.

use std::cell::RefCell;
use std::ops::Range;

use backend::ops::{LatentKeys, LatentOps, LatentRows};
use backend::{Latent, LatentOrder, Rope};
use weights::Matrix;

use crate::linear::{self, Finish, Meeting};
use crate::pack::{CodePanel, Coding, FLOAT_COLS, FloatPanel, LANES, Piece, Source};
use crate::pool::Block;
use crate::rounded::GROUP;
use crate::{Buf, Cpu, Weight};

/// What the thread that calls an op works with. Grows to what the largest layer needs, then stays.
#[derive(Default)]
struct Scratch {
    /// One row for each head and row, head after head: what goes in, and what comes out.
    x: Buf,
    y: Buf,
    /// The rows of each head, and its rows of a weight.
    meetings: Vec<Meeting>,
    /// Pieces of `y` that are tasks.
    blocks: Vec<Block>,
}

/// What a thread that takes part works with, likewise.
#[derive(Default)]
struct Bench {
    codes: CodePanel,
    /// All inputs of some outputs, [`LANES`] inputs to a panel.
    panels: Vec<FloatPanel>,
    /// A row that ends with a whole panel.
    x: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static BENCH: RefCell<Bench> = RefCell::default();
}

/// Where the columns of a head are: the first `cols` of every `stride`.
#[derive(Clone, Copy)]
struct Heads {
    n: usize,
    stride: usize,
    cols: usize,
}

impl LatentOps for Cpu {
    fn latent_queries(
        &self,
        LatentRows { q, kept }: LatentRows<'_, Cpu>,
        keys: LatentKeys<'_, Cpu>,
        rotation: Option<(&Rope, &Buf)>,
        spec: &Latent,
        out: &mut Buf,
    ) {
        assert_eq!((q.cols(), kept.cols()), (spec.q_cols(), spec.kept_cols()), "rows of this spec");
        let (n, rank, width) = (q.rows(), spec.rank, spec.kept_cols());
        let stride = spec.plain + spec.rotated;
        let ops = self.kernels.ops;
        let turn = |columns: &mut [f32], r: usize| {
            if let Some((rope, angles)) = rotation {
                (ops.rotate)(columns, rope.layout, angles.row(r));
            }
        };
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.take(self, q, Heads { n: spec.heads, stride, cols: spec.plain });
            match keys.order {
                LatentOrder::ByOutput => scratch.by_output(self, keys.weight, (spec.heads, rank)),
                LatentOrder::ByInput => scratch.by_input(self, keys.weight, spec.heads),
            }
            let cols = (spec.heads + 1) * width;
            self.each_row(out.reshape(n, cols), cols, |r, out| {
                let (queries, key) = out.split_at_mut(spec.heads * width);
                let heads = q.row(r).chunks_exact(stride).zip(queries.chunks_exact_mut(width));
                for (h, (q, out)) in heads.enumerate() {
                    let (latent, shared) = out.split_at_mut(rank);
                    latent.copy_from_slice(scratch.y.row(h * n + r));
                    shared.copy_from_slice(&q[spec.plain..]);
                    turn(shared, r);
                }
                key.copy_from_slice(kept.row(r));
                let (latent, shared) = key.split_at_mut(rank);
                self.norm_row(keys.norm, latent);
                turn(shared, r);
            });
        });
    }

    fn latent_values(&self, x: &Buf, w: &Weight, spec: &Latent, out: &mut Buf) {
        assert_eq!(x.cols(), spec.heads * spec.rank, "a latent for each head");
        let (n, v_dim) = (x.rows(), spec.v_dim);
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.take(self, x, Heads { n: spec.heads, stride: spec.rank, cols: spec.rank });
            scratch.by_output(self, w, (spec.heads, v_dim));
            self.each_row(out.reshape(n, spec.v_cols()), spec.v_cols(), |r, out| {
                for (h, out) in out.chunks_exact_mut(v_dim).enumerate() {
                    out.copy_from_slice(scratch.y.row(h * n + r));
                }
            });
        });
    }
}

impl Scratch {
    /// Lays out the rows of each head.
    fn take(&mut self, cpu: &Cpu, from: &Buf, Heads { n, stride, cols }: Heads) {
        let n_rows = from.rows();
        self.x.grow(n * n_rows * cols);
        cpu.each_row(self.x.reshape(n * n_rows, cols), cols, |i, out| {
            out.copy_from_slice(&from.row(i % n_rows)[i / n_rows * stride..][..cols]);
        });
    }

    /// Multiplies each head's rows with its `outputs` rows of the weight.
    fn by_output(&mut self, cpu: &Cpu, w: &Weight, (heads, outputs): (usize, usize)) {
        let n = self.x.rows() / heads;
        self.meetings.clear();
        self.meetings.extend((0..heads).map(|h| Meeting {
            rows: h * n..(h + 1) * n,
            outputs: h * outputs..(h + 1) * outputs,
        }));
        self.y.grow(heads * n * outputs);
        let y = (Finish::Set, &mut self.y);
        linear::grouped(cpu, &self.x, (w, None), &self.meetings, y);
    }

    /// Adds up each head's rows of the weight, weighted with the numbers of its rows.
    fn by_input(&mut self, cpu: &Cpu, w: &Weight, heads: usize) {
        let Scratch { x, y, blocks, .. } = self;
        let (n, inputs, outputs) = (x.rows() / heads, x.cols(), w.cols());
        blocks.clear();
        for h in 0..heads {
            let end = |first: usize| (first + FLOAT_COLS).min(outputs);
            let block = |first| Block { rows: h * n..(h + 1) * n, cols: first..end(first) };
            blocks.extend((0..outputs).step_by(FLOAT_COLS).map(block));
        }
        y.grow(heads * n * outputs);
        let y = y.reshape(heads * n, outputs);
        cpu.pool.blocks(y, outputs, blocks, |i, mut out| {
            let Block { rows, cols } = &blocks[i];
            let first = rows.start / n.max(1) * inputs;
            let (part, inputs) =
                w.parts(first..first + inputs).next().expect("the weight has such rows");
            BENCH.with_borrow_mut(|bench| {
                bench.widen(cpu, w.part(part), inputs, cols);
                for (r, row) in rows.clone().enumerate() {
                    bench.combine(cpu, x.row(row), out.row(r));
                }
            });
        });
    }
}

impl Bench {
    /// Widens some columns of the rows of one head.
    fn widen(&mut self, cpu: &Cpu, matrix: &Matrix, rows: Range<usize>, cols: &Range<usize>) {
        let Bench { codes, panels, .. } = self;
        panels.resize_with(rows.len().div_ceil(LANES), FloatPanel::default);
        let coding = Coding::of(matrix.packing).filter(|_| matrix.cols.is_multiple_of(GROUP));
        for (first, panel) in rows.clone().step_by(LANES).zip(panels) {
            let piece = Piece { rows: first..(first + LANES).min(rows.end), cols: cols.clone() };
            let source = Source { matrix, piece: &piece };
            match coding {
                Some(coding) => {
                    codes.coding = coding;
                    (cpu.kernels.unpack_codes)(source, codes);
                    (cpu.kernels.ops.widen_codes)(codes, panel);
                }
                None => (cpu.kernels.unpack_floats)(source, panel),
            }
            // Lanes without a row hold leftovers, which need not even be numbers.
            for lanes in &mut panel.values[..cols.len()] {
                lanes[piece.rows.len()..].fill(0.0);
            }
        }
    }

    /// Multiplies a row with what was widened.
    fn combine(&mut self, cpu: &Cpu, x: &[f32], out: &mut [f32]) {
        self.x.clear();
        self.x.extend_from_slice(x);
        self.x.resize(self.panels.len() * LANES, 0.0);
        (cpu.kernels.ops.combine)(&self.x, &self.panels, out);
    }
}
