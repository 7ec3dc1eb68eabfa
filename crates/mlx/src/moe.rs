//! Mixtures of experts: MLX multiplies every row with the matrices of its own experts.

use backend::ops::{ExpertWeights, MoeOps};
use backend::{Divisor, ExpertForm, Experts, GateUpRows, Glu, GroupMerit, Groups, Scores};

use crate::dense::{activate, halves};
use crate::ffi::{Array, Dtype, Fault};
use crate::weight::Portion;
use crate::{Buf, Mlx, Vector};

impl MoeOps for Mlx {
    fn experts(
        &self,
        x: &Buf,
        router: &Buf,
        spec: &Experts,
        weights: ExpertWeights<'_, Mlx>,
        out: &mut Buf,
    ) {
        let ExpertWeights { gate_up, gate_up_bias, down, down_bias, correction, scales } = weights;
        self.fill(out, || {
            let (x, n) = (x.get()?, spec.n);
            let (rows, cols) = (x.dim(0), down.n_rows() / n);
            if rows == 0 {
                return Array::zeros(&[0, cols], self.dtype);
            }
            let logits = router.get()?.astype(Dtype::F32)?;
            let (which, mut weight) = route(&logits, spec, correction)?;
            if let Some(scales) = scales {
                weight = weight.multiply(&scales.exact.take(&which, 0)?)?;
            }
            // A row of `[experts, numbers]` for every chosen one: `[rows, k, 1, numbers]`.
            let biased = |y: Array, bias: Option<&Vector>| match bias {
                Some(bias) => {
                    let per_expert = bias.native.reshape(&[n, y.dim(3)])?.take(&which, 0)?;
                    y.add(&per_expert.reshape(&[rows, spec.top_k, 1, y.dim(3)])?)
                }
                None => Ok(y),
            };
            let x = x.reshape(&[rows, 1, 1, x.dim(1)])?;
            let hidden = biased(gate_up.stack(n, self.dtype)?.gather(&x, &which)?, gate_up_bias)?;
            let inner = within(spec.form, &hidden)?;
            let said = biased(down.stack(n, self.dtype)?.gather(&inner, &which)?, down_bias)?;
            let said = said.reshape(&[rows, spec.top_k, cols])?;
            let weight = weight.astype(self.dtype)?.reshape(&[rows, spec.top_k, 1])?;
            let said = said.multiply(&weight)?.sum(1)?.reshape(&[rows, cols])?;
            match down.portion {
                Portion::Columns => self.sum_of_all(&said),
                Portion::Whole | Portion::Rows => Ok(said),
            }
        });
    }

    fn add_gated(&self, x: &mut Buf, gate: &Buf, y: &Buf) {
        self.update(x, |x| x.add(&y.get()?.multiply(&gate.get()?.sigmoid()?)?));
    }
}

/// The inner columns of experts.
fn within(form: ExpertForm, hidden: &Array) -> Result<Array, Fault> {
    let (glu, gate, up) = match form {
        ExpertForm::Plain(activation) => return activate(hidden, activation),
        ExpertForm::Gated { glu, rows: GateUpRows::Halves } => {
            let (gate, up) = halves(hidden)?;
            (glu, gate, up)
        }
        ExpertForm::Gated { glu, rows: GateUpRows::Interleaved } => {
            let [rows, k, one, cols] = hidden.shape()[..] else { unreachable!("four axes") };
            let pairs = hidden.reshape(&[rows, k, one, cols / 2, 2])?;
            let side = |i: usize| pairs.slice(4, i..i + 1)?.reshape(&[rows, k, one, cols / 2]);
            (glu, side(0)?, side(1)?)
        }
    };
    together(glu, &gate, &up)
}

fn together(glu: Glu, gate: &Array, up: &Array) -> Result<Array, Fault> {
    match glu {
        Glu::Act(act) => activate(gate, act)?.multiply(up),
        Glu::ClampedSwish { slope, limit } => {
            let number = |x| Array::number(x, gate.dtype());
            let (least, most) = (number(-limit)?, number(limit)?);
            let gate = gate.minimum(&most)?;
            let swish = gate.multiply(&gate.times(slope)?.sigmoid()?)?;
            swish.multiply(&up.minimum(&most)?.maximum(&least)?.plus(1.0)?)
        }
    }
}

/// The chosen experts of every row and their weights, `[rows, k]` each.
fn route(
    logits: &Array,
    spec: &Experts,
    correction: Option<&Vector>,
) -> Result<(Array, Array), Fault> {
    let number = |x| Array::number(x, Dtype::F32);
    let scores = match spec.gating.scores {
        Scores::Softmax => logits.softmax(1)?,
        Scores::Sigmoid => logits.sigmoid()?,
    };
    let mut merits = match correction {
        Some(correction) => scores.add(&correction.exact)?,
        None => scores.clone(),
    };
    if let Some(groups) = spec.gating.groups {
        merits = within_groups(&merits, groups)?;
    }
    let which = best(&merits, spec.top_k)?;
    let weights = scores.take_along(&which, 1)?;
    let divisor = match spec.gating.divisor {
        Divisor::One => number(1.0)?,
        Divisor::SumPlus(more) => weights.sum(1)?.add(&number(more)?)?,
        Divisor::SumAtLeast(least) => weights.sum(1)?.maximum(&number(least)?)?,
    };
    let weights = weights.times(spec.routed_scale)?.divide(&divisor)?;
    Ok((which, weights))
}

/// Where the `k` greatest numbers of every row are; of equal ones the first.
fn best(merits: &Array, k: usize) -> Result<Array, Fault> {
    merits.negative()?.argsort(1)?.slice(1, 0..k)
}

/// Merits, and next to nothing for experts of groups that are not chosen.
fn within_groups(merits: &Array, groups: Groups) -> Result<Array, Fault> {
    let (rows, n) = (merits.dim(0), merits.dim(1));
    let size = n / groups.n;
    let each = merits.reshape(&[rows * groups.n, size])?;
    let best_ones = each.take_along(
        &best(
            &each,
            match groups.merit {
                GroupMerit::Largest => 1,
                GroupMerit::TwoLargest => 2,
            },
        )?,
        1,
    )?;
    let of_groups = best_ones.sum(1)?.reshape(&[rows, groups.n])?;
    let kept = best(&of_groups, groups.kept)?;
    let none = Array::zeros(&[rows, groups.n], Dtype::F32)?;
    let one = Array::number(1.0, Dtype::F32)?.broadcast(&[rows, groups.kept])?;
    let is_kept = none.put_along(&kept, &one, 1)?.reshape(&[rows, groups.n, 1])?;
    let is_kept = is_kept.broadcast(&[rows, groups.n, size])?.reshape(&[rows, n])?;
    let half = Array::number(0.5, Dtype::F32)?;
    half.less(&is_kept)?.choose(merits, &Array::number(f32::MIN, Dtype::F32)?)
}
