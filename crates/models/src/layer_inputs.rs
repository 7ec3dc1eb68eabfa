//! What tokens bring along for every layer besides their embeddings, made once per pass: an entry of a
//! table of its own, and a projection of the embedding. What a layer does with it is in
//! `ffn/layer_input.rs`.

use backend::Backend;
use backend::NormGain;
use backend::ops::{Input, Output};

use crate::Error;
use crate::decoder::Scratch;
use crate::dense::LinearWeights;
use crate::loader::Loader;
use crate::modules::{Linear, Module};
use crate::recipe::{LayerInputs, ModelSpec};

const NORM: &str = "model.per_layer_projection_norm";

impl LayerInputs {
    /// Columns for all of `n_layers`.
    fn cols(&self, n_layers: usize) -> usize {
        n_layers * self.width
    }

    fn table(&self, n_layers: usize) -> Linear {
        Linear::new("model.embed_tokens_per_layer".into(), self.vocab, self.cols(n_layers))
    }

    fn projection(&self, n_layers: usize, hidden: usize) -> Linear {
        let rows = self.cols(n_layers);
        Linear::new("model.per_layer_model_projection".into(), rows, hidden)
    }
}

impl ModelSpec {
    /// The named pieces of the inputs of all layers, if there are such inputs.
    pub(crate) fn layer_input_modules(&self) -> Vec<Module> {
        let Some(inputs) = &self.layer_inputs else { return Vec::new() };
        let n_layers = self.layers.len();
        vec![
            Module::Embedding(inputs.table(n_layers)),
            Module::Linear(inputs.projection(n_layers, self.hidden)),
            Module::Gain { name: NORM.into(), len: inputs.width, kind: NormGain::Stored },
        ]
    }

    /// Numbers per row that they take.
    pub(crate) fn layer_input_cols(&self) -> usize {
        self.layer_inputs.as_ref().map_or(0, |inputs| inputs.cols(self.layers.len()))
    }
}

/// What makes the inputs of all layers, on a device.
pub(crate) struct LayerInputsWeights<B: Backend> {
    spec: backend::LayerInputs,
    table: B::Weight,
    projection: LinearWeights<B>,
    gain: B::Vector,
}

impl<B: Backend> LayerInputsWeights<B> {
    /// `None` for a model without such inputs.
    pub(crate) fn load(loader: &Loader, b: &B) -> Result<Option<Self>, Error> {
        let spec = loader.spec();
        let Some(inputs) = &spec.layer_inputs else { return Ok(None) };
        let (n_layers, hidden) = (spec.layers.len(), spec.hidden);
        Ok(Some(LayerInputsWeights {
            spec: backend::LayerInputs {
                width: inputs.width,
                // The projection should be divided by the root of `hidden` first. Its norm takes that
                // back, all but what it adds to the mean square.
                eps: inputs.eps * hidden as f32,
                table_scale: (inputs.width as f32).sqrt(),
                scale: std::f32::consts::FRAC_1_SQRT_2,
            },
            table: b.weight(&[loader.matrix(&inputs.table(n_layers))?]),
            projection: LinearWeights::load(loader, b, &[inputs.projection(n_layers, hidden)])?,
            gain: b.vector(&loader.gain(NORM, inputs.width)?),
        }))
    }

    /// Reads the embedded tokens in `s.x`, writes `s.inputs`.
    pub(crate) fn forward(&self, b: &B, batch: &B::Staged, s: &mut Scratch<B>) {
        self.projection.apply(b, Input::Rows(&s.x), Output::Into(&mut s.inputs));
        b.layer_inputs(&mut s.inputs, &self.table, &self.gain, &self.spec, batch);
    }
}
