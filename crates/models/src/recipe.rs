//! The words a family file is written in: a model as plain data.
//!
//! No weights, no device, no loops over tokens. A difference between families is a new variant here
//! with its own file under `mixers/` or `ffn/`, never a flag in a shared struct.

mod draft;
mod latent;
mod streams;

use backend::{
    Activation, Attention, Experts, GatedDelta, KvFormat, Mamba2, NormCenter, NormGain, NormOrder,
    NormSpan, Rope, ShortConv,
};

pub use draft::{Draft, PairOrder, Place};
pub use latent::{LatentMixer, LatentQuery};
pub use streams::{AltUp, Laurel, Skip, Streams};

/// Everything there is to know about a model before a single weight is read.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// The family whose recipe this is, for messages.
    pub family: &'static str,
    /// Rows of the embedding and of the logits.
    pub vocab: usize,
    /// Columns of the residual stream.
    pub hidden: usize,
    /// Positions the model can tell apart.
    pub max_positions: usize,
    /// What the embedding is called, usually `embed_tokens`.
    pub embed: &'static str,
    /// What embedded tokens are multiplied with.
    pub embed_scale: f32,
    /// What stands for positions, where nothing is rotated.
    pub positions: Positions,
    /// What tokens bring along for every layer besides, if anything.
    pub layer_inputs: Option<LayerInputs>,
    /// What goes from layer to layer.
    pub streams: Streams,
    /// The distinct rotations; layers name theirs by index.
    pub ropes: Vec<Rope>,
    /// The layers, first one first.
    pub layers: Vec<Layer>,
    /// How a checkpoint has their matrices.
    pub orientation: Orientation,
    /// What the residual stream is multiplied with after each layer.
    pub layer_scalars: LayerScalars,
    /// The norm before the head.
    pub final_norm: Norm,
    /// Where the output matrix comes from.
    pub head: Head,
    /// Whether a separate one has a bias.
    pub head_bias: Bias,
    /// What logits are multiplied with, usually 1.
    pub logit_scale: f32,
    /// `Some(c)`: logits then become `c * tanh(logit / c)`.
    pub final_soft_cap: Option<f32>,
    /// Where the layers and the final norm lie in a checkpoint.
    pub place: Place,
    /// The draft heads that a checkpoint may have, for the first token after next and those after it.
    pub drafts: Vec<Draft>,
    /// How keys and values are stored, in all layers. No family has a say in it: recipes leave it at
    /// the default.
    pub kv_format: KvFormat,
}

impl ModelSpec {
    /// The same model with keys and values stored in `format`.
    pub fn with_kv_format(self, format: KvFormat) -> ModelSpec {
        ModelSpec { kv_format: format, ..self }
    }
}

/// What a token brings along for every layer: an entry of a table of its own, and a normed projection
/// of its embedding. Layers take theirs with [`Ffn::LayerInput`].
#[derive(Clone, Debug, PartialEq)]
pub struct LayerInputs {
    /// Rows of the table.
    pub vocab: usize,
    /// Columns for one layer.
    pub width: usize,
    /// Added to the mean square of a layer's columns of the projection.
    pub eps: f32,
}

/// What stands for the position of a token beside rotations and windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Nothing.
    Absent,
    /// A row of a table of this name, with one for each of `max_positions`, is added to the embedding.
    Table(&'static str),
}

/// How a checkpoint may have the matrices of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orientation {
    /// A row for each output.
    ByOutput,
    /// A row for each input, unless a converter has turned them over, which shows in the shape of one
    /// that is not square.
    Either,
    /// A row for each input.
    ByInput,
}

/// What the residual stream is multiplied with after each layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerScalars {
    /// Nothing.
    Absent,
    /// `layer_scalar`, a stored number.
    Stored,
}

/// One layer: steps that are taken one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The first one first. Most layers have two, a mixer and a feed-forward part.
    pub steps: Vec<Step>,
}

/// One thing that a layer adds to the residual stream:
/// `x += scale * after(sum of branch(before(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The norms around the branches.
    pub norms: Norms,
    /// What reads the same rows side by side, at least one.
    pub branches: Vec<Branch>,
    /// What the sum is multiplied with, usually 1.
    pub scale: f32,
    /// What it is added to, usually the residual stream.
    pub skip: Skip,
}

