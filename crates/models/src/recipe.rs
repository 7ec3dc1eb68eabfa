//! The words a family file is written in: a model as plain data.
//!
//! No weights, no device, no loops over tokens. A difference between families is a new variant here
//! with its own file under `mixers/` or `ffn/`, never a flag in a shared struct.

use backend::{Activation, Attention, Experts, GatedDelta, NormGain, Rope};

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
    /// What embedded tokens are multiplied with.
    pub embed_scale: f32,
    /// The distinct rotations; layers name theirs by index.
    pub ropes: Vec<Rope>,
    /// The layers, first one first.
    pub layers: Vec<Layer>,
    /// The norm before the head.
    pub final_norm: Norm,
    /// Where the output matrix comes from.
    pub head: Head,
    /// `Some(c)`: logits become `c * tanh(logit / c)`.
    pub final_soft_cap: Option<f32>,
}

/// One layer: two branches that are added to the residual stream one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// How positions exchange information.
    pub mixer: Mixer,
    /// The norms around the mixer.
    pub mixer_norms: Norms,
    /// How one position is thought about.
    pub ffn: Ffn,
    /// The norms around the feed-forward part.
    pub ffn_norms: Norms,
}

/// An RMS norm of the residual stream or of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Its name in its layer, e.g. `input_layernorm`.
    pub name: &'static str,
    /// What the stored gain means.
    pub gain: NormGain,
    /// Added to the mean square.
    pub eps: f32,
}

/// The norms around one branch of a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Norms {
    /// `x += branch(norm(x))`.
    Pre(Norm),
    /// `x += after(branch(before(x)))`.
    Sandwich {
        /// Applied to what the branch reads.
        before: Norm,
        /// Applied to what the branch adds.
        after: Norm,
    },
}

/// How a layer moves information between positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over a KV cache.
    Attention(AttentionMixer),
    /// A gated delta rule, which carries a state from position to position. A checkpoint stores the
    /// projections apart where the layout is by kind, and fused where it is by head.
    GatedDelta(GatedDelta),
}

/// Softmax attention with its projections.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMixer {
    /// Heads, window, scale and soft cap.
    pub shape: Attention,
    /// How the checkpoint stores the input projections.
    pub qkv: Qkv,
    /// Whether the input projections have biases.
    pub qkv_bias: Bias,
    /// Whether the output projection has a bias.
    pub out_bias: Bias,
    /// The norm on every head of q and k, whose names are `q_norm` and `k_norm`.
    pub head_norm: Option<HeadNorm>,
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
    /// `qkv_proj`, rows in this order.
    Fused,
}

/// Whether a linear layer adds a stored vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does not.
    Absent,
    /// It does, and the checkpoint must hold it.
    Stored,
}

/// The norm on every head of q and k.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadNorm {
    /// What the stored gains mean.
    pub gain: NormGain,
    /// Added to the mean square.
    pub eps: f32,
}

/// How a layer thinks about one position.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// One gated feed-forward layer.
    Gated(GatedFfn),
    /// A router and many small gated layers.
    Moe(MoeFfn),
}

/// `down(act(gate(x)) * up(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedFfn {
    /// Columns between.
    pub inner: usize,
    /// The non-linearity.
    pub activation: Activation,
    /// How the checkpoint stores gate and up.
    pub gate_up: GateUp,
    /// Whether all three projections have biases.
    pub bias: Bias,
}

/// How a checkpoint stores gate and up. They are one matrix once loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateUp {
    /// `gate_proj`, `up_proj`.
    Split,
    /// `gate_up_proj`, rows in this order.
    Fused,
}

/// A mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeFfn {
    /// How many, how wide, how they are chosen.
    pub experts: Experts,
    /// What every row passes through besides.
    pub shared: Shared,
}

/// The part of a mixture of experts that every row passes through.
#[derive(Clone, Debug, PartialEq)]
pub enum Shared {
    /// Nothing.
    None,
    /// One gated layer, weighted with `sigmoid(shared_expert_gate(x))`.
    Gated {
        /// Columns between.
        inner: usize,
    },
}

/// Where the matrix that turns the last hidden state into logits comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It is the embedding; a stored head is ignored with a note.
    Tied,
    /// `lm_head`, which must be there.
    Separate,
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
