//! What a model is made of in the terms of a checkpoint: every named matrix and vector that its spec
//! asks for. Loading, counting and inventing random weights all read this one list.
//!
//! Names are canonical; the checkpoint knows under which prefixes files hide them.

use backend::{Latent, NormGain};

use crate::recipe::{
    Bias, Branch, Head, JoinedRows, Layer, LayerScalars, ModelSpec, Norm, Place, Positions, Skip,
};
use crate::{Part, ffn, mixers};

/// One named piece of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Module {
    /// A matrix that multiplies every row.
    Linear(Linear),
    /// The same projection of all experts; a row meets `top_k` of them.
    Experts(ExpertLinear),
    /// The projection from a latent to the keys and values of all heads.
    LatentUp(LatentUp),
    /// The token embedding: a row of it per token.
    Embedding(Linear),
    /// A norm's gain.
    Gain {
        /// Name without `.weight`.
        name: String,
        /// How many numbers.
        len: usize,
        /// What they mean.
        kind: NormGain,
    },
    /// Any other numbers.
    Vector {
        /// The whole name.
        name: String,
        /// Sizes, as transformers stores it.
        shape: Vec<usize>,
    },
}

/// A linear layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Name without `.weight`.
    pub name: String,
    /// Output columns.
    pub rows: usize,
    /// Input columns.
    pub cols: usize,
    /// Whether there is a `.bias` of `rows` numbers.
    pub bias: Bias,
}

/// One projection of every expert of a layer, stored as one stack or expert by expert.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertLinear {
    /// The layer's feed-forward part, e.g. `model.layers.0.mlp`.
    pub parent: String,
    /// Which projection, e.g. `up_proj`.
    pub projection: &'static str,
    /// How many experts.
    pub n: usize,
    /// How many a row meets.
    pub top_k: usize,
    /// Output columns of one expert.
    pub rows: usize,
    /// Input columns.
    pub cols: usize,
    /// Whether each has a bias.
    pub bias: Bias,
    /// How a stack has gate and up, where it has them together.
    pub joined_rows: JoinedRows,
}

/// What makes keys and values of a latent: stored as one projection, whose rows are those of the
/// keys and then those of the values of each head, or as two, both the way they are multiplied.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentUp {
    /// The attention it belongs to, e.g. `model.layers.0.self_attn`.
    pub parent: String,
    /// Its sizes.
    pub shape: Latent,
}

impl Linear {
    /// A layer without bias.
    pub(crate) fn new(name: String, rows: usize, cols: usize) -> Linear {
        Linear { name, rows, cols, bias: Bias::Absent }
    }

    /// Numbers in the matrix and the bias.
    pub fn n_params(&self) -> u64 {
        product(&[self.rows, self.cols]).saturating_add(self.bias.len(self.rows) as u64)
    }
}

impl ExpertLinear {
    /// Names that a stack of all experts may have.
    pub fn stacked(&self) -> Vec<String> {
        let ExpertLinear { parent, projection, .. } = self;
        let mut names = vec![
            format!("{parent}.switch_mlp.{projection}"),
            format!("{parent}.experts.{projection}"),
            format!("{parent}.experts.switch_glu.{projection}"),
        ];
        match self.projection {
            "up_proj" => names.push(format!("{parent}.switch_mlp.fc1")),
            "down_proj" => {
                names.push(format!("{parent}.switch_mlp.fc2"));
                names.push(format!("{parent}.output_linear"));
            }
            _ => {}
        }
        names
    }

    /// Names that a stack may have in which each expert has gate and up together.
    pub fn joined(&self) -> Vec<String> {
        match self.projection {
            "down_proj" => Vec::new(),
            _ => ["experts.gate_up_proj", "input_linear"]
                .map(|name| format!("{}.{name}", self.parent))
                .to_vec(),
        }
    }

    /// Names that one expert may have, the usual one first.
    pub fn single(&self, expert: usize) -> [String; 2] {
        let short = match self.projection {
            "gate_proj" => "w1",
            "up_proj" => "w3",
            _ => "w2",
        };
        [self.projection, short].map(|name| format!("{}.experts.{expert}.{name}", self.parent))
    }

    /// Whether it is the projection back.
    pub(crate) fn is_down(&self) -> bool {
        self.projection == "down_proj"
    }

    /// Numbers of `n` experts.
    fn n_params(&self, n: usize) -> u64 {
        product(&[n, self.rows, self.cols]).saturating_add(product(&[n, self.bias.len(self.rows)]))
    }
}

impl LatentUp {
    /// Name of the one projection.
    pub fn joined(&self) -> String {
        format!("{}.kv_b_proj", self.parent)
    }

    /// Name of what takes queries to the latent, `[heads, rank, plain]`.
    pub fn keys(&self) -> String {
        format!("{}.embed_q", self.parent)
    }

    /// Name of what makes values of a latent, `[heads, v_dim, rank]`.
    pub fn values(&self) -> String {
        format!("{}.unembed_out", self.parent)
    }

    /// Rows of the one projection that belong to a head.
    pub fn rows_per_head(&self) -> usize {
        self.shape.plain + self.shape.v_dim
    }

    fn n_params(&self) -> u64 {
        product(&[self.shape.heads, self.rows_per_head(), self.shape.rank])
    }
}

impl Module {
    /// Numbers in all of it.
    pub fn n_params(&self) -> u64 {
        match self {
            Module::Linear(linear) | Module::Embedding(linear) => linear.n_params(),
            Module::Experts(e) => e.n_params(e.n),
            Module::LatentUp(up) => up.n_params(),
            Module::Gain { len, .. } => *len as u64,
            Module::Vector { shape, .. } => product(shape),
        }
    }

