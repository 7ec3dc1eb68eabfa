//! Shapes and constants of the layers a device computes, as plain data.

/// Softmax attention over a paged KV cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head `h` reads KV head `h / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Columns of one head.
    pub head_dim: usize,
    /// What scores are multiplied with before the softmax, usually `head_dim^-0.5`.
    pub scale: f32,
    /// `Some(w)`: position `p` sees positions `p - w + 1..=p`.
    pub window: Option<usize>,
    /// `Some(c)`: scores become `c * tanh(score / c)` before the softmax.
    pub soft_cap: Option<f32>,
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

/// What an RMS norm multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormGain {
    /// The stored gain.
    Stored,
    /// One plus the stored gain (Gemma).
    OnePlus,
}

/// The non-linearity of a gated feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
}

/// A mixture of experts: which of `n` gated feed-forward layers a row passes through.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// How many experts there are.
    pub n: usize,
    /// How many of them each row uses.
    pub top_k: usize,
    /// Inner columns of one expert.
    pub inner: usize,
    /// How router logits become the weights of the chosen experts.
    pub gating: Gating,
    /// What every chosen weight is multiplied with at last.
    pub routed_scale: f32,
    /// Non-linearity of every expert.
    pub activation: Activation,
}

/// How router logits become expert weights. Ties go to the lower expert index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts, then the `top_k` largest as they are.
    Softmax,
    /// Softmax over all experts, then the `top_k` largest divided by their sum.
    SoftmaxRenormalised,
}

impl Attention {
    /// Columns of all query heads.
    pub fn q_cols(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of all key heads, which is also that of all value heads.
    pub fn kv_cols(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Columns of one `[q | k | v]` row.
    pub fn qkv_cols(&self) -> usize {
        self.q_cols() + 2 * self.kv_cols()
    }
}
