//! The two ends of latent attention, in every packing and either order of the weight.

use weights::{Float, Matrix, Packing};

use super::super::data::Rng;
use super::super::rounding::of_product;
use super::{EPS, NORM};
use crate::ops::{LatentKeys, LatentRows, RowNorm};
use crate::{Backend, Latent, LatentOrder, NormGain, Rope, RopeLayout};

/// One end, with its weight.
#[derive(Debug)]
pub(super) enum LatentOp {
    Queries {
        spec: Latent,
        order: LatentOrder,
        weight: Vec<Matrix>,
        gain: Vec<f32>,
        rope: Option<Rope>,
    },
    Values {
        spec: Latent,
        weight: Vec<Matrix>,
    },
}

impl LatentOp {
    pub(super) fn name(&self) -> String {
        match self {
            LatentOp::Queries { spec, order, weight, rope, .. } => {
                let layout = rope.as_ref().map(|rope| rope.layout);
                format!("latent queries {spec:?} {order:?} {} {layout:?}", weight[0].name)
            }
            LatentOp::Values { spec, weight } => {
                format!("latent values {spec:?} {}", weight[0].name)
            }
        }
    }

    /// Columns of what the op reads. Angles are numbers like any others here.
    pub(super) fn in_cols(&self) -> Vec<usize> {
        match self {
            LatentOp::Queries { spec, rope, .. } => {
                let pairs = rope.as_ref().map_or(1, |rope| rope.inv_freq.len());
                vec![spec.q_cols(), spec.kept_cols(), 2 * pairs]
            }
            LatentOp::Values { spec, .. } => vec![spec.heads * spec.rank],
        }
    }

    pub(super) fn out_cols(&self) -> usize {
        match self {
            LatentOp::Queries { spec, .. } => (spec.heads + 1) * spec.kept_cols(),
            LatentOp::Values { spec, .. } => spec.v_cols(),
        }
    }

    /// Roundings that it is worth; a weight's rows or its columns are summed over.
    pub(super) fn roundings(&self) -> f32 {
        let (LatentOp::Queries { weight, .. } | LatentOp::Values { weight, .. }) = self;
        let of = |part: &Matrix| of_product(part.packing, part.rows.max(part.cols), 0);
        weight.iter().map(of).fold(NORM, f32::max) + 1.0
    }

    pub(super) fn run<B: Backend>(&self, device: &B, bufs: &[B::Buf], out: &mut B::Buf) {
        match self {
            LatentOp::Queries { spec, order, weight, gain, rope } => {
                let (weight, gain) = (device.weight(weight), device.vector(gain));
                let norm = RowNorm::rms(&gain, NormGain::Stored, EPS);
                let keys = LatentKeys { weight: &weight, order: *order, norm };
                let rotation = rope.as_ref().map(|rope| (rope, &bufs[2]));
                let rows = LatentRows { q: &bufs[0], kept: &bufs[1] };
                device.latent_queries(rows, keys, rotation, spec, out);
            }
            LatentOp::Values { spec, weight } => {
                device.latent_values(&bufs[0], &device.weight(weight), spec, out);
            }
        }
    }
}

fn latent(heads: usize, rank: usize, plain: usize, rotated: usize, v_dim: usize) -> Latent {
    Latent { heads, rank, plain, rotated, v_dim, scale: 0.1 }
}

/// One part of a weight for each head, as loading makes them where heads lie among others.
fn parts(rng: &mut Rng, packing: Packing, heads: usize, rows: usize, cols: usize) -> Vec<Matrix> {
    (0..heads).map(|_| rng.matrix(packing, rows, cols)).collect()
}

pub(super) fn ops(rng: &mut Rng, packings: Vec<Packing>) -> Vec<super::RowOp> {
    let mut ops = Vec::new();
    for packing in packings {
        let granule = packing.granule().max(32);
        let (rank, plain) = (granule * (1 + rng.below(2)), granule);
        let spec = latent(2, rank, plain, 8, 1 + rng.below(40));
        ops.extend(ends(rng, packing, &spec, Some(RopeLayout::Interleaved)));
    }
    // Nothing a vector register would like, and more columns than a panel has.
    let float = Packing::Plain(Float::F32);
    for spec in [latent(1, 5, 3, 2, 1), latent(3, 20, 12, 6, 7), latent(5, 300, 270, 10, 33)] {
        ops.extend(ends(rng, float, &spec, Some(RopeLayout::Halves)));
        ops.extend(ends(rng, float, &spec, None));
    }
    ops.into_iter().map(super::RowOp::Latent).collect()
}

/// Both ends, the first one with a weight of either order.
fn ends(
    rng: &mut Rng,
    packing: Packing,
    spec: &Latent,
    layout: Option<RopeLayout>,
) -> [LatentOp; 3] {
    let Latent { heads, rank, plain, rotated, v_dim, .. } = *spec;
    let inv_freq = vec![1.0; rotated / 2];
    let rope = layout.map(|layout| Rope { inv_freq, attention_factor: 1.0, layout });
    let mut queries = |order, [rows, cols]: [usize; 2]| {
        let (weight, rope) = (parts(rng, packing, heads, rows, cols), rope.clone());
        LatentOp::Queries { spec: spec.clone(), order, weight, gain: rng.vector(rank), rope }
    };
    [
        queries(LatentOrder::ByOutput, [rank, plain]),
        queries(LatentOrder::ByInput, [plain, rank]),
        LatentOp::Values { spec: spec.clone(), weight: parts(rng, packing, heads, v_dim, rank) },
    ]
}
