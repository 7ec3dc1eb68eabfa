//! Which experts a row meets, and with what weights. No rows of activations here.

use std::cmp::Ordering;

use backend::{Divisor, Experts, GroupMerit, Groups, Scores};

use crate::simd::OpKernels;

/// What a row's choice is worked out in. Grows to what the largest layer needs, then stays.
#[derive(Default)]
pub(super) struct Router {
    /// What its logits become.
    scores: Vec<f32>,
    /// What the experts are chosen by.
    merits: Vec<f32>,
    /// The same for groups of them.
    of_groups: Vec<f32>,
    groups: Vec<usize>,
    /// The chosen experts.
    chosen: Vec<usize>,
}

impl Router {
    /// Chooses the experts of a row: calls `found(expert, weight)` for each, in ascending order.
    pub(super) fn route(
        &mut self,
        ops: &OpKernels,
        logits: &[f32],
        (spec, correction): (&Experts, Option<&[f32]>),
        mut found: impl FnMut(usize, f32),
    ) {
        self.score(ops, logits, spec.gating.scores);
        self.merits.clear();
        if correction.is_none() && spec.gating.groups.is_none() {
            // Different logits may have become equal scores.
            self.merits.extend_from_slice(logits);
        } else {
            self.merits.extend_from_slice(&self.scores);
        }
        if let Some(correction) = correction {
            self.merits.iter_mut().zip(correction).for_each(|(merit, more)| *merit += more);
        }
        self.chosen.clear();
        match spec.gating.groups {
            None => self.chosen.extend(0..spec.n),
            Some(groups) => self.keep(groups),
        }
        best(&mut self.chosen, &self.merits, spec.top_k);
        let sum: f32 = self.chosen.iter().map(|expert| self.scores[*expert]).sum();
        let divisor = match spec.gating.divisor {
            Divisor::One => 1.0,
            Divisor::SumPlus(more) => sum + more,
            Divisor::SumAtLeast(least) => {
                if sum < least {
                    least
                } else {
                    sum
                }
            }
        };
        for expert in &self.chosen {
            found(*expert, self.scores[*expert] / divisor * spec.routed_scale);
        }
    }

    fn score(&mut self, ops: &OpKernels, logits: &[f32], scores: Scores) {
        self.scores.clear();
        match scores {
            Scores::Softmax => {
                self.scores.extend_from_slice(logits);
                (ops.softmax)(&mut self.scores);
            }
            Scores::Sigmoid => {
                self.scores.resize(logits.len(), 1.0);
                (ops.gate)(&mut self.scores, logits);
            }
        }
    }

    /// Makes candidates of the experts of the best groups.
    fn keep(&mut self, groups: Groups) {
        let size = self.merits.len() / groups.n;
        self.of_groups.clear();
        let merit = |group: &[f32]| {
            let [first, second] = two_largest(group);
            match groups.merit {
                GroupMerit::Largest => first,
                GroupMerit::TwoLargest => first + second,
            }
        };
        self.of_groups.extend(self.merits.chunks_exact(size).map(merit));
        self.groups.clear();
        self.groups.extend(0..groups.n);
        best(&mut self.groups, &self.of_groups, groups.kept);
        self.chosen.extend(self.groups.iter().flat_map(|group| group * size..(group + 1) * size));
    }
}

/// The two largest, the larger one first.
fn two_largest(merits: &[f32]) -> [f32; 2] {
    let mut two = [f32::NEG_INFINITY; 2];
    for merit in merits {
        if merit.total_cmp(&two[0]) == Ordering::Greater {
            two = [*merit, two[0]];
        } else if merit.total_cmp(&two[1]) == Ordering::Greater {
            two[1] = *merit;
        }
    }
    two
}

/// Leaves the `n` of `places` with the greatest merits, equal ones by the lower place, ascending.
fn best(places: &mut Vec<usize>, merits: &[f32], n: usize) {
    let better = |a: &usize, b: &usize| merits[*b].total_cmp(&merits[*a]).then(a.cmp(b));
    places.select_nth_unstable_by(n - 1, better);
    places.truncate(n);
    places.sort_unstable();
}
