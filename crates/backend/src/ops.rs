//! The vocabulary a model is written in.
//!
//! Ops are eager, fused to the size of one parallel region, and write into buffers the caller owns:
//! a pass allocates nothing. They do not return `Result`. A wrong shape is our own bug and panics; a
//! device fault is sticky and surfaces at the next [`Memory::read`]. A pass may want no logits, so
//! there may be zero rows.
//!
//! **Every op computes a row of its output from that row's inputs alone**, in an order of
//! arithmetic that depends neither on the other rows, nor on how many there are, nor on how many
//! threads work.

mod latent;
mod layer_inputs;
mod peers;
mod recurrent;
mod streams;

use weights::Matrix;

pub use latent::{LatentKeys, LatentOps, LatentRows};
pub use layer_inputs::{LayerInputOps, RowsOf};
pub use peers::PeerOps;
pub use recurrent::{ConvWeights, DeltaRows, DeltaWeights, Mamba2Weights, RecurrentOps};
pub use streams::{LEAST_MEAN_SQUARE, StreamOps};

use crate::{
    Activation, Attention, Batch, BlockId, Experts, KvFormat, NormCenter, NormGain, NormOrder,
    NormSpan, Rope,
};

/// A device that can run every model.
pub trait Backend:
    DenseOps + AttentionOps + LatentOps + RecurrentOps + MoeOps + LayerInputOps + StreamOps
{
}

impl<B> Backend for B where
    B: DenseOps + AttentionOps + LatentOps + RecurrentOps + MoeOps + LayerInputOps + StreamOps
{
}

/// Memory of a device, and the way into and out of it.
pub trait Memory: Send + Sync + 'static {
    /// Activations, `rows x cols` of f32 as far as anyone can tell. An op sets the shape of what it
    /// writes; the allocation never changes.
    type Buf: Send;
    /// A packed weight, in whatever layout this device's kernels like best.
    type Weight: Send + Sync;
    /// A short vector of f32: a norm's gain, a bias.
    type Vector: Send + Sync;
    /// A batch where the kernels can read it.
    type Staged: Send;

    /// A buffer that can hold any shape of up to `max_len` numbers.
    fn buf(&self, max_len: usize) -> Self::Buf;
    /// Takes over a weight whose rows are those of `parts`, one part after the other. Parts have the
    /// same `cols` but may differ in packing (q, k, v of one layer often do).
    fn weight(&self, parts: &[Matrix]) -> Self::Weight;
    /// The same of a weight of which this device has some of the columns, and peers that it shares a
    /// model with have the others: what rows are multiplied to is summed over all of them, in the order
    /// of ranks. A device that shares nothing has all columns.
    fn summed_weight(&self, parts: &[Matrix]) -> Self::Weight {
        self.weight(parts)
    }
    /// The same of a weight of which this device has some of the rows, and each peer as many others: what
    /// rows are multiplied to is put side by side, in the order of ranks. Biases are those of the own rows.
    fn joined_weight(&self, parts: &[Matrix]) -> Self::Weight {
        self.weight(parts)
    }
    /// Takes over a vector.
    fn vector(&self, values: &[f32]) -> Self::Vector;
    /// The same of a gain of a norm, of which this device has some of the numbers and the peers beside it
    /// have the others: the norm goes over the columns of `over` neighbouring ranks together, the first of
    /// them a multiple of that. Squares are summed in the order of ranks. A device that shares nothing has
    /// all numbers.
    fn gain(&self, values: &[f32], _over: usize) -> Self::Vector {
        self.vector(values)
    }
    /// Room for batches of up to `max_rows` rows.
    fn staged(&self, max_rows: usize) -> Self::Staged;
    /// Puts `batch` where the kernels can read it.
    fn stage(&self, batch: &Batch, staged: &mut Self::Staged);
    /// Waits for the device, then copies the first `len` numbers into `out`, replacing what was
    /// there. The only blocking call of a pass.
    fn read(&self, buf: &Self::Buf, len: usize, out: &mut Vec<f32>) -> Result<(), DeviceError>;
}

/// What a linear layer reads.
#[derive(Debug)]
pub enum Input<'a, B: Memory + ?Sized> {
    /// The rows as they are.
    Rows(&'a B::Buf),
    /// What [`DenseOps::norm`] makes of them, without it being written down.
    Normed {
        /// The rows.
        x: &'a B::Buf,
        /// The norm.
        norm: RowNorm<'a, B::Vector>,
    },
}

/// A norm over all columns of a row.
#[derive(Debug)]
pub struct RowNorm<'a, V> {
    /// What the row is measured from.
    pub center: NormCenter,
    /// As long as a row.
    pub gain: &'a V,
    /// What the gain means.
    pub kind: NormGain,
    /// Added at last; as long as a row.
    pub bias: Option<&'a V>,
    /// Added to the mean square.
    pub eps: f32,
}

