//! The loaded pieces that every layer is built from: linear layers and norms.

use backend::ops::{Input, Output, RowNorm};
use backend::{Backend, NormGain};
use weights::Matrix;

use crate::Error;
use crate::loader::Loader;
use crate::modules::Linear;
use crate::recipe::{Norm, Norms};

/// A linear layer on a device.
pub(crate) struct LinearWeights<B: Backend> {
    weight: B::Weight,
    bias: Option<B::Vector>,
}

impl<B: Backend> LinearWeights<B> {
    /// One layer out of `parts`, whose outputs follow one another.
    pub(crate) fn load(loader: &Loader, b: &B, parts: &[Linear]) -> Result<Self, Error> {
        let matrices =
            parts.iter().map(|part| loader.matrix(part)).collect::<Result<Vec<_>, _>>()?;
        Ok(LinearWeights::of(b, &matrices, loader.biases(parts)?))
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
    pub(crate) gain: B::Vector,
    pub(crate) kind: NormGain,
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
        let gain = b.vector(&loader.gain(name, len)?);
        Ok(NormWeights { gain, kind: norm.gain, eps: norm.eps })
    }

    pub(crate) fn apply(&self, b: &B, x: &B::Buf, out: &mut B::Buf) {
        b.rms_norm(x, self.row_norm(), out);
    }

    /// `x` as a linear layer reads it through this norm.
    pub(crate) fn input<'a>(&'a self, x: &'a B::Buf) -> Input<'a, B> {
        Input::Normed { x, norm: self.row_norm() }
    }

    fn row_norm(&self) -> RowNorm<'_, B::Vector> {
        RowNorm { gain: &self.gain, kind: self.kind, eps: self.eps }
    }
}

/// The norms around one branch of a layer.
pub(crate) enum NormsWeights<B: Backend> {
    Pre(NormWeights<B>),
    Sandwich { before: NormWeights<B>, after: NormWeights<B> },
}

impl<B: Backend> NormsWeights<B> {
    pub(crate) fn load(loader: &Loader, b: &B, norms: &Norms, layer: &str) -> Result<Self, Error> {
        let load = |norm: &Norm| {
            let name = format!("{layer}.{}", norm.name);
            NormWeights::load(loader, b, norm, &name, loader.spec().hidden)
        };
        Ok(match norms {
            Norms::Pre(norm) => NormsWeights::Pre(load(norm)?),
            Norms::Sandwich { before, after } => {
                NormsWeights::Sandwich { before: load(before)?, after: load(after)? }
            }
        })
    }

    /// The norm through which the branch reads the residual stream.
    pub(crate) fn before(&self) -> &NormWeights<B> {
        match self {
            NormsWeights::Pre(norm) | NormsWeights::Sandwich { before: norm, .. } => norm,
        }
    }

    /// Ends a branch whose last layer is `last`, reading `inner`: adds what it says to `x`.
    /// Overwrites `y` and `h`.
    pub(crate) fn finish(
        &self,
        b: &B,
        (last, inner): (&LinearWeights<B>, &B::Buf),
        (y, h): (&mut B::Buf, &mut B::Buf),
        x: &mut B::Buf,
    ) {
        match self {
            NormsWeights::Pre(_) => last.apply(b, Input::Rows(inner), Output::Onto(x)),
            NormsWeights::Sandwich { .. } => {
                last.apply(b, Input::Rows(inner), Output::Into(y));
                self.leave(b, y, h, x);
            }
        }
    }

    /// Adds `y`, what the branch says, to `x`. Overwrites `h`.
    pub(crate) fn leave(&self, b: &B, y: &B::Buf, h: &mut B::Buf, x: &mut B::Buf) {
        match self {
            NormsWeights::Pre(_) => b.add(x, y),
            NormsWeights::Sandwich { after, .. } => {
                after.apply(b, y, h);
                b.add(x, h);
            }
        }
    }
}
