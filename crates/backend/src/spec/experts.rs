//! Mixtures of experts as plain data: how many, what one computes, and how a row's are chosen.

use super::Activation;

/// A mixture of experts: which of `n` feed-forward layers a row passes through.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// How many experts there are.
    pub n: usize,
    /// How many of them each row uses.
    pub top_k: usize,
    /// Inner columns of one expert.
    pub inner: usize,
    /// How router logits become a choice of experts and their weights.
    pub gating: Gating,
    /// What every chosen weight is multiplied with at last.
    pub routed_scale: f32,
    /// What one of them computes.
    pub form: ExpertForm,
}

/// What an expert computes, and out of which rows of its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpertForm {
    /// `down(glu(gate(x), up(x)))`.
    Gated {
        /// How gate and up become one.
        glu: Glu,
        /// Where their rows are.
        rows: GateUpRows,
    },
    /// `down(act(up(x)))`, there being no gate.
    Plain(Activation),
}

/// How gate and up become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Glu {
    /// `act(gate) * up`.
    Act(Activation),
    /// Of gpt-oss: with `g = min(gate, limit)` and `u` as `up` moved into `-limit..=limit`,
    /// `g * sigmoid(slope * g) * (u + 1)`.
    ClampedSwish {
        /// How steep the sigmoid is.
        slope: f32,
        /// Where the numbers end.
        limit: f32,
    },
}

/// How the `2 * inner` rows of gate and up lie in the weight of one expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateUpRows {
    /// All of gate, then all of up.
    Halves,
    /// Row `2 * i` is row `i` of gate, row `2 * i + 1` is row `i` of up.
    Interleaved,
}

/// How router logits become a choice of experts and their weights.
///
/// Every logit becomes a score. The experts with the largest scores are chosen, equal ones by the
/// lower index; where there are corrections, they are added to the scores for this alone. The weights
/// are the scores of the chosen, which the divisor may bring to a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gating {
    /// What logits become.
    pub scores: Scores,
    /// Where only the experts of some groups can be chosen: how these are found.
    pub groups: Option<Groups>,
    /// What the scores of the chosen experts are divided by.
    pub divisor: Divisor,
}

/// What the logits of a row become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Their softmax.
    Softmax,
    /// The sigmoid of each.
    Sigmoid,
}

/// Experts in groups of consecutive ones. Of equally good groups the first is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many groups; divides the number of experts into at least two each.
    pub n: usize,
    /// How many of them are chosen from.
    pub kept: usize,
    /// How good a group is.
    pub merit: GroupMerit,
}

/// How good a group of experts is, by their corrected scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMerit {
    /// As its best expert (DeepSeek-V2).
    Largest,
    /// As its two best ones together (DeepSeek-V3).
    TwoLargest,
}

/// What the scores of the chosen experts are divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divisor {
    /// Nothing.
    One,
    /// Their sum plus this.
    SumPlus(f32),
    /// Their sum, or this if it is greater.
    SumAtLeast(f32),
}

impl Gating {
    /// A softmax over all experts, whose largest numbers are taken as they are.
    pub const SOFTMAX: Gating =
        Gating { scores: Scores::Softmax, groups: None, divisor: Divisor::One };
    /// A softmax over all experts, whose largest numbers are divided by their sum: the softmax over
    /// the largest logits alone.
    pub const SOFTMAX_OF_CHOSEN: Gating =
        Gating { divisor: Divisor::SumPlus(0.0), ..Gating::SOFTMAX };
    /// Sigmoids, the largest divided by their sum.
    pub const SIGMOID: Gating =
        Gating { scores: Scores::Sigmoid, groups: None, divisor: Divisor::SumPlus(0.0) };
}

impl ExpertForm {
    /// Rows of gate and up together for each inner column.
    pub fn rows_per_column(self) -> usize {
        match self {
            ExpertForm::Gated { .. } => 2,
            ExpertForm::Plain(_) => 1,
        }
    }

    /// `down(act(gate(x)) * up(x))`, all rows of gate before those of up.
    pub fn gated(activation: Activation) -> ExpertForm {
        ExpertForm::Gated { glu: Glu::Act(activation), rows: GateUpRows::Halves }
    }
}
