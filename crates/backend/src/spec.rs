//! Shapes and constants of the layers a device computes, as plain data.

mod experts;

pub use experts::{
    Divisor, ExpertForm, Experts, GateUpRows, Gating, Glu, GroupMerit, Groups, Scores,
};

use crate::{BLOCK, KvFormat, KvGroup};

/// Softmax attention over a paged KV cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head `h` reads KV head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Columns of one head of queries and keys.
    pub head_dim: usize,
    /// What is added up, weighted.
    pub values: Values,
    /// What scores are multiplied with before the softmax, usually `head_dim^-0.5`.
    pub scale: f32,
    /// How queries grow with their position, if they do.
    pub growth: Option<QueryGrowth>,
    /// `Some(w)`: position `p` sees positions `p - w + 1..=p`.
    pub window: Option<usize>,
    /// `Some(c)`: scores become `c * tanh(score / c)` before the softmax.
    pub soft_cap: Option<f32>,
}

/// Queries that grow with their position, as in Llama 4: the one at position `p` is multiplied with
/// `1 + beta * ln(1 + floor(p / original))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// How fast.
    pub beta: f32,
    /// Positions of which it is the same.
    pub original: usize,
}

/// What attention adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Values of their own: so many columns for each KV head, after the keys of all of them.
    Own(usize),
    /// The first so many columns of the keys. No values are given, and none are kept.
    OfKeys(usize),
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position of each rotated pair. Rotates the first `2 * inv_freq.len()` columns of
    /// every head, leaves the rest alone.
    pub inv_freq: Vec<f32>,
    /// What cosine and sine are multiplied with (1 except for yarn and longrope).
    pub attention_factor: f32,
    /// Which columns form a pair.
    pub layout: RopeLayout,
}

/// Which columns of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayout {
    /// Column `i` with column `i + pairs` (Hugging Face, MLX, GPT-NeoX).
    Halves,
    /// Column `2 * i` with column `2 * i + 1` (GPT-J, llama in GGUF files).
    Interleaved,
}

/// What a norm measures a row from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormCenter {
    /// From zero: an RMS norm.
    Zero,
    /// From its mean, which is taken away: a layer norm.
    Mean,
}

/// Over which columns of q, and of k, a norm goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormSpan {
    /// Over each head, with one gain of `head_dim` numbers for all heads.
    Head,
    /// Over each head, with a gain of its own: one number per column.
    OwnHead,
    /// Over all heads together: one number per column.
    AllHeads,
}

/// When q and k are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// Before they are rotated.
    BeforeRotation,
    /// After that.
    AfterRotation,
}

/// What a norm multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormGain {
    /// The stored gain.
    Stored,
    /// One plus the stored gain (Gemma).
    OnePlus,
}

impl NormGain {
    /// The stored number with which a norm multiplies by one.
    pub fn neutral(self) -> f32 {
        match self {
            NormGain::Stored => 1.0,
            NormGain::OnePlus => 0.0,
        }
    }
}

/// The non-linearity of a feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    ReluSquared,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 5] = [
        Activation::Silu,
        Activation::GeluTanh,
        Activation::GeluErf,
        Activation::Relu,
        Activation::ReluSquared,
    ];
}

impl Attention {
    /// Where its keys and values are kept.
    pub const fn group(&self) -> KvGroup {
        KvGroup::of(self.window)
    }

    /// Whether rows of `cols` columns are `[q | k | v]`, or q alone.
    pub fn has_rows_of(&self, cols: usize) -> bool {
        cols == self.qkv_cols() || cols == self.q_cols()
    }

    /// Columns of all query heads.
    pub fn q_cols(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of all key heads.
    pub fn k_cols(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// What scores of the query at `position` are multiplied with.
    pub fn scale_at(&self, position: usize) -> f32 {
        let Some(QueryGrowth { beta, original }) = self.growth else { return self.scale };
        let lengths = (position / original) as f64;
        self.scale * (1.0 + f64::from(beta) * libm::log(1.0 + lengths)) as f32
    }

    /// Columns of all heads of values that a row brings along.
    pub fn v_cols(&self) -> usize {
        match self.values {
            Values::Own(cols) => self.kv_heads * cols,
            Values::OfKeys(_) => 0,
        }
    }

    /// Columns of one head of values, wherever they come from.
    pub fn v_dim(&self) -> usize {
        match self.values {
            Values::Own(cols) | Values::OfKeys(cols) => cols,
        }
    }

    /// Columns that come out: a head of values for each query head.
    pub fn out_cols(&self) -> usize {
        self.heads * self.v_dim()
    }

    /// What this layer keeps keys and values in where `format` is asked for. Keys that are values too
    /// are multiplied along their rows and along their columns, and whole numbers lie right for one of
    /// these alone: such keys are kept in f16 instead.
    pub const fn kept_in(&self, format: KvFormat) -> KvFormat {
        match (self.values, format) {
            (Values::OfKeys(_), KvFormat::Int16) => KvFormat::F16,
            _ => format,
        }
    }

    /// Bytes of what is kept of a block of positions, where `format` is asked for.
    pub const fn block_bytes(&self, format: KvFormat) -> usize {
        let format = self.kept_in(format);
        let head = match self.values {
            Values::Own(cols) => {
                let position = format.key_bytes(self.head_dim) + format.value_bytes(cols);
                format.base_bytes(self.head_dim) + BLOCK * position
            }
            Values::OfKeys(_) => BLOCK * format.value_bytes(self.head_dim),
        };
        self.kv_heads * head
    }

    /// Columns of one `[q | k | v]` row.
    pub fn qkv_cols(&self) -> usize {
        self.q_cols() + self.k_cols() + self.v_cols()
    }
}

/// What a token brings along for every layer besides its embedding: an entry of a table of its own,
/// and a normed projection of the embedding (Gemma 3n and 4).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerInputs {
    /// Columns for one layer.
    pub width: usize,
    /// Added to the mean square of a layer's columns of the projection.
    pub eps: f32,
    /// What the table's entries are multiplied with.
    pub table_scale: f32,
    /// What the sum of both is multiplied with.
    pub scale: f32,
}