/// One of the things a step is the sum of. Where it lies in a checkpoint is its own business.
#[derive(Clone, Debug, PartialEq)]
pub enum Branch {
    /// Positions exchange information.
    Mixer(Mixer),
    /// One position is thought about.
    Ffn(Ffn),
}

/// The norms around the branches of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Norms {
    /// `x += branch(norm(x))`.
    Pre(Norm),
    /// `x += after(branch(before(x)))`.
    Sandwich {
        /// Applied to what the branches read.
        before: Norm,
        /// Applied to what they say.
        after: Norm,
    },
    /// `x += norm(branch(x))`.
    Post(Norm),
}

/// A norm of the residual stream or of what branches say.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Its name in its layer, e.g. `input_layernorm`.
    pub name: &'static str,
    /// What it measures from: an RMS norm from zero, a layer norm from the mean.
    pub center: NormCenter,
    /// What the stored gain means.
    pub gain: NormGain,
    /// Whether it adds a stored vector.
    pub bias: Bias,
    /// Added to the mean square.
    pub eps: f32,
    /// What the stored gain is multiplied with when it is loaded, usually 1.
    pub scale: f32,
}

/// How a layer moves information between positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over a KV cache.
    Attention(AttentionMixer),
    /// Softmax attention over a cache of latents.
    Latent(LatentMixer),
    /// A gated delta rule, which carries a state from position to position. A checkpoint stores the
    /// projections apart where the layout is by kind, and fused where it is by head.
    GatedDelta(GatedDelta),
    /// A selective state space, which carries a state too.
    Mamba2(Mamba2Mixer),
    /// A short convolution between two gates, whose state is the last few rows.
    ShortConv(ShortConvMixer),
}

/// A selective state space with its projections, convolution and norm: `in_proj`, `conv1d`, `norm`,
/// `out_proj`, beside `A_log`, `dt_bias` and `D`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mamba2Mixer {
    /// What it is called in its layer, `mixer` or `mamba`.
    pub name: &'static str,
    /// Heads, groups, state and gate.
    pub shape: Mamba2,
    /// Whether the input projection has a bias.
    pub in_bias: Bias,
    /// Whether the convolution has one.
    pub conv_bias: Bias,
    /// Whether the output projection has one.
    pub out_bias: Bias,
    /// What `x`, `B` and `C` are multiplied with before they are convolved, usually 1.
    pub conv_scales: [f32; 3],
    /// What the branch is multiplied with, usually 1.
    pub out_scale: f32,
}

/// A short convolution between two gates with its projections: `conv.in_proj`, `conv.conv`,
/// `conv.out_proj`.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConvMixer {
    /// Columns and taps.
    pub shape: ShortConv,
    /// Whether all three have biases.
    pub bias: Bias,
}

/// Softmax attention with its projections.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMixer {
    /// What it is called in its layer, usually `self_attn`.
    pub name: &'static str,
    /// Heads, window, scale and soft cap.
    pub shape: Attention,
    /// How the checkpoint stores the input projections.
    pub qkv: Qkv,
    /// Whether the input projections have biases.
    pub qkv_bias: Bias,
    /// What the output projection is called, usually `o_proj`.
    pub out: &'static str,
    /// Whether it has a bias.
    pub out_bias: Bias,
    /// Where keys and values come from.
    pub keys_values: KeysValues,
    /// Whether there is a logit per query head, called `sinks`, that its softmax counts with.
    pub sinks: Bias,
    /// The norm of q and k, if there is one.
    pub head_norm: Option<HeadNorm>,
    /// The norm on every head of v; only beside one on q and k, with which it shares `eps`.
    pub value_norm: ValueNorm,
    /// Index into [`ModelSpec::ropes`]; `None` leaves q and k as they are.
    pub rope: Option<usize>,
    /// What is done to the heads before they are projected back.
    pub gate: OutGate,
}

/// What attention does to its heads before they are projected back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutGate {
    /// Nothing.
    Absent,
    /// Each number is multiplied with the sigmoid of one that `q_proj` has for it: the rows of each
    /// head's query are followed by as many for its gate.
    WithQuery,
}

/// How a checkpoint stores the projections to q, k and v. They are one matrix once loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qkv {
    /// `q_proj`, `k_proj`, `v_proj`.
    Split,
    /// One matrix of this name, rows in this order.
    Fused(&'static str),
}

