//! The sampler's promises: the field's filters, the softmax's frequencies, and nobody else's state.

use proptest::prelude::*;
use serde_json::Value;

use super::filters::{Candidate, filter};
use super::noise::Noise;
use super::*;

/// Logits of the golden cases: no two are equal, all exact.
fn formula(case: &Value) -> Vec<f32> {
    let n = |key: &str| case[key].as_u64().unwrap();
    (0..n("n")).map(|i| ((i * n("step") + 77) % 8192) as f32 / n("spread") as f32 - 8.0).collect()
}

fn settings(case: &Value) -> Sampling {
    let number = |key: &str, off: f64| case[key].as_f64().unwrap_or(off) as f32;
    Sampling {
        temperature: number("temperature", 1.0),
        top_k: case["top_k"].as_u64().unwrap_or(0) as usize,
        top_p: number("top_p", 1.0),
        min_p: number("min_p", 0.0),
        repetition_penalty: number("repetition_penalty", 1.0),
        suppressed: Arc::new(suppressed(case)),
        ..Sampling::default()
    }
}

fn ids(value: &Value) -> Vec<TokenId> {
    let all = value.as_array().into_iter().flatten();
    all.map(|id| id.as_u64().unwrap() as TokenId).collect()
}

/// A word that is an end of text counts for nothing.
fn suppressed(case: &Value) -> Suppressed {
    let ends = ids(&case["eos_token_id"]);
    let words = case["bad_words_ids"].as_array().into_iter().flatten().map(ids);
    Suppressed {
        always: ids(&case["suppress_tokens"]),
        first: ids(&case["begin_suppress_tokens"]),
        sequences: words.filter(|word| word.len() > 1 || !ends.contains(&word[0])).collect(),
    }
}

/// Who passes, with probabilities, likeliest first. The history is all prompt.
fn survivors(sampling: &Sampling, history: &[TokenId], logits: &[f32]) -> Vec<(TokenId, f64)> {
    survivors_after(sampling, (history, history.len()), logits)
}

/// The same where the prompt has so many tokens of the history.
fn survivors_after(
    sampling: &Sampling,
    (history, n_prompt): (&[TokenId], usize),
    logits: &[f32],
) -> Vec<(TokenId, f64)> {
    let mut logits = logits.to_vec();
    filters::adjust(sampling, history, n_prompt, &mut logits, &mut Vec::new());
    let best = logits[argmax(&logits).unwrap() as usize];
    let mut left: Vec<Candidate> = Vec::new();
    filter(sampling, &logits, best, 0.0, &mut left);
    left.sort_by(filters::by_rank);
    let weights: Vec<f64> = left.iter().map(|c| f64::from(c.logit).exp()).collect();
    let sum: f64 = weights.iter().sum();
    left.iter().zip(weights).map(|(c, weight)| (c.id, weight / sum)).collect()
}

fn pairs(value: &Value) -> Vec<(TokenId, f64)> {
    let pair = |row: &Value| (row[0].as_u64().unwrap() as TokenId, row[1].as_f64().unwrap());
    value.as_array().unwrap().iter().map(pair).collect()
}

fn assert_near(found: &[(TokenId, f64)], expected: &[(TokenId, f64)], what: &str) {
    let ids = |rows: &[(TokenId, f64)]| rows.iter().map(|row| row.0).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found.1 - expected.1).abs() < 2e-6, "{what}: {found:?} {expected:?}");
    }
}

#[test]
fn the_filters_are_those_of_transformers() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/fixtures/sampling.json")).unwrap();
    assert!(cases.len() > 80);
    for case in cases {
        let what = format!("{}", settings_only(&case));
        let logits = formula(&case);
        let history = ids(&case["history"]);
        let n_prompt = case["n_prompt"].as_u64().map_or(history.len(), |n| n as usize);
        let found = survivors_after(&settings(&case), (&history, n_prompt), &logits);
        assert_eq!(found.len() as u64, case["kept"].as_u64().unwrap(), "{what}");
        let sum: u64 = found.iter().map(|(id, _)| u64::from(*id)).sum();
        assert_eq!(sum, case["kept_sum_of_ids"].as_u64().unwrap(), "{what}");
        let best = pairs(&case["best"]);
        assert_near(&found[..best.len()], &best, &what);

        let expected = pairs(&case["logprobs"]);
        let best = logits[argmax(&logits).unwrap() as usize];
        let logprob = logprobs::logprobs(&logits, best, 7, expected.len());
        let top: Vec<_> = logprob.top.iter().map(|(id, x)| (*id, f64::from(*x))).collect();
        assert_near(&top, &expected, &what);
    }
}

