//! Draft heads: one more layer or two, which guess the token after next from what the model has made of a
//! position and from the token that follows it. DeepSeek-V3's report, section 2.2, describes it.
//!
//! A model is whole without them, and most files lack them; who guesses when is nobody's business here.

use super::{Layer, ModelSpec, Norm, Positions, Streams};

/// Layers that guess, between what joins their two inputs and the model's own output matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// What the names of its norms and of its projection begin with.
    pub parent: String,
    /// Applied to the embedding of the token that follows.
    pub token_norm: Norm,
    /// Applied to what the model, or the head before, has made of the position.
    pub hidden_norm: Norm,
    /// What the projection of both together is called.
    pub projection: &'static str,
    /// How they lie in its columns.
    pub order: PairOrder,
    /// Its layers, which have caches of their own, each behind its full name.
    pub layers: Vec<(String, Layer)>,
    /// The norm before the output matrix.
    pub final_norm: Norm,
    /// What the name of that norm begins with.
    pub end: String,
}

/// How two inputs of a projection lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOrder {
    /// The token, then the position.
    TokenFirst,
    /// The position, then the token.
    HiddenFirst,
}

/// Where the layers and the final norm of a model lie in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where those of nearly every model do.
    Trunk {
        /// What layers are called, before their numbers: usually `layers`.
        layers: &'static str,
    },
    /// Where a draft head has them.
    Draft {
        /// The full names of the layers.
        layers: Vec<String>,
        /// What the name of the norm begins with.
        end: String,
    },
}

impl Place {
    /// The name of layer `i`, which its parts begin with.
    pub(crate) fn layer_name(&self, i: usize) -> String {
        match self {
            Place::Trunk { layers } => format!("model.{layers}.{i}"),
            Place::Draft { layers, .. } => layers[i].clone(),
        }
    }
}

impl Draft {
    /// The head as a model of few layers, which shares embedding and output matrix with `trunk`.
    pub(crate) fn body(&self, trunk: &ModelSpec) -> ModelSpec {
        let (names, layers) = self.layers.iter().cloned().unzip();
        ModelSpec {
            positions: Positions::Absent,
            layer_inputs: None,
            streams: Streams::One,
            layers,
            final_norm: self.final_norm.clone(),
            place: Place::Draft { layers: names, end: self.end.clone() },
            drafts: Vec::new(),
            ..trunk.clone()
        }
    }
}