/// Where the keys and values of attention come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysValues {
    /// Each from a projection.
    Own,
    /// A value is what `k_proj` gives, before norm and rotation.
    OneProjection,
    /// They are those that an earlier mixer stores, which this number says, as [`ModelSpec::mixers`]
    /// counts them. Only q is projected, nothing is stored.
    OfMixer(usize),
}

/// Whether a linear layer adds a stored vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does not.
    Absent,
    /// It does, and the checkpoint must hold it.
    Stored,
}

/// The norm of q and k.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadNorm {
    /// What that of q and that of k are called, usually `q_norm` and `k_norm`.
    pub names: [&'static str; 2],
    /// What it measures from.
    pub center: NormCenter,
    /// What the stored gains mean.
    pub gain: NormGain,
    /// Over which columns it goes.
    pub span: NormSpan,
    /// Whether it comes before the rotation.
    pub order: NormOrder,
    /// Added to the mean square.
    pub eps: f32,
}

/// Whether the heads of v are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueNorm {
    /// They are not.
    Absent,
    /// They are divided by their root mean square, without a gain.
    Plain,
}

/// How a layer thinks about one position.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// One gated feed-forward layer.
    Gated(GatedFfn),
    /// One feed-forward layer without a gate.
    Plain(PlainFfn),
    /// A router and many small gated layers.
    Moe(MoeFfn),
    /// A gated layer and experts, each between norms of its own.
    Twin(Box<TwinFfn>),
    /// What the token brings along for this layer, gated by the residual stream.
    LayerInput(LayerInputFfn),
}

/// `out(act(gate(x)) * inputs)`, the inputs being those that [`LayerInputs`] are for this layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerInputFfn {
    /// Which layer this is.
    pub layer: usize,
    /// Columns of its inputs.
    pub width: usize,
    /// The non-linearity of the gate.
    pub activation: Activation,
}

/// `down(act(gate(x)) * up(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedFfn {
    /// What it is called in its layer, usually `mlp`.
    pub name: &'static str,
    /// Columns between.
    pub inner: usize,
    /// The non-linearity.
    pub activation: Activation,
    /// Which numbers of the gate count.
    pub kept: GateKept,
    /// How the checkpoint stores gate and up.
    pub gate_up: GateUp,
    /// Whether all three projections have biases.
    pub bias: Bias,
}

/// Which numbers of a gate count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GateKept {
    /// All.
    All,
    /// Those that are so many standard deviations of a row above its mean, by what is above that.
    Above(f32),
}

/// `down(act(up(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainFfn {
    /// What it is called in its layer, usually `mlp`.
    pub name: &'static str,
    /// Columns between.
    pub inner: usize,
    /// The non-linearity.
    pub activation: Activation,
    /// What the projection up is called.
    pub up: &'static str,
    /// What the projection down is called.
    pub down: &'static str,
    /// Whether both have biases.
    pub bias: Bias,
}

/// How a checkpoint stores gate and up. They are one matrix once loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateUp {
    /// `gate_proj`, `up_proj`.
    Split,
    /// `gate_up_proj`, rows in this order.
    Fused,
    /// `w1` and `w3`; the projection down is `w2`.
    Numbered,
    /// `input_linear`, rows in this order; the projection down is `output_linear`.
    InOut,
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeFfn {
    /// What it is called in its layer, usually `mlp`. Empty where its parts lie in the layer itself.
    pub name: &'static str,
    /// What chooses experts.
    pub router: Router,
    /// How many, how wide, how they are chosen.
    pub experts: Experts,
    /// What experts read and say, where it is not the residual stream: `fc1_latent_proj` makes it of
    /// that, and `fc2_latent_proj` takes it back.
    pub latent: Option<ExpertLatent>,
    /// Whether all projections of every expert have biases.
    pub expert_bias: Bias,
    /// How a stack has gate and up of each expert, where it has them together.
    pub joined_rows: JoinedRows,
    /// What the weight of each expert is multiplied with at last: a tensor of this name in the mixture.
    pub scales: Option<&'static str>,
    /// What every row passes through besides.
    pub shared: Shared,
}

/// A width of their own for what experts read and say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertLatent {
    /// Columns.
    pub cols: usize,
    /// Whether both projections have biases.
    pub bias: Bias,
}