/// Where a linear layer leaves its rows `y`. All of these give the bits that the ops one by one give.
#[derive(Debug)]
pub enum Output<'a, B: Memory + ?Sized> {
    /// `out = y`.
    Into(&'a mut B::Buf),
    /// `out += y`, as [`DenseOps::add`] has it.
    Onto(&'a mut B::Buf),
    /// `out = act(y)`.
    Activated(Activation, &'a mut B::Buf),
    /// `out = act(gate) * up` where `y = [gate | up]`, as [`DenseOps::glu`] has it.
    Gated(Activation, &'a mut B::Buf),
}

/// Work on rows that know nothing of each other.
pub trait DenseOps: Memory {
    /// `out[r] = table[token of row r] * scale`, one row per token of the batch.
    fn embed(&self, table: &Self::Weight, batch: &Self::Staged, scale: f32, out: &mut Self::Buf);
    /// `x[r] += table[position of row r]`: what stands for positions where nothing is rotated.
    fn add_positions(&self, table: &Self::Weight, batch: &Self::Staged, x: &mut Self::Buf);
    /// `x . w^T + bias`, to where `out` says.
    fn linear(
        &self,
        x: Input<'_, Self>,
        w: &Self::Weight,
        bias: Option<&Self::Vector>,
        out: Output<'_, Self>,
    );
    /// `out = z / sqrt(mean(z^2) + eps) * gain + bias` over all columns of a row, where `z` is `x` or,
    /// if the norm measures from the mean, `x - mean(x)`.
    fn norm(&self, x: &Self::Buf, norm: RowNorm<'_, Self::Vector>, out: &mut Self::Buf);
    /// `x += scale * y`, the product rounded before it is added.
    fn add(&self, x: &mut Self::Buf, y: &Self::Buf, scale: f32);
    /// `x *= by`.
    fn scale(&self, x: &mut Self::Buf, by: f32);
    /// `out = act(gate) * up` where `x = [gate | up]`.
    fn glu(&self, x: &Self::Buf, act: Activation, out: &mut Self::Buf);
    /// `out[i] = x[batch.want[i]]`: only the rows whose logits the batch wants.
    fn gather(&self, x: &Self::Buf, batch: &Self::Staged, out: &mut Self::Buf);
    /// `x = cap * tanh(x / cap)`.
    fn soft_cap(&self, x: &mut Self::Buf, cap: f32);
    /// `out = [left | right]`, row by row.
    fn join(&self, left: &Self::Buf, right: &Self::Buf, out: &mut Self::Buf);
    /// `x *= sigmoid(gate)`, number by number.
    fn gate(&self, x: &mut Self::Buf, gate: &Self::Buf);
    /// On the first `cols` columns of every row: `x = max(x - (mean(x) + deviations * std(x)), 0)`, the
    /// standard deviation being that of these numbers themselves. Were they normal, as many would be
    /// left as lie that far out.
    fn keep_largest(&self, x: &mut Self::Buf, cols: usize, deviations: f32);
}

/// Attention and what it remembers.
pub trait AttentionOps: Memory {
    /// KV pages of one layer, in one format.
    type Pages: Send;

    /// Pages for `n_blocks` blocks of [`crate::BLOCK`] positions. Which table of a span says where they
    /// are tells [`Attention::group`] of `spec`, also to layers that read what others have stored.
    fn pages(&self, spec: &Attention, format: KvFormat, n_blocks: usize) -> Self::Pages;
    /// Cosine and sine of every row's angles, for [`AttentionOps::rope`]. Once per pass for each
    /// distinct [`Rope`] of a model. An angle is the product of position and `inv_freq` rounded to
    /// f32, as every training code has it. Needs `rows * 2 * rope.inv_freq.len()` numbers of room.
    fn angles(&self, rope: &Rope, batch: &Self::Staged, out: &mut Self::Buf);
    /// On `[q | k | v]` in place, or on rows of q alone: the optional norm of q and k, and the rotation,
    /// if the layer has one, in the order that the norm says. `angles` is what [`AttentionOps::angles`] made of the same `rope`.
    fn rope(
        &self,
        qkv: &mut Self::Buf,
        spec: &Attention,
        norm: Option<HeadNorm<'_, Self::Vector>>,
        rotation: Option<(&Rope, &Self::Buf)>,
    );
    /// Appends this pass's k and v to `pages`, rounded as their format says, then attends: causal,
    /// ragged over sequences, always reading k and v back from `pages`. Queries are what that format
    /// makes of them.
    ///
    /// A sink is one more score in the softmax of its head, as it is, that no value goes with.
    ///
    /// If a device cuts the keys of a row into pieces, it does so at fixed positions of the sequence
    /// and puts them together in a fixed order, so that a row's arithmetic depends on its position
    /// and window alone.
    fn attend(
        &self,
        qkv: &Self::Buf,
        layer: AttentionLayer<'_, Self::Vector>,
        pages: &mut Self::Pages,
        batch: &Self::Staged,
        out: &mut Self::Buf,
    );
    /// What [`AttentionOps::attend`] does with rows of q alone: keys and values are those that another
    /// layer with the same heads has stored in `pages`, this pass's included.
    fn attend_stored(
        &self,
        q: &Self::Buf,
        layer: AttentionLayer<'_, Self::Vector>,
        pages: &Self::Pages,
        batch: &Self::Staged,
        out: &mut Self::Buf,
    );
    /// Bytes of one block of `pages`, as [`AttentionOps::read_block`] gives them.
    fn block_bytes(&self, pages: &Self::Pages) -> usize;
    /// Waits for the device, then copies what `block` holds into `out`, which is
    /// [`AttentionOps::block_bytes`] long: the stored bits, in this device's own layout, so that
    /// only pages of the same device, spec and format can take them back.
    fn read_block(
        &self,
        pages: &Self::Pages,
        block: BlockId,
        out: &mut [u8],
    ) -> Result<(), DeviceError>;
    /// Makes `block` hold what [`AttentionOps::read_block`] gave, bit for bit.
    fn write_block(&self, pages: &mut Self::Pages, block: BlockId, bytes: &[u8]);
}

/// What a layer of attention is made of besides its queries, keys and values.
#[derive(Debug)]
pub struct AttentionLayer<'a, V> {
    /// Its heads.
    pub spec: &'a Attention,
    /// A logit for each query head that its softmax counts with.
    pub sinks: Option<&'a V>,
}

/// The norm that some families put on q and k.
#[derive(Debug)]
pub struct HeadNorm<'a, V> {
    /// The norm of q.
    pub q: RowNorm<'a, V>,
    /// The norm of k; not looked at where the rows are q alone.
    pub k: RowNorm<'a, V>,
    /// The norm of every head of v, if there is one.
    pub v: Option<RowNorm<'a, V>>,
    /// Over which columns they go, and how long their gains are.
    pub span: NormSpan,
    /// When.
    pub order: NormOrder,
}

// Written out because a derive would ask for `V: Copy`.
impl<V> Clone for HeadNorm<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for HeadNorm<'_, V> {}

impl<V> Clone for AttentionLayer<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for AttentionLayer<'_, V> {}

impl<V> Clone for RowNorm<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for RowNorm<'_, V> {}

impl<'a, V> RowNorm<'a, V> {
    /// An RMS norm.
    pub fn rms(gain: &'a V, kind: NormGain, eps: f32) -> RowNorm<'a, V> {
        RowNorm { center: NormCenter::Zero, gain, kind, bias: None, eps }
    }
}

/// Mixtures of experts.
///
/// A row's experts are those with the largest scores; equal ones go to the lower index.
pub trait MoeOps: Memory {
    /// `out = sum over the chosen experts e of weight_e * glu(gate_e, up_e) . down_e^T`, biases
    /// added where there are any: to gate and up, and to what an expert says before it is weighted.
    ///
    /// `router` holds `spec.n` logits per row; `spec.gating` says what becomes of them. Experts are
    /// summed in ascending index.
    fn experts(
        &self,
        x: &Self::Buf,
        router: &Self::Buf,
        spec: &Experts,
        weights: ExpertWeights<'_, Self>,
        out: &mut Self::Buf,
    );
    /// `x += sigmoid(gate) * y`, `gate` being one number per row: a gated shared expert.
    fn add_gated(&self, x: &mut Self::Buf, gate: &Self::Buf, y: &Self::Buf);
}

/// The weights of a mixture of experts, each stacked by rows, those of one expert after the other.
#[derive(Debug)]
pub struct ExpertWeights<'a, B: Memory + ?Sized> {
    /// `2 * inner` rows per expert in the order that `spec.form` names, or `inner` rows of up alone.
    pub gate_up: &'a B::Weight,
    /// A number for each of these rows.
    pub gate_up_bias: Option<&'a B::Vector>,
    /// As many rows per expert as the output has columns.
    pub down: &'a B::Weight,
    /// A number for each of these rows.
    pub down_bias: Option<&'a B::Vector>,
    /// What is added to the score of each expert before the best are chosen.
    pub correction: Option<&'a B::Vector>,
    /// What the weight of each expert is multiplied with at last, besides [`Experts::routed_scale`].
    pub scales: Option<&'a B::Vector>,
}

impl<B: Memory + ?Sized> Clone for ExpertWeights<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Memory + ?Sized> Copy for ExpertWeights<'_, B> {}

/// The device failed, which is nobody's fault that we could name.
#[derive(Debug, thiserror::Error)]
#[error("the device failed: {0}")]
pub struct DeviceError(pub String);
