//! Who gets how many rows of the next pass.
//!
//! Numbers in, numbers out: no tokens, no blocks. Whatever is decided here changes when a token is
//! computed, never which.

/// The oldest prompt gets one row in so many of those that prompts get.
const OLDEST_SHARE: usize = 4;

/// Rows of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// In all. At least as many as there are sequences.
    pub rows: usize,
    /// For sequences that are more than one row behind. At least one.
    pub prompts: usize,
}

/// Who gets what.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Rows of each sequence.
    pub rows: Vec<usize>,
    /// Sequences that get none because another one computes what they need.
    pub n_waiting: usize,
}

/// Shares the rows of a pass among sequences that are `behind` their own tokens by so many rows.
/// They stand in the order of their places, the oldest first.
///
/// `leaves(a, b)` says how many of the next rows of `b` are rows that `a` would take over, so that
/// `a` rather leaves them to `b`; 0 if the two have nothing to do with each other.
///
/// The rule:
/// 1. Whoever is one row behind gets it. So a long prompt never holds up an answer that is
///    flowing.
/// 2. The oldest prompt gets a quarter of the rows for prompts, at least one.
/// 3. The others go to the prompts that need the fewest, the oldest first among equals. So a
///    short prompt passes long ones.
/// 4. A prompt whose next rows another one gets already, waits for these, and its turn goes to
///    that other one. So what many share is computed once, and as soon as if each had been alone.
///
/// Because of 2, whatever arrives later, **a prompt is computed after at most `4 M / L + k`
/// passes**, where `k` counts it and the prompts before it in the line, `M` is the sum of their
/// rows, and `L` the least number of rows that prompts got in any of these passes.
pub(crate) fn share_rows(
    behind: &[usize],
    budget: Budget,
    leaves: impl Fn(usize, usize) -> usize,
) -> Shares {
    let mut shares = Shares { rows: vec![0; behind.len()], n_waiting: 0 };
    let mut prompts: Vec<usize> = Vec::new();
    for (seq, &n) in behind.iter().enumerate() {
        match n {
            0 | 1 => shares.rows[seq] = n,
            _ => prompts.push(seq),
        }
    }
    let n_flowing: usize = shares.rows.iter().sum();
    let mut left = budget.prompts.min(budget.rows.saturating_sub(n_flowing));
    let quarter = left.div_ceil(OLDEST_SHARE);
    let mut grant = |rows: &mut [usize], seq: usize, up_to: usize| {
        let more = up_to.min(behind[seq]).saturating_sub(rows[seq]).min(left);
        rows[seq] += more;
        left -= more;
    };
    if let Some(&oldest) = prompts.first() {
        grant(&mut shares.rows, oldest, quarter);
    }
    // Stable, so that equals stay in order of arrival.
    prompts.sort_by_key(|&seq| behind[seq]);
    for &seq in &prompts {
        let computing = prompts.iter().filter(|&&other| other != seq && shares.rows[other] > 0);
        let most = computing.map(|&other| (leaves(seq, other), other)).max();
        match most.filter(|(n, _)| *n > 0 && shares.rows[seq] == 0) {
            Some((n, other)) => {
                grant(&mut shares.rows, other, n);
                shares.n_waiting += 1;
            }
            None => grant(&mut shares.rows, seq, usize::MAX),
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alone(behind: &[usize], rows: usize, prompts: usize) -> Vec<usize> {
        share_rows(behind, Budget { rows, prompts }, |_, _| 0).rows
    }

    fn check(behind: &[usize], rows: usize, expected: &[usize]) {
        assert_eq!(alone(behind, rows, usize::MAX), expected, "{behind:?} in {rows}");
    }

    #[test]
    fn flowing_first_then_a_quarter_for_the_oldest_then_the_shortest() {
        check(&[], 8, &[]);
        check(&[5], 8, &[5]);
        check(&[4000], 8, &[8]);
        check(&[4000, 1, 1], 8, &[6, 1, 1]);
        check(&[4000, 5000, 1], 9, &[8, 0, 1]);
        check(&[4000, 3000, 1], 9, &[2, 6, 1]);
        check(&[4000, 20, 1, 300], 513, &[192, 20, 1, 300]);
        check(&[3, 4000, 2], 5, &[3, 0, 2]);
        check(&[9, 9, 9], 3, &[3, 0, 0]);
        check(&[900, 9, 9], 3, &[1, 2, 0]);
    }

    #[test]
    fn prompts_keep_to_their_budget_and_flowing_answers_need_none() {
        assert_eq!(alone(&[1, 4000, 1, 300], 256, 32), [1, 8, 1, 24]);
        assert_eq!(alone(&[1, 1, 1], 256, 1), [1, 1, 1]);
        assert_eq!(alone(&[1, 4000], 2, 32), [1, 1]);
    }

    /// Three prompts with 1,000 rows in common: one computes them, at the pace of the most urgent.
    #[test]
    fn what_is_shared_is_computed_once() {
        let behind = [1, 5000, 1010, 1010, 40];
        let common = |a: usize, b: usize| if a != 4 && b != 4 { 1000 } else { 0 };
        let budget = Budget { rows: 401, prompts: 400 };
        let shares = share_rows(&behind, budget, common);
        assert_eq!(shares.rows, [1, 360, 0, 0, 40]);
        assert_eq!(shares.n_waiting, 2);
        // Without the long one, the elder of the others computes it.
        let shares = share_rows(&[1010, 1010, 40], budget, |a, b| common(a + 2, b + 2));
        assert_eq!((shares.rows, shares.n_waiting), (vec![360, 0, 40], 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nobody_flowing_waits_and_nothing_is_wasted(
            behind in prop::collection::vec(1..600usize, 1..20),
            extra in 0..900usize,
            prompts in 1..900usize,
        ) {
            let rows = behind.len() + extra;
            let shares = alone(&behind, rows, prompts);
            prop_assert!(shares.iter().zip(&behind).all(|(share, need)| share <= need));
            let flowing = behind.iter().filter(|n| **n == 1).count();
            prop_assert!(shares.iter().zip(&behind).all(|(share, need)| *need > 1 || *share == 1));
            let needed: usize = behind.iter().sum::<usize>() - flowing;
            let sum: usize = shares.iter().sum();
            prop_assert_eq!(sum, flowing + needed.min(prompts).min(rows - flowing));
            prop_assert!(shares[0] > 0, "the oldest always moves");
        }

        /// The bound that the rule states, while shorter prompts keep coming.
        #[test]
        fn a_long_prompt_is_done_in_time(
            before in prop::collection::vec(2..800usize, 0..5),
            long in 2..3000usize,
            prompts in 1..300usize,
            arrivals in prop::collection::vec(prop::collection::vec(2..60usize, 0..12), 1..9),
        ) {
            let k = before.len() + 1;
            let mut behind: Vec<usize> = before.clone();
            behind.push(long);
            let m: usize = behind.iter().sum();
            let bound = OLDEST_SHARE * m / prompts + k;
            let mut n_ours = k;
            for pass in 0.. {
                prop_assert!(pass <= bound, "{} passes are not enough", bound);
                behind.truncate(40);
                behind.extend(&arrivals[pass % arrivals.len()]);
                let shares = alone(&behind, behind.len() + prompts, prompts);
                let mut at = 0;
                let ours: usize = (0..n_ours).filter(|&i| behind[i] > shares[i]).count();
                behind.retain_mut(|n| { *n -= shares[at]; at += 1; *n > 0 });
                n_ours = ours;
                if n_ours == 0 {
                    break;
                }
            }
        }
    }
}
