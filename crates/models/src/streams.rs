//! Several residual streams on a device: how they begin, what a layer does to them, and how they end.
//!
//! They lie side by side in the columns of one buffer; steps see nothing but the active one.

use std::sync::Arc;

use backend::Backend;
use backend::ops::{Input, Output};

use crate::Error;
use crate::decoder::Scratch;
use crate::dense::{LinearWeights, NormWeights};
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::{AltUp, Bias, ModelSpec, Streams};

impl AltUp {
    /// What makes streams of the embedding, all but the first.
    fn entries(&self, hidden: usize) -> Vec<Linear> {
        self.square("altup_projections", hidden)
    }

    /// What makes them one again.
    fn exits(&self, hidden: usize) -> Vec<Linear> {
        self.square("altup_unembed_projections", hidden)
    }

    fn square(&self, name: &str, hidden: usize) -> Vec<Linear> {
        let linear = |i| Linear::new(format!("model.{name}.{i}"), hidden, hidden);
        (0..self.n - 1).map(linear).collect()
    }

    /// A layer's router, and what makes coefficients of what it says: to predict, and to correct.
    fn linears(&self, layer: &str, hidden: usize) -> [Linear; 3] {
        let linear = |name: &str, rows, cols| Linear::new(format!("{layer}.{name}"), rows, cols);
        [
            linear("altup.modality_router", self.n, hidden),
            linear("altup.prediction_coefs", self.n * self.n, self.n),
            linear("altup.correction_coefs", self.n, self.n),
        ]
    }
}

/// What the corrected active stream is multiplied with.
fn correct_scale(layer: &str) -> String {
    format!("{layer}.altup.correct_output_scale")
}

impl ModelSpec {
    fn altup(&self) -> Option<&AltUp> {
        match &self.streams {
            Streams::One => None,
            Streams::AltUp(altup) => Some(altup),
        }
    }

    /// The named pieces that make streams and end them.
    pub(crate) fn stream_modules(&self) -> Vec<Module> {
        let linears =
            |altup: &AltUp| [altup.entries(self.hidden), altup.exits(self.hidden)].concat();
        self.altup().map(linears).unwrap_or_default().into_iter().map(Module::Linear).collect()
    }

    /// Those that the layer called `layer` has for its streams.
    pub(crate) fn stream_layer_modules(&self, layer: &str) -> Vec<Module> {
        let Some(altup) = self.altup() else { return Vec::new() };
        let norm = &altup.router_norm;
        let mut list = norm.modules(norm.name_in(layer), self.hidden);
        list.extend(altup.linears(layer, self.hidden).map(Module::Linear));
        if altup.correct_scale == Bias::Stored {
            list.push(Module::Vector { name: correct_scale(layer), shape: vec![self.hidden] });
        }
        list
    }

    /// Numbers per row of all streams, if there are several.
    pub(crate) fn stream_cols(&self) -> usize {
        self.altup().map_or(0, |altup| altup.n * self.hidden)
    }

    /// Numbers per row that a router and its coefficients take.
    pub(crate) fn coefficient_cols(&self) -> usize {
        self.altup().map_or(0, |altup| altup.n * altup.n)
    }
}

/// Where streams begin and end.
pub(crate) struct StreamsWeights<B: Backend> {
    n: usize,
    entries: LinearWeights<B>,
    exits: Vec<LinearWeights<B>>,
}

impl<B: Backend> StreamsWeights<B> {
    /// `None` for a model with one residual stream.
    pub(crate) fn load(loader: &Loader, b: &B) -> Result<Option<Self>, Error> {
        let spec = loader.spec();
        let Some(altup) = spec.altup() else { return Ok(None) };
        let exit = |linear| LinearWeights::load(loader, b, &[linear]);
        Ok(Some(StreamsWeights {
            n: altup.n,
            entries: LinearWeights::load(loader, b, &altup.entries(spec.hidden))?,
            exits: altup.exits(spec.hidden).into_iter().map(exit).collect::<Result<_, _>>()?,
        }))
    }