    /// Numbers that one decoded token reads.
    pub fn n_active_params(&self) -> u64 {
        match self {
            Module::Linear(linear) => linear.n_params(),
            Module::Experts(e) => e.n_params(e.top_k),
            Module::LatentUp(up) => up.n_params(),
            Module::Embedding(linear) => linear.cols as u64,
            Module::Gain { len, .. } => *len as u64,
            Module::Vector { shape, .. } => product(shape),
        }
    }
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |n, &size| n.saturating_mul(size as u64))
}

impl ModelSpec {
    /// Every named piece, the embedding first. A head that the config leaves open is listed.
    pub fn modules(&self) -> Vec<Module> {
        let mut list = self.first_modules();
        for (i, layer) in self.layers.iter().enumerate() {
            list.extend(self.layer_modules(i, layer));
        }
        list.extend(self.last_modules());
        list
    }

    /// Those that a machine with `part` of the model has.
    pub(crate) fn modules_of(&self, part: &Part) -> Vec<Module> {
        let mut list = if part.rank == 0 { self.end_modules() } else { Vec::new() };
        for i in part.layers.clone() {
            list.extend(self.layer_modules(i, &self.layers[i]));
        }
        list
    }

    /// Those before the first layer and after the last.
    pub(crate) fn end_modules(&self) -> Vec<Module> {
        let mut list = self.first_modules();
        list.extend(self.last_modules());
        list
    }

    fn first_modules(&self) -> Vec<Module> {
        let mut list = vec![Module::Embedding(self.embedding())];
        list.extend(self.position_table().map(Module::Embedding));
        list.extend(self.layer_input_modules());
        list.extend(self.stream_modules());
        list
    }

    fn last_modules(&self) -> Vec<Module> {
        let mut list = self.final_norm.modules(self.final_norm_name(), self.hidden);
        if self.head != Head::Tied {
            list.push(Module::Linear(self.lm_head()));
        }
        list
    }

    pub(crate) fn layer_modules(&self, i: usize, layer: &Layer) -> Vec<Module> {
        let parent = self.layer_name(i);
        let norms = layer.norms();
        let norms = norms.flat_map(|norm| norm.modules(norm.name_in(&parent), self.hidden));
        let mut list: Vec<Module> = norms.collect();
        list.extend(self.stream_layer_modules(&parent));
        for step in &layer.steps {
            if let Skip::Laurel(laurel) = &step.skip {
                list.extend(laurel.modules(&parent, self.hidden));
            }
        }
        for branch in layer.branches() {
            list.extend(match branch {
                Branch::Mixer(mixer) => mixers::modules(mixer, &parent, self.hidden),
                Branch::Ffn(ffn) => ffn::modules(ffn, &parent, self.hidden),
            });
        }
        match self.layer_scalars {
            LayerScalars::Absent => {}
            LayerScalars::Stored => {
                list.push(Module::Vector { name: scalar_name(&parent), shape: vec![1] });
            }
        }
        list
    }

    pub(crate) fn embedding(&self) -> Linear {
        Linear::new(format!("model.{}", self.embed), self.vocab, self.hidden)
    }

    /// What is added to embeddings, if there is such a table.
    pub(crate) fn position_table(&self) -> Option<Linear> {
        match self.positions {
            Positions::Absent => None,
            Positions::Table(name) => {
                Some(Linear::new(format!("model.{name}"), self.max_positions, self.hidden))
            }
        }
    }

    pub(crate) fn lm_head(&self) -> Linear {
        let (name, rows, cols) = ("lm_head".into(), self.vocab, self.hidden);
        Linear { name, rows, cols, bias: self.head_bias }
    }

    pub(crate) fn final_norm_name(&self) -> String {
        match &self.place {
            Place::Trunk { .. } => self.final_norm.name_in("model"),
            Place::Draft { end, .. } => self.final_norm.name_in(end),
        }
    }

    /// The name of layer `i`, which its parts begin with.
    pub(crate) fn layer_name(&self, i: usize) -> String {
        self.place.layer_name(i)
    }

    /// Whether a part of this name is one of a layer.
    pub(crate) fn is_in_layer(&self, name: &str) -> bool {
        let first = self.layer_name(0);
        let all = first.strip_suffix('0').unwrap_or(&first);
        name.starts_with(all)
    }

    /// The layers with their names, to change.
    pub(crate) fn named_layers_mut(&mut self) -> impl Iterator<Item = (String, &mut Layer)> {
        let place = &self.place;
        self.layers.iter_mut().enumerate().map(|(i, layer)| (place.layer_name(i), layer))
    }
}

impl Norm {
    /// Its full name in `parent`.
    pub(crate) fn name_in(&self, parent: &str) -> String {
        format!("{parent}.{}", self.name)
    }

    /// What is stored of it under `name`, for `len` columns.
    pub(crate) fn modules(&self, name: String, len: usize) -> Vec<Module> {
        let bias = match self.bias {
            Bias::Absent => None,
            Bias::Stored => Some(Module::Vector { name: format!("{name}.bias"), shape: vec![len] }),
        };
        let gain = Module::Gain { name, len, kind: self.gain };
        [gain].into_iter().chain(bias).collect()
    }
}

/// The name of what the residual stream is multiplied with after the layer called `layer`.
pub(crate) fn scalar_name(layer: &str) -> String {
    format!("{layer}.layer_scalar")
}
