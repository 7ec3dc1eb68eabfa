//! Sequences that catch up in passes of any cut: what layers that remember have in common. Not here:
//! what a layer does, which is in the file of its kind.

use super::data::Rng;
use crate::Backend;

/// Which sequence advances by how many rows, in one pass.
pub(super) type Pass = Vec<(usize, usize)>;

/// A layer and the rows of some sequences.
pub(super) trait Case {
    /// What the layer makes of one sequence.
    type Outcome;

    fn name(&self) -> String;
    /// Rows of each sequence.
    fn lengths(&self) -> Vec<usize>;
    /// What comes out for each sequence.
    fn run<B: Backend>(&self, device: &B, passes: &[Pass]) -> Vec<Self::Outcome>;
    /// Panics where two outcomes of a sequence differ in a bit.
    fn assert_same(what: &str, got: &Self::Outcome, want: &Self::Outcome);

    /// Every sequence whole, in one pass.
    fn at_once(&self) -> Vec<Pass> {
        vec![self.lengths().into_iter().enumerate().collect()]
    }

    /// One sequence after the other, `chunk` rows at a time.
    fn in_chunks(&self, chunk: usize) -> Vec<Pass> {
        let cut = |(i, n): (usize, usize)| {
            (0..n).step_by(chunk).map(move |first| vec![(i, chunk.min(n - first))])
        };
        self.lengths().into_iter().enumerate().flat_map(cut).collect()
    }

    /// Random mixtures of prompts and decoding.
    fn ragged(&self, rng: &mut Rng) -> Vec<Pass> {
        let mut left = self.lengths();
        let mut passes = Vec::new();
        while left.iter().any(|left| *left > 0) {
            let mut pass = Vec::new();
            for (i, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
                let most = [1, 4, 50][rng.below(3)];
                let n = (1 + rng.below(most)).min(*left);
                *left -= n;
                pass.push((i, n));
            }
            passes.push(pass);
        }
        passes
    }
}

/// Panics where the outcomes of two runs differ in a bit.
pub(super) fn assert_all_same<C: Case>(what: &str, got: &[C::Outcome], want: &[C::Outcome]) {
    assert_eq!(got.len(), want.len(), "{what}: sequences");
    got.iter().zip(want).for_each(|(got, want)| C::assert_same(what, got, want));
}

/// However the rows are cut into passes, the same bits.
pub(super) fn check_invariance<B: Backend, C: Case>(device: &B, cases: &[C], rng: &mut Rng) {
    for case in cases {
        let want = case.run(device, &case.at_once());
        let cuts = [
            ("in chunks of 1", case.in_chunks(1)),
            ("in chunks of 7", case.in_chunks(7)),
            ("in chunks of 64", case.in_chunks(64)),
            ("in ragged passes", case.ragged(rng)),
            ("in other ragged passes", case.ragged(rng)),
        ];
        for (cut, passes) in cuts {
            let what = format!("{} {cut}", case.name());
            assert_all_same::<C>(&what, &case.run(device, &passes), &want);
        }
    }
}

/// On two devices, the same bits.
pub(super) fn check_equal<A: Backend, B: Backend, C: Case>(
    a: &A,
    b: &B,
    cases: &[C],
    rng: &mut Rng,
) {
    for case in cases {
        let passes = case.ragged(rng);
        assert_all_same::<C>(&case.name(), &case.run(a, &passes), &case.run(b, &passes));
    }
}
