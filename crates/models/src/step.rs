//! A step of a layer on a device: norms, the branches between them, and the sum that is added to the
//! residual stream.
//!
//! What a branch computes is its own business, in `mixers/` and `ffn/`; here is how it is connected.

use std::sync::Arc;

use backend::Backend;
use backend::ops::{Input, Output};

use crate::Error;
use crate::decoder::{Pass, Scratch};
use crate::dense::{LinearWeights, NormWeights};
use crate::ffn::FfnWeights;
use crate::laurel::LaurelWeights;
use crate::loader::Loader;
use crate::mixers::{MixerWeights, Stores};
use crate::recipe::{Branch, Norm, Norms, Skip, Step};
use crate::streams::AltUpWeights;

/// A step on a device.
pub(crate) struct StepWeights<B: Backend> {
    /// What mixes the streams first, in front of a layer.
    streams: Option<Arc<AltUpWeights<B>>>,
    before: Option<NormWeights<B>>,
    branches: Vec<BranchWeights<B>>,
    after: Option<NormWeights<B>>,
    skip: SkipWeights<B>,
    scale: f32,
    /// What the residual stream is multiplied with at last.
    scalar: Option<f32>,
}

enum SkipWeights<B: Backend> {
    Stream,
    Laurel(LaurelWeights<B>),
    OtherStreams(Arc<AltUpWeights<B>>),
}

enum BranchWeights<B: Backend> {
    Mixer(MixerWeights<B>),
    Ffn(FfnWeights<B>),
}

/// How a branch is connected to the residual stream.
pub(crate) struct Wiring<'a, B: Backend> {
    before: Option<&'a NormWeights<B>>,
    exit: Exit,
}

/// What becomes of what a branch says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// It goes to the residual stream at once: nothing else is to be done to it.
    Stream,
    /// It begins the sum of the step.
    First,
    /// It is added to the sum of the step.
    Next,
}

impl<B: Backend> StepWeights<B> {
    /// The step that `spec` describes, in the layer called `layer`, whose streams are `streams`.
    pub(crate) fn load(
        loader: &Loader,
        b: &B,
        spec: &Step,
        (layer, streams): (&str, Option<&Arc<AltUpWeights<B>>>),
    ) -> Result<Self, Error> {
        let (before, after) = match &spec.norms {
            Norms::Pre(norm) => (Some(norm), None),
            Norms::Sandwich { before, after } => (Some(before), Some(after)),
            Norms::Post(norm) => (None, Some(norm)),
        };
        let load = |norm: &Norm| {
            NormWeights::load(loader, b, norm, &norm.name_in(layer), loader.spec().hidden)
        };
        let branch = |branch: &Branch| {
            Ok(match branch {
                Branch::Mixer(mixer) => {
                    BranchWeights::Mixer(MixerWeights::load(loader, b, mixer, layer)?)
                }
                Branch::Ffn(ffn) => BranchWeights::Ffn(FfnWeights::load(loader, b, ffn, layer)?),
            })
        };
        let skip = match &spec.skip {
            Skip::Stream => SkipWeights::Stream,
            Skip::Laurel(laurel) => {
                SkipWeights::Laurel(LaurelWeights::load(loader, b, laurel, layer)?)
            }
            Skip::OtherStreams => {
                SkipWeights::OtherStreams(streams.expect("a model with several").clone())
            }
        };
        Ok(StepWeights {
            streams: None,
            before: before.map(load).transpose()?,
            branches: spec.branches.iter().map(branch).collect::<Result<_, Error>>()?,
            after: after.map(load).transpose()?,
            skip,
            scale: spec.scale,
            scalar: None,
        })
    }

    /// Multiplies the residual stream with `scalar` when all else is done.
    pub(crate) fn then_scale(&mut self, scalar: f32) {
        self.scalar = Some(scalar);
    }

    /// Mixes the streams before all else.
    pub(crate) fn after_prediction(&mut self, streams: Option<Arc<AltUpWeights<B>>>) {
        self.streams = streams;
    }

