//! Shapes and constants of the layers that carry a state from position to position, as plain data.
//!
//! Not the arithmetic, which is written down at [`crate::ops::RecurrentOps`].

use std::ops::Range;

/// A layer with a state: the rule that it follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Recurrence {
    /// A gated delta rule over a convolution.
    GatedDelta(GatedDelta),
    /// A selective state space over a convolution.
    Mamba2(Mamba2),
    /// A convolution between two gates, and nothing else.
    ShortConv(ShortConv),
}

/// A gated delta rule over a causal convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedDelta {
    /// Query and key heads.
    pub k_heads: usize,
    /// Value heads, a multiple of `k_heads`. Value head `h` goes with key head
    /// `h / (v_heads / k_heads)`.
    pub v_heads: usize,
    /// Columns of a query or key head.
    pub k_dim: usize,
    /// Columns of a value head.
    pub v_dim: usize,
    /// Rows that the convolution reads, the current one included; at least 2.
    pub taps: usize,
    /// Added to the mean square in the norm of what is read.
    pub eps: f32,
    /// What decays, and how what is read is gated.
    pub rule: DeltaRule,
    /// Where things are in a row.
    pub layout: DeltaLayout,
    /// How the value heads lie in a row that comes out.
    pub read_order: ReadOrder,
}

/// How the value heads of a [`GatedDelta`] layer lie in a row that comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// Those of one key head after those of another, as they are counted.
    ByKeyHead,
    /// The first one of every key head, then the second one of every key head, and so on.
    InTurn,
}

/// The kinds of a [`GatedDelta`] layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaRule {
    /// One decay for each value head; the gate is SiLU: Gated DeltaNet (Yang, Kautz and Hatamizadeh
    /// 2024, arXiv 2412.06464), as Qwen3-Next has it.
    PerHead,
    /// One decay for each row of a head's state, of which there is one per key head; the gate is the
    /// sigmoid: Kimi Delta Attention (Kimi Team 2025, arXiv 2510.26692).
    PerChannel,
}

/// Where a row of a [`GatedDelta`] layer has queries, keys, values, output gates `z`, write
/// strengths `b` and decays `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaLayout {
    /// `[q | k | v | z | b | a]`, each of all heads.
    ByKind,
    /// `[q | k | v | z]` of each key head and the value heads that go with it, then `[b | a]` of
    /// each.
    ByHead,
    /// `[q | k | v | b]`, each of all heads; `z` and `a` are rows of their own.
    Apart,
}

/// A selective state space with one decay per head over a causal convolution: Mamba-2 (Dao and Gu
/// 2024, arXiv 2405.21060).
///
/// A row is `[z | x | B | C | dt]`: gates and inputs of all heads, what all groups write by and read
/// by, a step per head.
#[derive(Clone, Debug, PartialEq)]
pub struct Mamba2 {
    /// Heads, a multiple of `groups`. Head `h` goes with group `h / (heads / groups)`.
    pub heads: usize,
    /// Columns of a head.
    pub head_dim: usize,
    /// Groups of heads that share `B` and `C`.
    pub groups: usize,
    /// Rows of a head's state, which is also the length of `B` and `C` of a group.
    pub state: usize,
    /// Rows that the convolution reads, the current one included; at least 2.
    pub taps: usize,
    /// What steps are clamped to.
    pub dt_limit: [f32; 2],
    /// What `z` and `dt` are multiplied with before anything else: 1 for nearly all models.
    pub scales: MambaScales,
    /// How what is read is normed and gated.
    pub gate: MambaGate,
}

/// What parts of a row are multiplied with. There is none for the others because their taps can have
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MambaScales {
    /// Of the gates.
    pub z: f32,
    /// Of the steps.
    pub dt: f32,
}

/// How a [`Mamba2`] layer gates what it has read. Norms go over the columns of each group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MambaGate {
    /// `y * silu(z)`.
    Bare,
    /// `norm(y * silu(z))`; the number is added to the mean square.
    ThenNorm(f32),
    /// `norm(y) * silu(z)`; likewise.
    AfterNorm(f32),
}

/// A depthwise causal convolution between two gates, as LFM2 has it. A row is `[B | C | x]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ShortConv {
    /// Columns of each of the three parts.
    pub cols: usize,
    /// Rows that the convolution reads, the current one included; at least 2.
    pub taps: usize,
}

impl Recurrence {
    /// Numbers of the state of one sequence: the rows the convolution looks back at, and the
    /// matrices of all heads.
    pub fn state_len(&self) -> usize {
        self.window_len().saturating_add(match self {
            Recurrence::GatedDelta(GatedDelta { v_heads, k_dim, v_dim, .. }) => {
                v_heads * k_dim * v_dim
            }
            Recurrence::Mamba2(Mamba2 { heads, head_dim, state, .. }) => heads * head_dim * state,
            Recurrence::ShortConv(_) => 0,
        })
    }

