//! The ops of layers that carry a state from row to row, and the small weights they read.
//!
//! Not the shapes, which are in [`crate::Recurrence`].

use super::{DeviceError, Memory};
use crate::{GatedDelta, Mamba2, Recurrence, ShortConv, SlotId};

/// Layers that carry a state from row to row, and what they remember.
///
/// A pass reads one state per sequence and writes others: what is kept is never written again, so a
/// state can be shared, and giving up a guess is not to use a state.
///
/// Every layer starts a span from `span.state_in`, or, if that is none, from zeros, keeps what
/// `span.states_out` asks for, and writes to no other slot. One row is the same step as one of many.
/// All convolve columns of their rows, each for itself, rows before the first being zero:
///
/// ```text
/// conv(c) = bias[c] + sum over t of taps[t][c] * row[now - (taps - 1) + t][c]
/// ```
pub trait RecurrentOps: Memory {
    /// States of one layer, in f32.
    type States: Send;

    /// Room for `n_slots` states.
    fn states(&self, spec: &Recurrence, n_slots: usize) -> Self::States;
    /// Convolution, gated delta rule and gated norm, over rows that `spec.layout` describes. The
    /// states are those of [`Recurrence::GatedDelta`].
    ///
    /// ```text
    /// [q | k | v] = silu(conv)
    /// q = q / sqrt(sum(q^2) + 1e-6) / sqrt(k_dim)       k = k / sqrt(sum(k^2) + 1e-6)
    /// g = exp(-exp(a_log) * softplus(a + dt_bias))      beta = sigmoid(b)
    /// S = g * S;   S = S + k (beta * (v - S^T k))^T;    y = S^T q
    /// out = y / sqrt(mean(y^2) + eps) * gain * gate(z)
    /// ```
    ///
    /// The first line for every convolved column, the others for every value head with the query and
    /// key it goes with. Decays are numbers of a head or of a row of `S`, and the gate is SiLU or the
    /// sigmoid, as `spec.rule` has it.
    fn gated_delta(
        &self,
        x: DeltaRows<'_, Self::Buf>,
        weights: DeltaWeights<'_, Self::Vector>,
        spec: &GatedDelta,
        states: &mut Self::States,
        batch: &Self::Staged,
        out: &mut Self::Buf,
    );
    /// Convolution, selective state space and gate, over rows that [`Mamba2`] describes. The states
    /// are those of [`Recurrence::Mamba2`].
    ///
    /// ```text
    /// [x | B | C] = silu(conv)
    /// dt = clamp(softplus(scales.dt * dt + dt_bias), dt_limit)
    /// S = exp(-exp(a_log) * dt) * S + B (dt * x)^T;     y = S^T C + skip * x
    /// out = y gated by scales.z * z as spec.gate has it
    /// ```
    ///
    /// The middle for every head with the `B` and `C` of its group, the last line for every group.
    fn mamba2(
        &self,
        x: &Self::Buf,
        weights: Mamba2Weights<'_, Self::Vector>,
        spec: &Mamba2,
        states: &mut Self::States,
        batch: &Self::Staged,
        out: &mut Self::Buf,
    );
    /// `out = C * conv` over the columns `B * x`, of rows that [`ShortConv`] describes. The states
    /// are those of [`Recurrence::ShortConv`].
    fn short_conv(
        &self,
        x: &Self::Buf,
        weights: ConvWeights<'_, Self::Vector>,
        spec: &ShortConv,
        states: &mut Self::States,
        batch: &Self::Staged,
        out: &mut Self::Buf,
    );
    /// Bytes of one state, as [`RecurrentOps::read_state`] gives them.
    fn state_bytes(&self, states: &Self::States) -> usize;
    /// Waits for the device, then copies the state in `slot` into `out`, which is
    /// [`RecurrentOps::state_bytes`] long: the stored bits, in this device's own layout, so that
    /// only states of the same device and spec can take them back.
    fn read_state(
        &self,
        states: &Self::States,
        slot: SlotId,
        out: &mut [u8],
    ) -> Result<(), DeviceError>;
    /// Makes `slot` hold what [`RecurrentOps::read_state`] gave, bit for bit.
    fn write_state(&self, states: &mut Self::States, slot: SlotId, bytes: &[u8]);
}

/// The weights of a convolution.
#[derive(Debug)]
pub struct ConvWeights<'a, V> {
    /// As many rows as there are taps, of a number for each convolved column, the oldest row first.
    pub taps: &'a V,
    /// A number for each convolved column, or zeros.
    pub bias: Option<&'a V>,
}

/// The small weights of a [`RecurrentOps::gated_delta`] layer.
#[derive(Debug)]
pub struct DeltaWeights<'a, V> {
    /// Over the columns `[q | k | v]` of all heads.
    pub conv: ConvWeights<'a, V>,
    /// Logarithm of the decay's rate, for each value head.
    pub a_log: &'a V,
    /// Added to `a`, as many numbers as that has.
    pub dt_bias: &'a V,
    /// Gain of the norm, `v_dim` long, the same for every head.
    pub gain: &'a V,
}

/// Where a [`RecurrentOps::gated_delta`] layer finds its rows: all in one buffer, unless the layout
/// has gates and decays in rows of their own.
#[derive(Debug)]
pub struct DeltaRows<'a, Buf> {
    /// Queries, keys, values and write strengths.
    pub qkv: &'a Buf,
    /// Output gates.
    pub z: &'a Buf,
    /// Decays.
    pub a: &'a Buf,
}

/// The small weights of a [`RecurrentOps::mamba2`] layer.
#[derive(Debug)]
pub struct Mamba2Weights<'a, V> {
    /// Over the columns `[x | B | C]`.
    pub conv: ConvWeights<'a, V>,
    /// Logarithm of the decay's rate, for each head.
    pub a_log: &'a V,
    /// Added to `dt`, for each head.
    pub dt_bias: &'a V,
    /// What is passed by the state, for each head.
    pub skip: &'a V,
    /// Gain of the norm, if there is one: a number for each column of all heads.
    pub gain: Option<&'a V>,
}

impl<'a, Buf> DeltaRows<'a, Buf> {
    /// All in one.
    pub fn whole(x: &'a Buf) -> Self {
        DeltaRows { qkv: x, z: x, a: x }
    }
}

// Written out because a derive would ask for `V: Copy`.
impl<V> Clone for ConvWeights<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ConvWeights<'_, V> {}

impl<V> Clone for DeltaWeights<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for DeltaWeights<'_, V> {}

impl<Buf> Clone for DeltaRows<'_, Buf> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Buf> Copy for DeltaRows<'_, Buf> {}

impl<V> Clone for Mamba2Weights<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Mamba2Weights<'_, V> {}
