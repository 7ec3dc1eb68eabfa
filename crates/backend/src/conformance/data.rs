//! Random rows, weights and the way in and out of a device. Not a statistics package: the numbers
//! only have to look like activations and weights.

use weights::{Float, GgufType, Matrix, Packing};

use crate::{Backend, Batch, Span};

/// A small counter-based generator, so that every failure can be repeated.
pub(super) struct Rng {
    state: u64,
    /// What can hold its numbers.
    float: Float,
}

/// `rows x cols` numbers on the host.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) data: Vec<f32>,
}

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng::within(Float::F32, seed)
    }

    /// Whose activations, vectors and scales are such as `float` can hold: a device that keeps numbers in
    /// it loses nothing of what it is given.
    pub(super) fn within(float: Float, seed: u64) -> Rng {
        Rng { state: seed, float }
    }

    /// Another one of the same kind, so that the numbers of this one stay what they were.
    pub(super) fn apart(&self, seed: u64) -> Rng {
        Rng::within(self.float, seed)
    }

    /// The nearest number that can be held.
    pub(super) fn held(&self, x: f32) -> f32 {
        match self.float {
            Float::F32 => x,
            Float::F16 => half::f16::from_f32(x).to_f32(),
            Float::Bf16 => half::bf16::from_f32(x).to_f32(),
        }
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Uniform in -1..1.
    pub(super) fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// About normal, with an occasional large one, as activations are.
    fn activation(&mut self) -> f32 {
        let bell = self.uniform() + self.uniform() + self.uniform();
        let x = if self.below(50) == 0 { bell * 8.0 } else { bell };
        self.held(x)
    }

    pub(super) fn vector(&mut self, len: usize) -> Vec<f32> {
        let mut number = || {
            let x = self.uniform();
            self.held(x)
        };
        (0..len).map(|_| number()).collect()
    }

    pub(super) fn rows(&mut self, rows: usize, cols: usize) -> Rows {
        Rows { rows, cols, data: (0..rows * cols).map(|_| self.activation()).collect() }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits() as u8).collect()
    }

    /// `count` floats of size about `size`, packed as `float`.
    fn floats(&mut self, float: Float, count: usize, size: f32) -> Vec<u8> {
        let mut out = Vec::with_capacity(count * float.n_bytes());
        for _ in 0..count {
            let x = self.uniform() * size;
            let x = self.held(x);
            match float {
                Float::F32 => out.extend_from_slice(&x.to_le_bytes()),
                Float::F16 => out.extend_from_slice(&half::f16::from_f32(x).to_le_bytes()),
                Float::Bf16 => out.extend_from_slice(&half::bf16::from_f32(x).to_le_bytes()),
            }
        }
        out
    }

    /// A random matrix of any packing; `cols` must be a multiple of its granule.
    pub(super) fn matrix(&mut self, packing: Packing, rows: usize, cols: usize) -> Matrix {
        let mut data = self.bytes(rows * packing.row_bytes(cols));
        let n_scales = rows * packing.row_scale_bytes(cols);
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        match packing {
            Packing::Plain(float) => data = self.floats(float, rows * cols, 1.0),
            Packing::Affine { scale, .. } => {
                scales = self.floats(scale, n_scales / scale.n_bytes(), 0.1);
                biases = self.floats(scale, n_scales / scale.n_bytes(), 0.5);
            }
            Packing::Mxfp4 => scales = self.small_exponents(n_scales),
            Packing::Mxfp8 => {
                scales = self.small_exponents(n_scales);
                clear_e4m3_nans(&mut data);
            }
            Packing::Int8 { scale, .. } => {
                scales = self.floats(scale, n_scales / scale.n_bytes(), 0.01);
            }
            Packing::Nvfp4 | Packing::DividedNvfp4(_) => {
                scales = self.bytes(n_scales);
                scales.iter_mut().for_each(|scale| *scale = 0x20 | *scale & 0x1f);
            }
            Packing::Fp8Blocks { rows: block_rows, cols: block_cols } => {
                let blocks =
                    rows.div_ceil(block_rows as usize) * cols.div_ceil(block_cols as usize);
                scales = self.floats(Float::F32, blocks, 0.01);
                clear_e4m3_nans(&mut data);
            }
            Packing::Gguf(ty) => self.tame_blocks(ty, &mut data),
        }
        let (data, scales, biases) = (data.into(), scales.into(), biases.into());
        Matrix { name: format!("{packing:?}"), rows, cols, packing, data, scales, biases }
    }

    /// E8M0 scales of 1/64 to 1/8.
    fn small_exponents(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| 121 + self.below(4) as u8).collect()
    }

    /// Puts small scales where random bytes would be infinite or not a number.
    fn tame_blocks(&mut self, ty: GgufType, data: &mut [u8]) {
        let halfs: &[usize] = match ty {
            GgufType::Q4_0 | GgufType::Q5_0 | GgufType::Q8_0 | GgufType::Iq4Nl => &[0],
            GgufType::Q4_1 | GgufType::Q5_1 | GgufType::Q4K | GgufType::Q5K => &[0, 2],
            GgufType::Q2K => &[80, 82],
            GgufType::Q3K => &[108],
            GgufType::Q6K => &[208],
            GgufType::Mxfp4 => &[],
        };
        for block in data.chunks_exact_mut(ty.block().1) {
            for at in halfs {
                let scale = self.uniform() * 0.02;
                let scale = half::f16::from_f32(self.held(scale));
                block[*at..*at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            if ty == GgufType::Mxfp4 {
                block[0] = 121 + self.below(4) as u8;
            }
        }
    }
}

/// E4M3 has one not-a-number per sign, with all other bits set.
fn clear_e4m3_nans(data: &mut [u8]) {
    data.iter_mut().filter(|byte| **byte & 0x7f == 0x7f).for_each(|byte| *byte ^= 1);
}

impl Rows {
    pub(super) fn row(&self, r: usize) -> &[f32] {
        &self.data[r * self.cols..][..self.cols]
    }

    /// The columns of `range` alone.
    pub(super) fn columns(&self, range: std::ops::Range<usize>) -> Rows {
        let data = (0..self.rows).flat_map(|r| self.row(r)[range.clone()].to_vec()).collect();
        Rows { rows: self.rows, cols: range.len(), data }
    }

    /// The columns, cut into pieces of these widths.
    pub(super) fn split(&self, widths: &[usize]) -> Vec<Rows> {
        let mut first = 0;
        let mut piece = |cols: usize| {
            let range = first..first + cols;
            first = range.end;
            let data = (0..self.rows).flat_map(|r| self.row(r)[range.clone()].to_vec()).collect();
            Rows { rows: self.rows, cols, data }
        };
        widths.iter().map(|cols| piece(*cols)).collect()
    }

    /// The rows of `range` alone.
    pub(super) fn range(&self, range: std::ops::Range<usize>) -> Rows {
        let data = self.data[range.start * self.cols..range.end * self.cols].to_vec();
        Rows { rows: range.len(), cols: self.cols, data }
    }
}

/// A batch of one sequence of these tokens, every row wanted.
pub(super) fn batch(tokens: Vec<u32>) -> Batch {
    let n = tokens.len();
    let span = Span::new(0..n, 0, vec![0; n.div_ceil(crate::BLOCK)]);
    Batch { want: (0..n as u32).collect(), spans: vec![span], tokens }
}

/// Brings `rows` onto the device: as an embedding table of which every row is asked for once.
pub(super) fn upload<B: Backend>(device: &B, rows: &Rows) -> B::Buf {
    let bytes: Vec<u8> = rows.data.iter().flat_map(|x| x.to_le_bytes()).collect();
    let table = device.weight(&[Matrix {
        name: "rows".into(),
        rows: rows.rows,
        cols: rows.cols,
        packing: Packing::Plain(Float::F32),
        data: bytes.into(),
        scales: Default::default(),
        biases: Default::default(),
    }]);
    let mut staged = device.staged(rows.rows);
    device.stage(&batch((0..rows.rows as u32).collect()), &mut staged);
    let mut buf = device.buf(rows.data.len());
    device.embed(&table, &staged, 1.0, &mut buf);
    buf
}

/// Reads a buffer of known shape.
pub(super) fn download<B: Backend>(device: &B, buf: &B::Buf, rows: usize, cols: usize) -> Rows {
    let mut data = Vec::new();
    device.read(buf, rows * cols, &mut data).expect("a device under test answers");
    Rows { rows, cols, data }
}