fn settings_only(case: &Value) -> Value {
    let mut case = case.clone();
    if let Some(map) = case.as_object_mut() {
        map.retain(|key, _| key != "best" && key != "logprobs");
    }
    case
}

fn pick(sampling: &Sampling, history: &[TokenId], logits: &[f32]) -> TokenId {
    let draw = Draw { sampling, history, n_prompt: 0, constraint: None, logprobs: None };
    Sampler::default().pick(draw, logits).unwrap().0
}

#[test]
fn draws_follow_the_filtered_softmax() {
    let logits: Vec<f32> = (0..40).map(|i| ((i * 7) % 40) as f32 / 8.0 - 3.0).collect();
    let warm = Sampling { temperature: 0.9, ..Sampling::default() };
    let settings = [
        warm.clone(),
        Sampling { temperature: 2.5, ..warm.clone() },
        Sampling { top_k: 7, ..warm.clone() },
        Sampling { top_p: 0.8, min_p: 0.05, ..warm.clone() },
        Sampling { logit_bias: vec![(17, -1.0), (0, 2.0)], ..warm },
    ];
    for sampling in settings {
        // Half the draws differ in position, half in seed.
        let n = 20_000;
        let mut counts = [0u32; 40];
        let mut history = vec![0; 1];
        for i in 0..n {
            let seed = if i % 2 == 0 { 9 } else { i };
            counts[pick(&Sampling { seed, ..sampling.clone() }, &history, &logits) as usize] += 1;
            history.resize(1 + i as usize % 10_001, 0);
        }
        let expected = survivors(&sampling, &[], &logits);
        let inside: u32 = expected.iter().map(|(id, _)| counts[*id as usize]).sum();
        assert_eq!(inside, n as u32, "only what passed the filters is drawn");
        // Tokens that are expected less than ten times are taken together.
        let (mut chi2, mut n_bins, mut rest) = (0.0, 0, (0.0, 0.0));
        for (id, p) in expected {
            let (found, expected) = (f64::from(counts[id as usize]), p * n as f64);
            if expected < 10.0 {
                rest = (rest.0 + found, rest.1 + expected);
            } else {
                chi2 += (found - expected).powi(2) / expected;
                n_bins += 1;
            }
        }
        if rest.1 > 0.0 {
            chi2 += (rest.0 - rest.1).powi(2) / rest.1;
        }
        // Mean n, variance 2n; four standard deviations and a bit for the long tail.
        let n_bins = f64::from(n_bins);
        assert!(chi2 < n_bins + 4.5 * (2.0 * n_bins).sqrt(), "{sampling:?}: {chi2} of {n_bins}");
    }
}

#[test]
fn penalties_are_as_documented() {
    let check = |sampling: Sampling, expected: [f32; 4]| {
        let mut logits = [1.0, 2.0, -2.0, 4.0];
        // Prompt: 0 1. Answer: 2 3 3.
        filters::adjust(&sampling, &[0, 1, 2, 3, 3], 2, &mut logits, &mut Vec::new());
        assert_eq!(logits, expected, "{sampling:?}");
    };
    let off = Sampling::default();
    check(off.clone(), [1.0, 2.0, -2.0, 4.0]);
    check(Sampling { repetition_penalty: 2.0, ..off.clone() }, [0.5, 1.0, -4.0, 2.0]);
    let window = Some(2);
    check(
        Sampling { repetition_penalty: 2.0, repetition_window: window, ..off.clone() },
        [1.0, 2.0, -2.0, 2.0],
    );
    check(Sampling { presence_penalty: 0.5, ..off.clone() }, [1.0, 2.0, -2.5, 3.5]);
    check(Sampling { frequency_penalty: 0.5, ..off.clone() }, [1.0, 2.0, -2.5, 3.0]);
    // The bias first, so the repetition penalty sees its sum.
    let biased = Sampling { logit_bias: vec![(1, -4.0)], repetition_penalty: 2.0, ..off };
    check(biased, [0.5, -4.0, -4.0, 2.0]);
}