    /// Adds to `s.x` what the branches say about it.
    pub(crate) fn forward(
        &self,
        b: &B,
        pass: Pass<'_, B>,
        stores: &mut Stores<'_, B>,
        s: &mut Scratch<B>,
    ) {
        if let Some(streams) = &self.streams {
            streams.predict(b, s);
        }
        if let SkipWeights::OtherStreams(streams) = &self.skip {
            streams.correct(b, s);
        }
        for (i, branch) in self.branches.iter().enumerate() {
            let wiring = Wiring { before: self.before.as_ref(), exit: self.exit(i) };
            match branch {
                BranchWeights::Mixer(mixer) => {
                    mixer.forward(b, pass, &wiring, stores, s);
                }
                BranchWeights::Ffn(ffn) => ffn.forward(b, pass, &wiring, s),
            }
        }
        if self.exit(0) != Exit::Stream {
            self.leave(b, s);
        }
        if let Some(scalar) = self.scalar {
            b.scale(&mut s.x, scalar);
        }
    }

    /// Adds the sum of the branches, `s.y`, to where it belongs.
    fn leave(&self, b: &B, s: &mut Scratch<B>) {
        if let SkipWeights::Laurel(laurel) = &self.skip {
            return laurel.leave(b, self.before.as_ref(), self.after.as_ref(), s);
        }
        let said = match &self.after {
            None => &s.y,
            Some(after) => {
                after.apply(b, &s.y, &mut s.h);
                &s.h
            }
        };
        match &self.skip {
            SkipWeights::OtherStreams(_) => b.add_to_other_streams(&mut s.streams, said),
            SkipWeights::Stream | SkipWeights::Laurel(_) => b.add(&mut s.x, said, self.scale),
        }
    }

    fn exit(&self, branch: usize) -> Exit {
        let is_alone = self.branches.len() == 1
            && self.after.is_none()
            && self.scale == 1.0
            && matches!(self.skip, SkipWeights::Stream);
        match branch {
            0 if is_alone => Exit::Stream,
            0 => Exit::First,
            _ => Exit::Next,
        }
    }
}

impl<B: Backend> Wiring<'_, B> {
    /// The residual stream `x` as a linear layer of the branch reads it.
    pub(crate) fn input<'a>(&'a self, x: &'a B::Buf) -> Input<'a, B> {
        match self.before {
            Some(norm) => norm.input(x),
            None => Input::Rows(x),
        }
    }

    /// The same written down, for what is no linear layer. May overwrite `h`.
    pub(crate) fn rows<'a>(&self, b: &B, x: &'a B::Buf, h: &'a mut B::Buf) -> &'a B::Buf {
        match self.before {
            Some(norm) => {
                norm.apply(b, x, h);
                h
            }
            None => x,
        }
    }

    /// Ends a branch whose last layer is `last`, reading `inner`: leaves what it says where that
    /// belongs, in the residual stream `x` or in the sum `y` of the step.
    pub(crate) fn finish(
        &self,
        b: &B,
        (last, inner): (&LinearWeights<B>, &B::Buf),
        x: &mut B::Buf,
        y: &mut B::Buf,
    ) {
        let out = match self.exit {
            Exit::Stream => Output::Onto(x),
            Exit::First => Output::Into(y),
            Exit::Next => Output::Onto(y),
        };
        last.apply(b, Input::Rows(inner), out);
    }

    /// [`Wiring::finish`] for what is to be multiplied with `scale`. Overwrites `more`.
    pub(crate) fn finish_scaled(
        &self,
        b: &B,
        (last, inner): (&LinearWeights<B>, &B::Buf),
        scale: f32,
        (x, y, more): (&mut B::Buf, &mut B::Buf, &mut B::Buf),
    ) {
        if scale == 1.0 {
            return self.finish(b, (last, inner), x, y);
        }
        match self.exit {
            Exit::First => {
                last.apply(b, Input::Rows(inner), Output::Into(y));
                b.scale(y, scale);
            }
            Exit::Stream | Exit::Next => {
                last.apply(b, Input::Rows(inner), Output::Into(more));
                b.add(if self.exit == Exit::Stream { x } else { y }, more, scale);
            }
        }
    }

    /// Where a branch that cannot add writes down what it says; [`Wiring::leave`] takes it from there.
    pub(crate) fn said<'a>(&self, y: &'a mut B::Buf, more: &'a mut B::Buf) -> &'a mut B::Buf {
        match self.exit {
            Exit::Stream | Exit::First => y,
            Exit::Next => more,
        }
    }

    /// Ends a branch that wrote to [`Wiring::said`].
    pub(crate) fn leave(&self, b: &B, x: &mut B::Buf, y: &mut B::Buf, more: &B::Buf) {
        match self.exit {
            Exit::Stream => b.add(x, y, 1.0),
            Exit::First => {}
            Exit::Next => b.add(y, more, 1.0),
        }
    }
}
