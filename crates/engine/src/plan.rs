//! Who gets how many rows of the next pass.
//!
//! Numbers in, numbers out: no tokens, no blocks. Whatever is decided here changes when a token is
//! computed, never which.

/// Shares `budget` rows among sequences that are `behind` their own tokens by so many rows.
///
/// The rule, which needs `behind.len() <= budget`:
/// 1. Whoever is one row behind gets it. So a long prompt never holds up an answer that is
///    already flowing.
/// 2. The others share what is left in equal parts. What a short one does not need goes to the
///    longer ones. So a short prompt passes a long one, and the long one still moves: **everybody
///    gets at least one row in every pass**.
pub(crate) fn share_rows(behind: &[usize], budget: usize) -> Vec<usize> {
    let mut shares = vec![0; behind.len()];
    let mut by_need: Vec<usize> = (0..behind.len()).collect();
    // Stable, so that equals stay in order of arrival. One row behind comes first by itself, and
    // an equal part of at least one row is all it needs.
    by_need.sort_by_key(|&seq| behind[seq]);
    let mut left = budget;
    for (rank, &seq) in by_need.iter().enumerate() {
        let part = left.div_ceil(behind.len() - rank);
        shares[seq] = behind[seq].min(part);
        left -= shares[seq];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::share_rows;
    use proptest::prelude::*;

    fn check(behind: &[usize], budget: usize, expected: &[usize]) {
        assert_eq!(share_rows(behind, budget), expected, "{behind:?} in {budget}");
    }

    #[test]
    fn decoding_goes_first_and_prompts_share_the_rest() {
        check(&[], 8, &[]);
        check(&[5], 8, &[5]);
        check(&[4000], 8, &[8]);
        check(&[4000, 1, 1], 8, &[6, 1, 1]);
        check(&[4000, 4000, 1], 9, &[4, 4, 1]);
        check(&[4000, 20, 1, 300], 512, &[245, 20, 1, 246]);
        check(&[4000, 4000, 1], 8, &[4, 3, 1]);
        check(&[9, 9, 9], 3, &[1, 1, 1]);
    }

    proptest! {
        #[test]
        fn nobody_starves_and_nothing_is_wasted(
            behind in prop::collection::vec(1..600usize, 1..20), extra in 0..900usize,
        ) {
            let budget = behind.len() + extra;
            let shares = share_rows(&behind, budget);
            prop_assert!(shares.iter().zip(&behind).all(|(share, need)| (1..=*need).contains(share)));
            let sum: usize = shares.iter().sum();
            prop_assert_eq!(sum, budget.min(behind.iter().sum()));
        }
    }
}