/// Neither a bias nor a grammar gives back what is suppressed, however the choice is made, and what the
/// model thinks of it is told all the same.
#[test]
fn the_suppressed_is_never_chosen() {
    struct Only(TokenId);
    impl Constraint for Only {
        fn mask(&mut self, logits: &mut [f32]) {
            let all = logits.iter_mut().zip(0..);
            all.filter(|(_, id)| *id != self.0).for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
        }
        fn push(&mut self, _: TokenId) {}
    }
    let of = |suppressed| Sampling {
        logit_bias: vec![(3, 100.0)],
        suppressed: Arc::new(suppressed),
        ..Sampling::default()
    };
    let always = of(Suppressed { always: vec![3], ..Suppressed::default() });
    let first = of(Suppressed { first: vec![3], ..Suppressed::default() });
    let after = of(Suppressed { sequences: vec![vec![1, 2, 3], vec![0]], ..Suppressed::default() });
    let choose =
        |sampling: &Sampling, (history, n_prompt): (&[TokenId], usize), only: Option<Only>| {
            let mut only = only;
            let constraint = only.as_mut().map(|only| only as &mut (dyn Constraint + 'static));
            let draw = Draw { sampling, history, n_prompt, constraint, logprobs: Some(4) };
            Sampler::default().pick(draw, &[0.0, 1.0, 2.0, 3.0])
        };
    for (sampling, history, expected) in [
        (&always, (&[1, 2][..], 2), 2),
        (&always, (&[1, 2], 1), 2),
        (&first, (&[1, 2], 2), 2),
        (&first, (&[1, 2], 1), 3),
        (&after, (&[1, 2], 2), 2),
        (&after, (&[0, 1, 2], 1), 2),
        (&after, (&[2, 1], 1), 3),
        (&after, (&[2], 1), 3),
    ] {
        let warm = (0..50).map(|seed| Sampling { temperature: 1.0, seed, ..sampling.clone() });
        for (i, sampling) in std::iter::once(sampling.clone()).chain(warm).enumerate() {
            let (token, logprob) = choose(&sampling, history, None).unwrap();
            assert!(if i == 0 { token == expected } else { expected == 3 || token != 3 });
            assert_eq!(logprob.unwrap().top[0].0, 3);
        }
        let only = choose(sampling, history, Some(Only(3))).map(|(token, _)| token);
        let found = if expected == 3 { Ok(3) } else { Err(SampleError::NothingAllowed) };
        assert_eq!(only, found, "{sampling:?} {history:?}");
    }
    assert_eq!(
        choose(&after, (&[0, 0], 1), Some(Only(0))).unwrap_err(),
        SampleError::NothingAllowed
    );
}

#[test]
fn xtc_leaves_the_least_likely_of_the_top_choices() {
    // Probabilities .4 .3 .2 .1, by id from the last to the first.
    let logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln).to_vec();
    let check = |threshold: f32, probability: f32, draw: f64, expected: &[TokenId]| {
        let xtc = Some(Xtc { probability, threshold });
        let sampling = Sampling { temperature: 1.0, xtc, ..Sampling::default() };
        let mut left = Vec::new();
        filter(&sampling, &logits, logits[3], draw, &mut left);
        left.sort_by(filters::by_rank);
        let ids: Vec<TokenId> = left.iter().map(|c| c.id).collect();
        assert_eq!(ids, expected, "{threshold} {probability} {draw}");
    };
    check(0.15, 1.0, 0.99, &[1, 0]);
    check(0.25, 1.0, 0.99, &[2, 1, 0]);
    check(0.35, 1.0, 0.99, &[3, 2, 1, 0]);
    check(0.05, 1.0, 0.99, &[0]);
    check(0.6, 1.0, 0.99, &[3, 2, 1, 0]);
    check(0.15, 0.5, 0.49, &[1, 0]);
    check(0.15, 0.5, 0.5, &[3, 2, 1, 0]);
    check(0.15, 0.0, 0.0, &[3, 2, 1, 0]);
    let draws = (0..4000).filter(|&position| Noise::new(3, position).xtc() < 0.25).count();
    assert!(draws.abs_diff(1000) < 120, "{draws}");
}

#[test]
fn ties_go_to_the_lowest_id() {
    let logits = [1.0, 5.0, 0.0, 5.0, 5.0];
    assert_eq!(pick(&Sampling::default(), &[], &logits), 1);
    let two = Sampling { temperature: 1.0, top_k: 2, ..Sampling::default() };
    assert_eq!(survivors(&two, &[], &logits).iter().map(|s| s.0).collect::<Vec<_>>(), [1, 3]);
    let logprob = logprobs::logprobs(&logits, 5.0, 2, 4);
    assert_eq!(logprob.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 3, 4, 0]);
}

