//! The engine's promise: nothing but the request decides what an answer says.
//!
//! On toy models, one of them with recurrent states, whose logits hash what a row can see; real models have their own test.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use hearth_engine::{Answer, Failure, Limits, Sampling, Suppressed, Xtc};
use proptest::prelude::*;

/// What happens to an engine, in order.
#[derive(Clone, Debug)]
enum Happening {
    Arrival(Box<Ask>),
    /// Whoever listens to the arrival of this number, counting round, leaves.
    Departure(usize),
    Steps(usize),
}

fn prompts() -> impl Strategy<Value = Vec<u32>> {
    // Few distinct beginnings of whole and broken blocks, so that prefixes are shared.
    let starts = (0..3u32, prop::sample::select(vec![0usize, 5, 32, 40, 64, 96]));
    (starts, prop::collection::vec(0..VOCAB as u32, 1..45)).prop_map(|((salt, n), tail)| {
        let start = (0..n as u32).map(|i| (i * 7 + i / 5 + salt) % VOCAB as u32);
        start.chain(tail).collect()
    })
}

fn samplings() -> impl Strategy<Value = Sampling> {
    let warm = |seed| Sampling { temperature: 0.8, seed, ..Sampling::default() };
    let xtc = Some(Xtc { probability: 0.5, threshold: 0.1 });
    prop_oneof![
        Just(Sampling::default()),
        (0..4u64).prop_map(warm),
        (0..4u64).prop_map(move |seed| Sampling {
            top_k: 9,
            top_p: 0.9,
            min_p: 0.02,
            xtc,
            ..warm(seed)
        }),
        (0..4u64).prop_map(move |seed| Sampling {
            repetition_penalty: 1.2,
            repetition_window: Some(20),
            presence_penalty: 0.3,
            frequency_penalty: 0.2,
            logit_bias: vec![(3, -2.0), (5, 1.0)],
            ..warm(seed)
        }),
        (0..4u64, 0..2).prop_map(move |(seed, greedy)| Sampling {
            temperature: if greedy == 0 { 0.0 } else { 0.8 },
            suppressed: Arc::new(Suppressed {
                // Nothing that the grammar of small steps forces, since that ends an answer.
                always: vec![3, 22],
                first: vec![4, 5],
                sequences: vec![vec![3, 4], vec![10, 11, 12]],
            }),
            ..warm(seed)
        }),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    let stops = prop::collection::vec(0..VOCAB as u32, 0..2);
    let logprobs = prop::option::of(0..4usize);
    let steps = prop::option::weighted(0.2, Just(SmallSteps::new(0)));
    let max_tokens = prop_oneof![3 => 0..80usize, 1 => Just(100_000)];
    let timeout = prop::option::weighted(0.1, (0..60u64).prop_map(Duration::from_millis));
    let marks = prop::collection::vec(0..140usize, 0..3);
    let order = (-1..2i32, timeout, 0..100usize, marks);
    (prompts(), max_tokens, samplings(), stops, (logprobs, steps), order).prop_map(
        |(prompt, max_tokens, sampling, stop_tokens, (logprobs, small_steps), order)| Ask {
            prompt,
            max_tokens,
            sampling,
            stop_tokens,
            logprobs,
            small_steps,
            priority: order.0,
            timeout: order.1,
            pin: order.2,
            marks: order.3,
        },
    )
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        4 => asks().prop_map(|ask| Happening::Arrival(Box::new(ask))),
        1 => (0..20usize).prop_map(Happening::Departure),
        3 => (1..12usize).prop_map(Happening::Steps),
    ];
    prop::collection::vec(one, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_that_of_the_request_alone(
        happenings in happenings(),
        rows in prop::sample::select(vec![1usize, 3, 8, 31, 64, 512]),
        seqs in 1..9usize,
        n_blocks in prop::sample::select(vec![5usize, 7, 12, 40]),
        stall in prop::option::of(0..5000u64),
        // Beyond the two of each sequence. `None`: a model without states.
        more_slots in prop::option::of(prop::sample::select(vec![0usize, 1, 3, 30])),
    ) {
        let toy = || match more_slots {
            None => Toy::new(n_blocks),
            Some(more) => Toy::hybrid(n_blocks, 2 * seqs + more),
        };
        let context = 230;
        let limits = Limits { stall_target: stall.map(Duration::from_micros), ..limits(rows, seqs, context) };
        let (mut engine, now) = Timed::of(toy(), limits);
        let mut listeners: Vec<(Ask, Option<Answer>)> = Vec::new();
        for happening in happenings {
            match happening {
                Happening::Arrival(ask) => {
                    let at = Duration::from_micros(now.load(Ordering::Relaxed));
                    let answer = submit_at(&mut engine, &ask, at);
                    listeners.push((*ask, Some(answer)));
                }
                Happening::Departure(_) if listeners.is_empty() => {}
                Happening::Departure(which) => {
                    let which = which % listeners.len();
                    listeners[which].1 = None;
                }
                Happening::Steps(n) => for _ in 0..n {
                    engine.step();
                    prop_assert_eq!(engine.faults(), None);
                },
            }
        }
        run(&mut engine);
        let stats = engine.stats();
        prop_assert_eq!((stats.running, stats.waiting, stats.parked), (0, 0, 0));
        let totals = stats.totals;
        prop_assert_eq!(totals.done + totals.cancelled + totals.failed, listeners.len() as u64);
        prop_assert_eq!(totals.failed, totals.queue_timeouts + totals.run_timeouts);
        prop_assert_eq!(totals.rows, totals.prompt_rows + totals.answer_rows);
        for (ask, answer) in listeners {
            let Some(answer) = answer else { continue };
            let found = outcome(answer);
            let timed_out = matches!(found.end, End::Failed(Failure::TimedOut { .. }));
            let expected = alone_on(toy(), &Ask { timeout: None, ..ask.clone() }, context);
            if timed_out && ask.timeout.is_some() {
                let n = found.tokens.len();
                prop_assert_eq!(&found.tokens, &expected.tokens[..n]);
                prop_assert_eq!(&found.logprobs, &expected.logprobs[..n]);
            } else {
                prop_assert_eq!(found.said(), expected.said(), "{:?}", ask);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Tokens that are taken without a pass are those that the passes would have chosen.
    #[test]
    fn what_is_forced_is_what_would_be_chosen(
        mut ask in asks(),
        last in 0..VOCAB as u32,
        hybrid: bool,
        suppressed: bool,
    ) {
        if suppressed {
            let (always, sequences) = (vec![2, 8], vec![vec![12, 13]]);
            let suppressed = Suppressed { always, sequences, ..Suppressed::default() };
            ask.sampling.suppressed = Arc::new(suppressed);
        }
        let toy = || if hybrid { Toy::hybrid(12, 4) } else { Toy::new(12) };
        let with = |says| {
            let small_steps = Some(SmallSteps { last, says });
            alone_on(toy(), &Ask { small_steps, logprobs: None, timeout: None, ..ask.clone() }, 230)
        };
        let (forced, plain) = (with(Says::Forced), with(Says::Nothing));
        prop_assert_eq!(forced.said(), plain.said());
        let scored = Some(SmallSteps::new(last));
        let scored = Ask { small_steps: scored, logprobs: Some(1), timeout: None, ..ask.clone() };
        let scored = alone_on(toy(), &scored, 230);
        prop_assert_eq!(&scored.tokens, &plain.tokens);
        prop_assert!(scored.logprobs.iter().all(Option::is_some));
    }
}
