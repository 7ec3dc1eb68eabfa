//! The loaded pieces that every layer is built from: linear layers and norms.

use backend::ops::{Input, Output, RowNorm};
use backend::{Backend, NormCenter, NormGain};
use weights::Matrix;

use crate::Error;
use crate::loader::Loader;
use crate::modules::Linear;
use crate::recipe::Norm;

/// A linear layer on a device.
pub(crate) struct LinearWeights<B: Backend> {
    weight: B::Weight,
    bias: Option<B::Vector>,
}

impl<B: Backend> LinearWeights<B> {
    /// One layer out of `parts`, whose outputs follow one another.
    pub(crate) fn load(loader: &Loader, b: &B, parts: &[Linear]) -> Result<Self, Error> {
        let matrices = parts.iter().map(|part| loader.matrices(part));
        let matrices = matrices.collect::<Result<Vec<_>, _>>()?.concat();
        let bias = loader.biases(parts)?;
        if parts.iter().any(|part| loader.is_summed(part)) {
            let bias = bias.map(|values| b.vector(&values));
            return Ok(LinearWeights { weight: b.summed_weight(&matrices), bias });
        }
        Ok(LinearWeights::of(b, &matrices, bias))
    }

    /// The layer out of `matrices`, which are this machine's share of its rows.
    pub(crate) fn joined(b: &B, matrices: &[Matrix], bias: Option<Vec<f32>>) -> Self {
        LinearWeights {
            weight: b.joined_weight(matrices),
            bias: bias.map(|values| b.vector(&values)),
        }
    }

    /// One layer whose rows are those of `parts`, with as many biases or none.
    pub(crate) fn of(b: &B, parts: &[Matrix], bias: Option<Vec<f32>>) -> Self {
        LinearWeights { weight: b.weight(parts), bias: bias.map(|values| b.vector(&values)) }
    }

    pub(crate) fn apply(&self, b: &B, x: Input<'_, B>, out: Output<'_, B>) {
        b.linear(x, &self.weight, self.bias.as_ref(), out);
    }
}

/// A norm on a device.
pub(crate) struct NormWeights<B: Backend> {
    center: NormCenter,
    gain: B::Vector,
    pub(crate) kind: NormGain,
    bias: Option<B::Vector>,
    pub(crate) eps: f32,
}

impl<B: Backend> NormWeights<B> {
    /// The norm called `name`, over `len` columns.
    pub(crate) fn load(
        loader: &Loader,
        b: &B,
        norm: &Norm,
        name: &str,
        len: usize,
    ) -> Result<Self, Error> {
        let mut gain = loader.gain(name, len)?;
        gain.iter_mut().for_each(|gain| *gain *= norm.scale);
        let gain = b.gain(&gain, loader.norm_over(name));
        let bias = loader.norm_bias(norm, name, len)?.map(|values| b.vector(&values));
        Ok(NormWeights { gain, kind: norm.gain, eps: norm.eps, center: norm.center, bias })
    }

    /// The norm called `name`, what it says multiplied with `scales`, one for each column.
    pub(crate) fn load_scaled(
        loader: &Loader,
        b: &B,
        norm: &Norm,
        name: &str,
        scales: &[f32],
    ) -> Result<Self, Error> {
        let plus = match norm.gain {
            NormGain::Stored => 0.0,
            NormGain::OnePlus => 1.0,
        };
        let times = |mut values: Vec<f32>, plus: f32| {
            let each = values.iter_mut().zip(scales);
            each.for_each(|(value, scale)| *value = (*value + plus) * norm.scale * scale);
            b.vector(&values)
        };
        let gain = times(loader.gain(name, scales.len())?, plus);
        let bias = loader.norm_bias(norm, name, scales.len())?.map(|bias| times(bias, 0.0));
        let (center, kind, eps) = (norm.center, NormGain::Stored, norm.eps);
        Ok(NormWeights { center, gain, kind, bias, eps })
    }

    /// An RMS norm with these gains.
    pub(crate) fn rms(b: &B, gain: &[f32], eps: f32) -> Self {
        let (center, kind) = (NormCenter::Zero, NormGain::Stored);
        NormWeights { center, gain: b.vector(gain), kind, bias: None, eps }
    }

    pub(crate) fn apply(&self, b: &B, x: &B::Buf, out: &mut B::Buf) {
        b.norm(x, self.row_norm(), out);
    }

    /// `x` as a linear layer reads it through this norm.
    pub(crate) fn input<'a>(&'a self, x: &'a B::Buf) -> Input<'a, B> {
        Input::Normed { x, norm: self.row_norm() }
    }

    pub(crate) fn row_norm(&self) -> RowNorm<'_, B::Vector> {
        let NormWeights { gain, kind, eps, center, bias } = self;
        let bias = bias.as_ref();
        RowNorm { center: *center, gain, kind: *kind, bias, eps: *eps }
    }
}