#[test]
fn odd_logits_are_an_error_or_a_choice_and_never_a_panic() {
    let check = |logits: &[f32], expected: Result<TokenId, SampleError>| {
        let extreme = [0.0, 1e-40, 1e-6, 1.0, f32::MAX]
            .map(|temperature| Sampling { temperature, ..Sampling::default() });
        for sampling in extreme {
            for (top_k, top_p, min_p) in [(0, 1.0, 0.0), (1, 1.0, 0.0), (usize::MAX, 1e-9, 1.0)] {
                let sampling = Sampling { top_k, top_p, min_p, ..sampling.clone() };
                let draw = Draw {
                    sampling: &sampling,
                    history: &[],
                    n_prompt: 0,
                    constraint: None,
                    logprobs: Some(3),
                };
                let found = Sampler::default().pick(draw, logits).map(|(token, _)| token);
                assert_eq!(found, expected, "{logits:?} {sampling:?}");
            }
        }
    };
    let never = f32::NEG_INFINITY;
    check(&[0.0, f32::NAN, 1.0], Err(SampleError::NotANumber));
    check(&[0.0, f32::INFINITY], Err(SampleError::NotANumber));
    check(&[never, never], Err(SampleError::NothingAllowed));
    check(&[], Err(SampleError::NothingAllowed));
    check(&[never, -3.0, never], Ok(1));
    check(&[never, f32::MIN], Ok(1));
}

/// Every row of a batch keeps its own settings, mask and seed, whoever joins or leaves (B01).
#[test]
fn rows_do_not_borrow_from_each_other() {
    struct OnlyZero;
    impl Constraint for OnlyZero {
        fn mask(&mut self, logits: &mut [f32]) {
            logits[1..].fill(f32::NEG_INFINITY);
        }
        fn push(&mut self, _: TokenId) {}
    }

    let greedy = Sampling::default();
    let warm = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let rows = [
        ("A", greedy.clone(), 0..6),
        ("B", Sampling { top_k: 1, ..warm(0) }, 0..40),
        ("C", Sampling { logit_bias: vec![(3, -100.0)], ..greedy.clone() }, 2..40),
        ("D", greedy, 2..30),
        ("E", warm(11), 6..26),
        ("F", warm(11), 6..26),
        ("G", warm(12), 6..26),
    ];
    let logits = [0.0, 1.0, 2.0, 3.0];
    let step =
        |sampler: &mut Sampler, name: &str, sampling: &Sampling, history: &mut Vec<TokenId>| {
            let mut only_zero = OnlyZero;
            let constraint =
                (name == "D").then_some(&mut only_zero as &mut (dyn Constraint + 'static));
            let draw = Draw { sampling, history, n_prompt: 0, constraint, logprobs: None };
            let token = sampler.pick(draw, &logits).unwrap().0;
            history.push(token);
        };
    let mut shared = Sampler::default();
    let mut together = vec![Vec::new(); rows.len()];
    for now in 0..40 {
        for ((name, sampling, steps), history) in rows.iter().zip(&mut together) {
            if steps.contains(&now) {
                step(&mut shared, name, sampling, history);
            }
        }
    }
    for ((name, sampling, steps), together) in rows.iter().zip(&together) {
        let mut alone = Vec::new();
        let mut sampler = Sampler::default();
        steps.clone().for_each(|_| step(&mut sampler, name, sampling, &mut alone));
        assert_eq!(together, &alone, "{name}");
    }
    for (row, token) in [(0, 3), (1, 3), (2, 2), (3, 0)] {
        assert!(together[row].iter().all(|t| *t == token), "{}: {:?}", rows[row].0, together[row]);
    }
    assert_eq!(together[4].len(), 20);
    assert_eq!(together[4], together[5]);
    assert_ne!(together[4], together[6]);
}

proptest! {
    #[test]
    fn the_lowest_id_of_the_largest_logit_is_found(
        logits in prop::collection::vec(prop::sample::select(vec![-1.0f32, 0.0, -0.0, 1.5, 2.0, f32::NEG_INFINITY]), 1..5000),
    ) {
        let mut want = None;
        for (id, logit) in logits.iter().enumerate() {
            if *logit > want.map_or(f32::NEG_INFINITY, |(_, best)| best) {
                want = Some((id as TokenId, *logit));
            }
        }
        let want = want.map(|(id, _)| id).ok_or(SampleError::NothingAllowed);
        prop_assert_eq!(argmax(&logits), want);
    }
}
