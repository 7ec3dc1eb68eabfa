//! Matrices of every packing with random elements, for tests.

use weights::{F32Bits, Float, GgufType, Matrix, Packing};

/// A small generator: the tests need variety, not quality.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// From -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Every packing there is.
pub(crate) fn packings() -> Vec<Packing> {
    use GgufType::*;
    let mut all: Vec<Packing> =
        [Float::F32, Float::F16, Float::Bf16].into_iter().map(Packing::Plain).collect();
    for bits in [2, 3, 4, 5, 6, 8] {
        for (group, scale) in [(32, Float::F32), (64, Float::F16), (128, Float::Bf16)] {
            all.push(Packing::Affine { bits, group, scale });
        }
    }
    all.extend([Packing::Mxfp4, Packing::Mxfp8, Packing::Nvfp4]);
    all.push(Packing::DividedNvfp4(F32Bits::new(0.37)));
    for (group, scale) in [(32, Float::F32), (64, Float::F16), (128, Float::Bf16)] {
        all.push(Packing::Int8 { group, scale });
    }
    all.push(Packing::Fp8Blocks { rows: 8, cols: 48 });
    let gguf = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Mxfp4];
    all.extend(gguf.into_iter().map(Packing::Gguf));
    all
}

/// A matrix whose elements are mostly between -2 and 2.
pub(crate) fn matrix(random: &mut Random, packing: Packing, rows: usize, cols: usize) -> Matrix {
    let data = match packing {
        Packing::Plain(float) => floats(random, float, rows * cols, 1.0),
        _ => random.bytes(rows * packing.row_bytes(cols)),
    };
    let n_scales = rows * packing.row_scale_bytes(cols);
    let (scales, biases) = match packing {
        Packing::Affine { bits, scale, .. } => {
            let n = n_scales / scale.n_bytes();
            let step = 1.0 / f32::from(u8::MAX >> (8 - bits));
            (floats(random, scale, n, step), floats(random, scale, n, 0.5))
        }
        Packing::Mxfp4 | Packing::Mxfp8 => {
            ((0..n_scales).map(|_| 118 + random.below(8) as u8).collect(), Vec::new())
        }
        Packing::Nvfp4 | Packing::DividedNvfp4(_) => {
            ((0..n_scales).map(|_| random.below(0x40) as u8).collect(), Vec::new())
        }
        Packing::Int8 { scale, .. } => {
            (floats(random, scale, n_scales / scale.n_bytes(), 0.01), Vec::new())
        }
        Packing::Fp8Blocks { rows: r, cols: c } => {
            let n = rows.div_ceil(r as usize) * cols.div_ceil(c as usize);
            (floats(random, Float::F32, n, 0.01), Vec::new())
        }
        Packing::Plain(_) | Packing::Gguf(_) => Default::default(),
    };
    let data = tame(random, packing, data);
    Matrix {
        name: format!("{packing:?}"),
        rows,
        cols,
        packing,
        data: data.into(),
        scales: scales.into(),
        biases: biases.into(),
    }
}

/// Puts sensible scales into GGUF blocks, and takes what is not a number out of 8-bit floats.
fn tame(random: &mut Random, packing: Packing, mut data: Vec<u8>) -> Vec<u8> {
    let ty = match packing {
        Packing::Gguf(ty) => ty,
        Packing::Mxfp8 | Packing::Fp8Blocks { .. } => {
            data.iter_mut().filter(|x| **x & 0x7f == 0x7f).for_each(|x| *x -= 1);
            return data;
        }
        _ => return data,
    };
    // Where the f16 factors are, and how large they may be.
    let (places, size): (&[usize], f32) = match ty {
        GgufType::Q4_0 | GgufType::Q5_0 => (&[0], 0.1),
        GgufType::Q4_1 | GgufType::Q5_1 => (&[0, 2], 0.1),
        GgufType::Q8_0 | GgufType::Iq4Nl => (&[0], 0.01),
        GgufType::Q2K => (&[80, 82], 0.05),
        GgufType::Q3K => (&[108], 0.01),
        GgufType::Q4K | GgufType::Q5K => (&[0, 2], 0.002),
        GgufType::Q6K => (&[208], 0.0005),
        GgufType::Mxfp4 => (&[], 0.0),
    };
    for block in data.chunks_exact_mut(ty.block().1) {
        for &place in places {
            let factor = half::f16::from_f32(random.unit() * size);
            block[place..place + 2].copy_from_slice(&factor.to_le_bytes());
        }
        if ty == GgufType::Mxfp4 {
            block[0] = 118 + random.below(8) as u8;
        }
    }
    data
}

fn floats(random: &mut Random, float: Float, n: usize, size: f32) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..n {
        let x = random.unit() * size;
        match float {
            Float::F32 => out.extend(x.to_le_bytes()),
            Float::F16 => out.extend(half::f16::from_f32(x).to_le_bytes()),
            Float::Bf16 => out.extend(half::bf16::from_f32(x).to_le_bytes()),
        }
    }
    out
}
