//! A residual connection with a low-rank projection beside it, on a device.

use backend::Backend;
use backend::ops::{Input, Output};

use crate::Error;
use crate::decoder::{Scratch, ScratchSizes};
use crate::dense::{LinearWeights, NormWeights};
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::Laurel;

impl Laurel {
    /// The projections down and up.
    fn linears(&self, layer: &str, hidden: usize) -> [Linear; 2] {
        [
            Linear::new(format!("{layer}.laurel.linear_left"), self.rank, hidden),
            Linear::new(format!("{layer}.laurel.linear_right"), hidden, self.rank),
        ]
    }

    pub(crate) fn modules(&self, layer: &str, hidden: usize) -> Vec<Module> {
        let linears = self.linears(layer, hidden).map(Module::Linear);
        let norm = self.norm.modules(self.norm.name_in(layer), hidden);
        linears.into_iter().chain(norm).collect()
    }

    pub(crate) fn measure(&self, hidden: usize, sizes: &mut ScratchSizes) {
        sizes.low = sizes.low.max(self.rank);
        sizes.more = hidden;
    }
}

/// One on a device.
pub(crate) struct LaurelWeights<B: Backend> {
    left: LinearWeights<B>,
    right: LinearWeights<B>,
    norm: NormWeights<B>,
    scale: f32,
}

impl<B: Backend> LaurelWeights<B> {
    pub(crate) fn load(loader: &Loader, b: &B, spec: &Laurel, layer: &str) -> Result<Self, Error> {
        let hidden = loader.spec().hidden;
        let [left, right] = spec.linears(layer, hidden);
        Ok(LaurelWeights {
            left: LinearWeights::load(loader, b, &[left])?,
            right: LinearWeights::load(loader, b, &[right])?,
            norm: NormWeights::load(loader, b, &spec.norm, &spec.norm.name_in(layer), hidden)?,
            scale: spec.scale,
        })
    }

    /// Adds `s.y`, the sum of the branches, and all that goes beside it to `s.x`.
    pub(crate) fn leave(
        &self,
        b: &B,
        before: Option<&NormWeights<B>>,
        after: Option<&NormWeights<B>>,
        s: &mut Scratch<B>,
    ) {
        if let Some(after) = after {
            after.apply(b, &s.y, &mut s.more);
            std::mem::swap(&mut s.y, &mut s.more);
        }
        let n = match before {
            Some(before) => {
                before.apply(b, &s.x, &mut s.h);
                &s.h
            }
            None => &s.x,
        };
        self.left.apply(b, Input::Rows(n), Output::Into(&mut s.low));
        self.right.apply(b, Input::Rows(&s.low), Output::Into(&mut s.more));
        b.add(&mut s.y, n, 1.0);
        self.norm.apply(b, &s.more, &mut s.h);
        b.add(&mut s.y, &s.h, 1.0);
        b.add(&mut s.x, &s.y, 1.0);
        b.scale(&mut s.x, self.scale);
    }
}