    /// Numbers of the rows that the convolution looks back at, which a state begins with.
    pub fn window_len(&self) -> usize {
        let (taps, cols) = match self {
            Recurrence::GatedDelta(spec) => (spec.taps, spec.conv_cols()),
            Recurrence::Mamba2(spec) => (spec.taps, spec.conv_cols()),
            Recurrence::ShortConv(spec) => (spec.taps, spec.cols),
        };
        (taps - 1) * cols
    }

    /// Columns of a row that goes in.
    pub fn row_cols(&self) -> usize {
        match self {
            Recurrence::GatedDelta(spec) => spec.row_cols(),
            Recurrence::Mamba2(spec) => spec.row_cols(),
            Recurrence::ShortConv(spec) => spec.row_cols(),
        }
    }

    /// Columns of a row that comes out.
    pub fn out_cols(&self) -> usize {
        match self {
            Recurrence::GatedDelta(spec) => spec.v_cols(),
            Recurrence::Mamba2(spec) => spec.inner(),
            Recurrence::ShortConv(spec) => spec.cols,
        }
    }
}

impl GatedDelta {
    /// Value heads of one key head.
    pub fn group(&self) -> usize {
        self.v_heads / self.k_heads
    }

    /// Columns of all query heads, which is also that of all key heads.
    pub fn k_cols(&self) -> usize {
        self.k_heads * self.k_dim
    }

    /// Columns of all value heads.
    pub fn v_cols(&self) -> usize {
        self.v_heads * self.v_dim
    }

    /// Columns that are convolved: `[q | k | v]`.
    pub fn conv_cols(&self) -> usize {
        2 * self.k_cols() + self.v_cols()
    }

    /// Decays of one key head.
    pub fn decays(&self) -> usize {
        match self.rule {
            DeltaRule::PerHead => self.group(),
            DeltaRule::PerChannel => self.k_dim,
        }
    }

    /// Decays of all heads.
    pub fn decay_cols(&self) -> usize {
        self.k_heads * self.decays()
    }

    /// Columns of a row, without what is in rows of its own.
    pub fn row_cols(&self) -> usize {
        let gates = match self.layout {
            DeltaLayout::ByKind | DeltaLayout::ByHead => self.v_cols() + self.decay_cols(),
            DeltaLayout::Apart => 0,
        };
        self.conv_cols() + self.v_heads + gates
    }

    /// Where a row has what belongs to key head `head`.
    pub fn place(&self, head: usize) -> DeltaPlace {
        let (group, decays) = (self.group(), self.decays());
        let (k, v) = (self.k_dim, group * self.v_dim);
        let (k_cols, v_cols) = (self.k_cols(), self.v_cols());
        let [q, key, value, z, b, a] = match self.layout {
            DeltaLayout::ByKind => {
                let gates = 2 * k_cols + 2 * v_cols;
                [
                    head * k,
                    k_cols + head * k,
                    2 * k_cols + head * v,
                    2 * k_cols + v_cols + head * v,
                    gates + head * group,
                    gates + self.v_heads + head * decays,
                ]
            }
            DeltaLayout::Apart => [
                head * k,
                k_cols + head * k,
                2 * k_cols + head * v,
                head * v,
                2 * k_cols + v_cols + head * group,
                head * decays,
            ],
            DeltaLayout::ByHead => {
                let first = head * 2 * (k + v);
                let gates = 2 * (k_cols + v_cols) + head * (group + decays);
                [first, first + k, first + 2 * k, first + 2 * k + v, gates, gates + group]
            }
        };
        DeltaPlace {
            q: q..q + k,
            k: key..key + k,
            v: value..value + v,
            z: z..z + v,
            b: b..b + group,
            a: a..a + decays,
        }
    }
}

/// Columns of a row that belong to one key head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaPlace {
    /// Its query.
    pub q: Range<usize>,
    /// Its key.
    pub k: Range<usize>,
    /// Values of its value heads.
    pub v: Range<usize>,
    /// Output gates of its value heads, as many as values.
    pub z: Range<usize>,
    /// A write strength per value head.
    pub b: Range<usize>,
    /// Its decays.
    pub a: Range<usize>,
}

impl Mamba2 {
    /// Columns of all heads.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns that are convolved: `[x | B | C]`.
    pub fn conv_cols(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }

    /// Columns of a whole row.
    pub fn row_cols(&self) -> usize {
        self.inner() + self.conv_cols() + self.heads
    }

    /// Heads of one group.
    pub fn group(&self) -> usize {
        self.heads / self.groups
    }
}

impl MambaScales {
    /// Nothing is scaled.
    pub const NONE: MambaScales = MambaScales { z: 1.0, dt: 1.0 };
}

impl ShortConv {
    /// Columns of a whole row.
    pub fn row_cols(&self) -> usize {
        3 * self.cols
    }
}
