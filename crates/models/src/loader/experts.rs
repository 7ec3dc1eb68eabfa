//! The weights of experts, in whichever of several ways a checkpoint stores them.

use std::ops::Range;

use backend::GateUpRows;
use weights::Matrix;

use super::Loader;
use crate::Error;
use crate::modules::ExpertLinear;
use crate::recipe::{Bias, JoinedRows};

/// How a checkpoint has one projection of all experts.
enum Storage {
    /// Each expert for itself, under these names.
    Apart(Vec<String>),
    /// One on top of the other, under this name.
    Stacked(String),
    /// The same, with gate and up of each together.
    Joined(String),
}

/// Gate and up of all experts, or up alone.
pub(crate) struct Entrance {
    /// One expert after the other.
    pub(crate) weight: Vec<Matrix>,
    /// A number for each row.
    pub(crate) bias: Option<Vec<f32>>,
    /// How the rows of one expert lie.
    pub(crate) rows: GateUpRows,
}

impl Loader<'_> {
    fn storage(&self, experts: &ExpertLinear) -> Storage {
        let is_there = |name: &String| self.checkpoint.has_weight(name);
        if let Some(name) = experts.stacked().into_iter().find(is_there) {
            return Storage::Stacked(name);
        }
        if let Some(name) = experts.joined().into_iter().find(is_there) {
            return Storage::Joined(name);
        }
        let [usual, short] = experts.single(0);
        let spelling = usize::from(!is_there(&usual) && is_there(&short));
        Storage::Apart((0..experts.n).map(|e| experts.single(e)[spelling].clone()).collect())
    }

    /// The names that the tensors of a projection have, without what follows the module's name.
    pub(super) fn stored_experts(&self, experts: &ExpertLinear) -> Vec<String> {
        match self.storage(experts) {
            Storage::Apart(names) => names,
            Storage::Stacked(name) | Storage::Joined(name) => {
                // The parts of a stack of blocks are named with an underscore.
                let part = |part: &str| format!("{name}_{part}");
                let parts = ["blocks", "scales", "bias"].map(part);
                [name].into_iter().chain(parts).collect()
            }
        }
    }

    /// Whether this machine has a part of every expert, and others have the other parts.
    pub(crate) fn shares_experts(&self) -> bool {
        self.cuts.is_some()
    }

    /// A projection as a checkpoint has it, of which this machine may have a share.
    fn whole(&self, experts: &ExpertLinear) -> ExpertLinear {
        let ranks = self.share().ranks;
        let mut whole = experts.clone();
        match whole.is_down() {
            true => whole.cols *= ranks,
            false => whole.rows *= ranks,
        }
        whole
    }

    /// What this machine has of rows that each expert has `each` of.
    fn own_rows(&self, each: usize) -> Range<usize> {
        self.share().of(each)
    }

    /// One matrix per expert. Shares the bytes of a stack, unless this machine has some columns only.
    pub(crate) fn experts(&self, experts: &ExpertLinear) -> Result<Vec<Matrix>, Error> {
        let whole = self.whole(experts);
        let matrices = self.whole_experts(&whole)?;
        if !self.shares_experts() {
            return Ok(matrices);
        }
        let own = |matrix: Matrix| match whole.is_down() {
            true => Ok(matrix.cols_range(self.own_rows(whole.cols))?),
            false => Ok(matrix.rows_range(self.own_rows(whole.rows))),
        };
        matrices.into_iter().map(own).collect()
    }

    /// All of each expert.
    fn whole_experts(&self, experts: &ExpertLinear) -> Result<Vec<Matrix>, Error> {
        let ExpertLinear { n, rows, cols, .. } = *experts;
        match self.storage(experts) {
            Storage::Stacked(name) => {
                let stack = self.stack(experts, &name, rows)?;
                Ok((0..n).map(|e| stack.rows_range(e * rows..(e + 1) * rows)).collect())
            }
            Storage::Joined(name) => {
                let stack = self.stack(experts, &name, 2 * rows)?;
                let first = if experts.projection == "up_proj" { rows } else { 0 };
                let start = |e: usize| e * 2 * rows + first;
                Ok((0..n).map(|e| stack.rows_range(start(e)..start(e) + rows)).collect())
            }
            Storage::Apart(names) => {
                let single = |name: &String| Ok(self.checkpoint.matrix(name, rows, cols)?);
                names.iter().map(single).collect()
            }
        }
    }

    /// A stack of `rows` rows per expert.
    fn stack(&self, experts: &ExpertLinear, name: &str, rows: usize) -> Result<Matrix, Error> {
        let ExpertLinear { n, cols, .. } = *experts;
        Ok(if self.is_transposed(experts, name) {
            self.checkpoint.experts_transposed(name, n, rows, cols)?
        } else {
            self.checkpoint.experts(name, n, rows, cols)?
        })
    }

    fn is_transposed(&self, experts: &ExpertLinear, name: &str) -> bool {
        experts.joined_rows == JoinedRows::TakeTurns && self.checkpoint.is_parameter(name)
    }

    /// Gate and up as the device takes them; up alone where there is no gate.
    pub(crate) fn entrance(
        &self,
        gate: Option<&ExpertLinear>,
        up: &ExpertLinear,
    ) -> Result<Entrance, Error> {
        let Some(gate) = gate else {
            let (weight, bias) = (self.experts(up)?, self.expert_bias(up)?);
            return Ok(Entrance { weight, bias, rows: GateUpRows::Halves });
        };
        if let (Storage::Joined(name), JoinedRows::TakeTurns) =
            (self.storage(gate), gate.joined_rows)
        {
            return self.pairs(&name, gate);
        }
        let (gates, ups) = (self.experts(gate)?, self.experts(up)?);
        let weight = gates.into_iter().zip(ups).flat_map(|(gate, up)| [gate, up]).collect();
        let bias = match (self.expert_bias(gate)?, self.expert_bias(up)?) {
            (Some(gates), Some(ups)) => {
                let pairs = gates.chunks_exact(gate.rows).zip(ups.chunks_exact(up.rows));
                Some(pairs.flat_map(|(gate, up)| [gate, up].concat()).collect())
            }
            _ => None,
        };
        Ok(Entrance { weight, bias, rows: GateUpRows::Halves })
    }

    /// Gate and up whose rows take turns.
    fn pairs(&self, name: &str, gate: &ExpertLinear) -> Result<Entrance, Error> {
        let (each, own) = (2 * self.whole(gate).rows, self.own_rows(2 * self.whole(gate).rows));
        let stack = self.stack(gate, name, each)?;
        let bias = self.stacked_bias(gate, name, each)?.map(|all| some_of_each(&all, each, &own));
        let weight = match own == (0..each) {
            true => vec![stack],
            false => (0..gate.n)
                .map(|e| stack.rows_range(e * each + own.start..e * each + own.end))
                .collect(),
        };
        Ok(Entrance { weight, bias, rows: GateUpRows::Interleaved })
    }

    /// The biases of a projection, one expert after the other, if it has any. Of several machines that
    /// have a share of each expert, the first one adds those of what is summed.
    pub(crate) fn expert_bias(&self, experts: &ExpertLinear) -> Result<Option<Vec<f32>>, Error> {
        let whole = self.whole(experts);
        if whole.is_down() {
            return if self.share().rank == 0 { self.whole_bias(&whole) } else { Ok(None) };
        }
        let own = self.own_rows(whole.rows);
        Ok(self.whole_bias(&whole)?.map(|all| some_of_each(&all, whole.rows, &own)))
    }

    fn whole_bias(&self, experts: &ExpertLinear) -> Result<Option<Vec<f32>>, Error> {
        let rows = experts.rows;
        match self.storage(experts) {
            _ if experts.bias == Bias::Absent => Ok(None),
            Storage::Stacked(name) => self.stacked_bias(experts, &name, rows),
            Storage::Joined(name) => {
                let Some(both) = self.stacked_bias(experts, &name, 2 * rows)? else {
                    return Ok(None);
                };
                let first = if experts.projection == "up_proj" { rows } else { 0 };
                let own = both.chunks_exact(2 * rows).flat_map(|both| &both[first..first + rows]);
                Ok(Some(own.copied().collect()))
            }
            Storage::Apart(names) => {
                let mut all = Vec::with_capacity(experts.n * rows);
                for name in names {
                    all.extend(self.numbers(&format!("{name}.bias"), rows)?);
                }
                Ok(Some(all))
            }
        }
    }

    /// `rows` biases for each expert of the stack called `name`, if there are to be any.
    fn stacked_bias(
        &self,
        experts: &ExpertLinear,
        name: &str,
        rows: usize,
    ) -> Result<Option<Vec<f32>>, Error> {
        if experts.bias == Bias::Absent {
            return Ok(None);
        }
        let [usual, parameter] = [format!("{name}.bias"), format!("{name}_bias")];
        let stored = if self.checkpoint.contains(&parameter) { parameter } else { usual };
        Ok(Some(self.numbers(&stored, experts.n * rows)?))
    }

    /// Bytes of one projection as stored, and how many of them are copied.
    pub(super) fn expert_bytes(&self, experts: &ExpertLinear) -> Result<[u64; 2], Error> {
        let whole = self.whole(experts);
        let all = self.whole_bytes(&whole)?;
        let Some(cuts) = &self.cuts else { return Ok(all) };
        if !whole.is_down() {
            return Ok(all.map(|bytes| bytes / cuts.share().ranks as u64));
        }
        // A part of every row is copied.
        for expert in self.whole_experts(&whole)? {
            expert.check_cols(&self.own_rows(whole.cols))?;
        }
        let own = all[0] / cuts.share().ranks as u64;
        Ok([own, own])
    }

    fn whole_bytes(&self, experts: &ExpertLinear) -> Result<[u64; 2], Error> {
        let bias = 4 * (experts.bias.len(experts.rows) * experts.n) as u64;
        let weight = match self.storage(experts) {
            Storage::Stacked(name) | Storage::Joined(name)
                if self.is_transposed(experts, &name) =>
            {
                let stored = self.checkpoint.tensor(&format!("{name}.weight"));
                let all = stored.map_or(0, |tensor| tensor.data.len()) as u64;
                let own = if experts.projection == "down_proj" { all } else { all / 2 };
                return Ok([own + bias, own + bias]);
            }
            Storage::Joined(name) if experts.joined_rows == JoinedRows::TakeTurns => {
                self.stack(experts, &name, 2 * experts.rows)?.n_bytes() as u64 / 2
            }
            Storage::Stacked(_) | Storage::Joined(_) | Storage::Apart(_) => {
                self.whole_experts(experts)?.iter().map(|matrix| matrix.n_bytes() as u64).sum()
            }
        };
        Ok([weight + bias, bias])
    }
}

/// Some of the `each` numbers of every expert.
fn some_of_each(all: &[f32], each: usize, own: &Range<usize>) -> Vec<f32> {
    all.chunks_exact(each).flat_map(|expert| &expert[own.clone()]).copied().collect()
}
