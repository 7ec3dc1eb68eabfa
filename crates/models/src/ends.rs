//! The two ends of a model on a device: from tokens to the residual stream, and from there to logits.
//!
//! What lies between is in `layers.rs`.

use backend::Backend;
use backend::ops::Output;
use weights::{Matrix, Packing};

use crate::decoder::Scratch;
use crate::dense::{LinearWeights, NormWeights};
use crate::layer_inputs::LayerInputsWeights;
use crate::loader::Loader;
use crate::recipe::Head;
use crate::streams::StreamsWeights;
use crate::{Error, ModelSpec};

/// Embedding and output matrix, with what belongs to them.
pub(crate) struct Ends<B: Backend> {
    embed: B::Weight,
    positions: Option<B::Weight>,
    layer_inputs: Option<LayerInputsWeights<B>>,
    streams: Option<StreamsWeights<B>>,
    pub(crate) final_norm: NormWeights<B>,
    head: HeadWeights<B>,
}

enum HeadWeights<B: Backend> {
    Tied,
    Separate(LinearWeights<B>),
    /// With a final norm of its own, whose gains are divided by the lengths of the columns.
    UnitColumns {
        norm: NormWeights<B>,
        head: LinearWeights<B>,
    },
}

/// Added to the lengths of columns.
const LENGTH_EPS: f64 = 1e-7;

/// What each column of `matrix` is multiplied with to be of length one.
fn inverse_lengths(matrix: &Matrix) -> Vec<f32> {
    let mut squares = vec![0.0f64; matrix.cols];
    let mut row = vec![0.0; matrix.cols];
    for i in 0..matrix.rows {
        matrix.dequantize_row(i, &mut row);
        squares.iter_mut().zip(&row).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
    }
    squares.into_iter().map(|sum| (1.0 / (sum.sqrt() + LENGTH_EPS)) as f32).collect()
}

impl<B: Backend> HeadWeights<B> {
    fn load(loader: &Loader, b: &B) -> Result<Self, Error> {
        let spec = loader.spec();
        if let (Head::Tied, None) = (spec.head, loader.own_head()?) {
            return Ok(HeadWeights::Tied);
        }
        let separate = || match loader.own_head()? {
            Some(own) => Ok(LinearWeights::joined(b, &own, loader.biases(&[spec.lm_head()])?)),
            None => LinearWeights::load(loader, b, &[spec.lm_head()]),
        };
        if spec.head == Head::Tied {
            return Ok(HeadWeights::Separate(separate()?));
        }
        let matrix = loader.matrix(&spec.lm_head())?;
        if spec.head != Head::UnitColumns || !matches!(matrix.packing, Packing::Plain(_)) {
            return Ok(HeadWeights::Separate(separate()?));
        }
        let (scales, name) = (inverse_lengths(&matrix), spec.final_norm_name());
        let norm = NormWeights::load_scaled(loader, b, &spec.final_norm, &name, &scales)?;
        Ok(HeadWeights::UnitColumns { norm, head: separate()? })
    }
}

impl<B: Backend> Ends<B> {
    pub(crate) fn load(loader: &Loader, b: &B) -> Result<Self, Error> {
        let spec = loader.spec();
        let embed = b.weight(&[loader.matrix(&spec.embedding())?]);
        let table = spec.position_table().map(|table| loader.matrix(&table)).transpose()?;
        let name = spec.final_norm_name();
        Ok(Ends {
            embed,
            positions: table.map(|table| b.weight(&[table])),
            layer_inputs: LayerInputsWeights::load(loader, b)?,
            streams: StreamsWeights::load(loader, b)?,
            final_norm: NormWeights::load(loader, b, &spec.final_norm, &name, spec.hidden)?,
            head: HeadWeights::load(loader, b)?,
        })
    }

    /// Makes the residual stream the embeddings of the batch's tokens.
    pub(crate) fn embed(&self, b: &B, spec: &ModelSpec, batch: &B::Staged, s: &mut Scratch<B>) {
        b.embed(&self.embed, batch, spec.embed_scale, &mut s.x);
    }

    /// Makes the residual stream, and whatever else layers read, what the first layer is to find.
    pub(crate) fn enter(&self, b: &B, spec: &ModelSpec, batch: &B::Staged, s: &mut Scratch<B>) {
        self.embed(b, spec, batch, s);
        if let Some(table) = &self.positions {
            b.add_positions(table, batch, &mut s.x);
        }
        if let Some(inputs) = &self.layer_inputs {
            inputs.forward(b, batch, s);
        }
        if let Some(streams) = &self.streams {
            streams.enter(b, s);
        }
    }

    /// From what the last layer has left of the wanted rows to their logits.
    pub(crate) fn leave(&self, b: &B, spec: &ModelSpec, s: &mut Scratch<B>) {
        if let Some(streams) = &self.streams {
            streams.leave(b, s);
        }
        let (x, logits) = (self.final_norm.input(&s.x), Output::Into(&mut s.logits));
        match &self.head {
            HeadWeights::Tied => b.linear(x, &self.embed, None, logits),
            HeadWeights::Separate(head) => head.apply(b, x, logits),
            HeadWeights::UnitColumns { norm, head } => head.apply(b, norm.input(&s.x), logits),
        }
        if spec.logit_scale != 1.0 {
            b.scale(&mut s.logits, spec.logit_scale);
        }
        if let Some(cap) = spec.final_soft_cap {
            b.soft_cap(&mut s.logits, cap);
        }
    }
}