/// A gated layer and a mixture of experts side by side, between more norms than a step has: the sum of
/// `dense_after(dense(x))` and `experts_after(experts(experts_before(r)))`, where `x` is what the step
/// reads and `r` the residual stream. The router reads `r` divided by its root mean square, times
/// `router.scale` and the inverse root of its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct TwinFfn {
    /// What every row passes through.
    pub dense: GatedFfn,
    /// Applied to what that says.
    pub dense_after: Norm,
    /// Applied to what the experts read.
    pub experts_before: Norm,
    /// The experts, with nothing beside them.
    pub experts: MoeFfn,
    /// Applied to what they say.
    pub experts_after: Norm,
}

/// The part of a mixture of experts that every row passes through.
#[derive(Clone, Debug, PartialEq)]
pub enum Shared {
    /// Nothing.
    None,
    /// One gated layer, weighted with `sigmoid(shared_expert_gate(x))`.
    Gated(GatedFfn),
    /// One gated layer as it is; several shared experts are one that is as wide as all of them.
    Whole(GatedFfn),
}

/// What makes logits for the choice of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// What its matrix is called in the mixture, usually `gate`.
    pub name: &'static str,
    /// Whether it has a bias.
    pub bias: Bias,
    /// What is added to scores in order to choose.
    pub correction: Correction,
}

/// A number for each expert, added to its score in order to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// There is none.
    Absent,
    /// A tensor of this name in the mixture.
    Stored(&'static str),
    /// The same, but some programs leave it out when they convert a model.
    IfStored(&'static str),
}

/// How a stack of experts has gate and up, where it has them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinedRows {
    /// All rows of gate, then all of up.
    GateThenUp,
    /// A row of gate and one of up take turns. Floats that are parameters of their own in Hugging
    /// Face's manner have inputs and outputs the other way round, also those of down.
    TakeTurns,
}

/// Where the matrix that turns the last hidden state into logits comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It is the embedding; a stored head is ignored with a note.
    Tied,
    /// `lm_head`, which must be there.
    Separate,
    /// The same, and what it reads is divided, column by column, by the length of that column of the
    /// matrix. One that is packed was divided before.
    UnitColumns,
    /// The config does not say: `lm_head` if there is one, else the embedding, with a note.
    IfStored,
}

impl Bias {
    /// How many of `n` numbers are stored.
    pub fn len(self, n: usize) -> usize {
        match self {
            Bias::Absent => 0,
            Bias::Stored => n,
        }
    }
}

impl ModelSpec {
    /// Every mixer, in the order of the layers, of their steps, and of the branches of these.
    pub fn mixers(&self) -> impl Iterator<Item = &Mixer> {
        self.layers.iter().flat_map(Layer::branches).filter_map(|branch| match branch {
            Branch::Mixer(mixer) => Some(mixer),
            Branch::Ffn(_) => None,
        })
    }
}

impl Layer {
    /// Every branch, in the order of the steps.
    pub fn branches(&self) -> impl Iterator<Item = &Branch> {
        self.steps.iter().flat_map(|step| &step.branches)
    }

    /// Every norm around branches, in the order in which they are applied.
    pub fn norms(&self) -> impl Iterator<Item = &Norm> {
        self.steps.iter().flat_map(|step| step.norms.all())
    }
}

impl Step {
    /// A step of one branch that is added as it is.
    pub fn new(norms: Norms, branch: impl Into<Branch>) -> Step {
        Step { norms, branches: vec![branch.into()], scale: 1.0, skip: Skip::Stream }
    }

    /// Whether rows of other positions have a part in it.
    pub(crate) fn mixes(&self) -> bool {
        self.branches.iter().any(|branch| matches!(branch, Branch::Mixer(_)))
    }
}

impl From<Mixer> for Branch {
    fn from(mixer: Mixer) -> Branch {
        Branch::Mixer(mixer)
    }
}

impl From<Ffn> for Branch {
    fn from(ffn: Ffn) -> Branch {
        Branch::Ffn(ffn)
    }
}

impl Norms {
    /// The norms, in the order they are applied.
    pub fn all(&self) -> Vec<&Norm> {
        match self {
            Norms::Pre(norm) | Norms::Post(norm) => vec![norm],
            Norms::Sandwich { before, after } => vec![before, after],
        }
    }

    /// The norms, to change.
    pub(crate) fn all_mut(&mut self) -> Vec<&mut Norm> {
        match self {
            Norms::Pre(norm) | Norms::Post(norm) => vec![norm],
            Norms::Sandwich { before, after } => vec![before, after],
        }
    }
}