    /// Makes streams of the embedded tokens in `s.x`.
    pub(crate) fn enter(&self, b: &B, s: &mut Scratch<B>) {
        self.entries.apply(b, Input::Rows(&s.x), Output::Into(&mut s.other_streams));
        b.match_size(&mut s.other_streams, &s.x);
        b.join(&s.x, &s.other_streams, &mut s.streams);
    }

    /// Makes `s.x` what the streams are together.
    pub(crate) fn leave(&self, b: &B, s: &mut Scratch<B>) {
        b.stream(&s.streams, (0, self.n), None, &mut s.x);
        b.stream(&s.streams, (0, self.n), None, &mut s.more);
        for (i, exit) in self.exits.iter().enumerate() {
            b.stream(&s.streams, (i + 1, self.n), None, &mut s.h);
            exit.apply(b, Input::Rows(&s.h), Output::Into(&mut s.y));
            b.match_size(&mut s.y, &s.more);
            b.add(&mut s.x, &s.y, 1.0);
        }
        b.scale(&mut s.x, 1.0 / self.n as f32);
    }
}

/// What a layer does to its streams.
pub(crate) struct AltUpWeights<B: Backend> {
    n: usize,
    active: usize,
    norm: NormWeights<B>,
    router: LinearWeights<B>,
    predict: LinearWeights<B>,
    correct: LinearWeights<B>,
    scale: Option<B::Vector>,
}

impl<B: Backend> AltUpWeights<B> {
    /// Those of the layer called `layer`; `None` for a model with one residual stream.
    pub(crate) fn load(loader: &Loader, b: &B, layer: &str) -> Result<Option<Arc<Self>>, Error> {
        let (spec, hidden) = (loader.spec(), loader.spec().hidden);
        let Some(altup) = spec.altup() else { return Ok(None) };
        let [router, predict, correct] = altup.linears(layer, hidden);
        let linear = |linear| LinearWeights::load(loader, b, &[linear]);
        let norm = &altup.router_norm;
        let scale = match altup.correct_scale {
            Bias::Absent => None,
            Bias::Stored => Some(b.vector(&loader.numbers(&correct_scale(layer), hidden)?)),
        };
        Ok(Some(Arc::new(AltUpWeights {
            n: altup.n,
            active: altup.active,
            norm: NormWeights::load(loader, b, norm, &norm.name_in(layer), hidden)?,
            router: linear(router)?,
            predict: linear(predict)?,
            correct: linear(correct)?,
            scale,
        })))
    }

    /// Mixes the streams, and makes `s.x` the active one.
    pub(crate) fn predict(&self, b: &B, s: &mut Scratch<B>) {
        b.stream(&s.streams, (self.active, self.n), None, &mut s.x);
        self.coefficients(b, &self.predict, s);
        b.predict_streams(&mut s.streams, &s.router);
        b.stream(&s.streams, (self.active, self.n), None, &mut s.x);
    }

    /// Adds to all streams what the steps have changed of the active one, `s.x`, which then is what
    /// the step reads that adds to the others.
    pub(crate) fn correct(&self, b: &B, s: &mut Scratch<B>) {
        self.coefficients(b, &self.correct, s);
        b.correct_streams(&mut s.streams, &s.router, &s.x, self.active);
        b.stream(&s.streams, (self.active, self.n), self.scale.as_ref(), &mut s.x);
    }

    /// Leaves in `s.router` what `last` makes of what the router says about `s.x`.
    fn coefficients(&self, b: &B, last: &LinearWeights<B>, s: &mut Scratch<B>) {
        self.router.apply(b, self.norm.input(&s.x), Output::Into(&mut s.modalities));
        // This is the hyperbolic tangent.
        b.soft_cap(&mut s.modalities, 1.0);
        last.apply(b, Input::Rows(&s.modalities), Output::Into(&mut s.router));
    }
}
