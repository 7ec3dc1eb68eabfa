//! Who is served when, how answers end, and what accidents and departures leave behind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use hearth_engine::{
    Answer, Engine, Failure, Miss, Refused, Sampling, StopReason, Suppressed, Usage,
};

fn prompt(n: usize, salt: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 5 + i / 7 + salt) % VOCAB as u32).collect()
}

fn submit_greedy(engine: &mut Engine, n_prompt: usize, max_tokens: usize, salt: u32) -> Answer {
    submit(engine, &Ask::greedy(&prompt(n_prompt, salt), max_tokens))
}

fn reason(outcome: &Outcome) -> Option<StopReason> {
    outcome.said().2
}

#[test]
fn a_long_prompt_holds_up_nobody() {
    let mut engine = engine(Toy::new(300), limits(64, 8, 8000));
    let streams: Vec<_> = (0..3).map(|i| submit_greedy(&mut engine, 4, 200, i)).collect();
    engine.step();
    let long = submit_greedy(&mut engine, 6000, 1, 3);
    engine.step();
    let short = submit_greedy(&mut engine, 20, 1, 4);
    let before = engine.stats().totals;
    engine.step();
    // The short one is done in the pass it came in with, and the streams went on.
    assert_eq!(engine.stats().totals.done - before.done, 1);
    assert_eq!(engine.stats().totals.generated_tokens - before.generated_tokens, 4);
    for _ in 0..90 {
        let before = engine.stats().totals;
        engine.step();
        let after = engine.stats().totals;
        assert_eq!(after.generated_tokens - before.generated_tokens, 3, "a token per stream");
        assert_eq!(after.rows - before.rows, 64, "the long prompt has all the rest");
    }
    run(&mut engine);
    let long = outcome(long);
    assert!(long.progress.is_sorted() && long.progress.ends_with(&[6000]));
    for answer in streams.into_iter().chain([short]) {
        assert_eq!(reason(&outcome(answer)), Some(StopReason::Length));
    }
}

/// Answers that may be long run together as long as they are not, and all end when they are.
#[test]
fn what_a_request_allows_does_not_keep_others_out() {
    let context = 1000;
    let mut engine = engine(Toy::new(40), limits(256, 8, context));
    let asks: Vec<_> = (0..6).map(|i| Ask::greedy(&prompt(30, i), usize::MAX)).collect();
    let answers: Vec<_> = asks.iter().map(|ask| submit(&mut engine, ask)).collect();
    engine.step();
    assert_eq!((engine.stats().running, engine.stats().waiting), (4, 2));
    run(&mut engine);
    for (ask, answer) in asks.iter().zip(answers) {
        let found = outcome(answer);
        assert_eq!(reason(&found), Some(StopReason::Context));
        assert_eq!(found.tokens.len() + 30, context);
        assert_eq!(found.said(), alone(ask, 40, context).said());
    }
}

#[test]
fn answers_end_where_they_should() {
    let ask = Ask::greedy(&prompt(60, 0), 32);
    let all = alone(&ask, 8, 4096);
    assert_eq!((all.tokens.len(), reason(&all)), (32, Some(StopReason::Length)));

    // Prompt and answer fill the context, no more (V12).
    let cut = alone(&ask, 8, 64);
    assert_eq!((&cut.tokens[..], reason(&cut)), (&all.tokens[..4], Some(StopReason::Context)));
    // So they do where the cache is smaller than that; the last token needs no room there.
    let cut = alone(&ask, 2, 4096);
    assert_eq!((&cut.tokens[..], reason(&cut)), (&all.tokens[..5], Some(StopReason::Context)));

    let stop = all.tokens[5];
    let first = all.tokens.iter().position(|token| *token == stop).unwrap();
    let stopped = alone(&Ask { stop_tokens: vec![stop], ..ask.clone() }, 8, 4096);
    assert_eq!(stopped.tokens, all.tokens[..first], "the stop token is not sent");
    assert_eq!(reason(&stopped), Some(StopReason::StopToken(stop)));
    let End::Done(_, usage) = stopped.end else { panic!("not done") };
    assert_eq!(usage.completion_tokens, first + 1, "but counted");

    // The last token that is allowed may be the one that stops.
    let both = Ask { stop_tokens: vec![stop], max_tokens: first + 1, ..ask.clone() };
    assert_eq!(reason(&alone(&both, 8, 4096)), Some(StopReason::StopToken(stop)));

    let nothing = alone(&Ask { max_tokens: 0, ..ask }, 8, 4096);
    assert_eq!((nothing.tokens.len(), reason(&nothing)), (0, Some(StopReason::Length)));
    assert_eq!(nothing.progress, [60]);
}

#[test]
fn usage_counts_tokens_and_time() {
    let (now, clock) = clock();
    let mut engine = Engine::new(Box::new(Toy::new(16)), limits(32, 1, 4096), clock);
    let answers = [0, 0].map(|salt| submit_greedy(&mut engine, 70, 5, salt));
    while !engine.is_idle() {
        now.fetch_add(10, Ordering::Relaxed);
        engine.step();
    }
    let usage = |queue_ms, prefill_ms, cached_tokens, miss| Usage {
        prompt_tokens: 70,
        cached_tokens,
        disk_tokens: 0,
        miss,
        completion_tokens: 5,
        queue_ms,
        prefill_ms,
        decode_ms: 40.0,
    };
    // Three passes for the first prompt, one for what is left of the second, four more each.
    let ends = answers.map(|answer| outcome(answer).end);
    assert_eq!(ends[0], End::Done(StopReason::Length, usage(10.0, 20.0, 0, Some(Miss::Cold))));
    assert_eq!(ends[1], End::Done(StopReason::Length, usage(80.0, 0.0, 69, None)));
    let totals = engine.stats().totals;
    assert_eq!((totals.prompt_tokens, totals.cached_tokens, totals.rows), (140, 69, 79));
}

/// Too little in common to wait for, and being computed by another one at this moment: so it says.
#[test]
fn a_miss_says_that_another_one_is_at_it() {
    let mut engine = engine(Toy::new(16), limits(64, 2, 4096));
    let ask = |salt| Ask::greedy(&[prompt(40, 0), prompt(20, salt)].concat(), 1);
    let answers = [1, 2].map(|salt| submit(&mut engine, &ask(salt)));
    run(&mut engine);
    let misses = answers.map(|answer| match outcome(answer).end {
        End::Done(_, usage) => usage.miss,
        end => panic!("{end:?}"),
    });
    assert_eq!(misses, [Some(Miss::Cold), Some(Miss::InProgress { block: 0 })]);
    assert_eq!(engine.stats().totals.misses.in_progress, 1);
}

#[test]
fn many_with_one_beginning_compute_it_once() {
    let mut engine = engine(Toy::new(400), limits(512, 16, 4096));
    let with_tail = |i| [prompt(1500, 0), vec![i, 3, 1]].concat();
    let first = submit(&mut engine, &Ask::greedy(&with_tail(0), 1));
    run(&mut engine);
    assert_eq!(outcome(first).cached, Some(0));
    let cold = engine.stats().totals.rows;
    let answers: Vec<_> =
        (1..16).map(|i| submit(&mut engine, &Ask::greedy(&with_tail(i), 1))).collect();
    engine.step();
    assert!(engine.stats().blocks.held < 47 + 15 * 2, "the beginning is held once");
    run(&mut engine);
    // Each computes its last three tokens.
    assert_eq!(engine.stats().totals.rows, cold + 15 * 3);
    for (i, answer) in (1..16).zip(answers) {
        assert_eq!(outcome(answer).said(), alone(&Ask::greedy(&with_tail(i), 1), 400, 4096).said());
    }
}

/// Two whose answers outgrow what was expected: the older one parks the younger in the pass in which it
/// ends, after which nobody runs, and whoever was parked comes in again.
#[test]
fn whoever_is_parked_in_the_last_pass_of_another_comes_back() {
    let mut engine = engine(Toy::new(18), limits(64, 2, 4096));
    // Nine blocks each, and the tenth for the last row of the older one.
    let asks = [Ask::greedy(&prompt(30, 1), 260), Ask::greedy(&prompt(30, 2), 290)];
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    run(&mut engine);
    for (ask, answer) in asks.iter().zip(answers) {
        assert_eq!(outcome(answer).said(), alone(ask, 18, 4096).said());
    }
    assert_eq!(engine.stats().totals.preemptions, 1);
}

/// Whenever somebody leaves, the others are served as if nobody had (B03).
#[test]
fn who_leaves_frees_everything_at_once() {
    let mut engine = engine(Toy::new(24), limits(48, 2, 4096));
    let mut random = 1u64;
    let mut next = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (random >> 33) % n
    };
    for round in 0..100 {
        let ghosts = [0, 1].map(|i| submit_greedy(&mut engine, 100, 12, round + i * 50));
        let mut ghosts = ghosts.map(Some);
        for ghost in &mut ghosts {
            for _ in 0..next(12) {
                engine.step();
            }
            *ghost = None;
        }
        let rows = engine.stats().totals.rows;
        engine.step();
        assert_eq!(engine.stats().running + engine.stats().waiting, 0);
        assert_eq!(engine.stats().totals.rows, rows, "no row for who has left");
        let asks = [0, 1].map(|i| Ask::greedy(&prompt(40, round + i * 7), 6));
        let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
        run(&mut engine);
        for (ask, answer) in asks.iter().zip(answers) {
            assert_eq!(outcome(answer).said(), alone(ask, 24, 4096).said(), "round {round}");
        }
    }
    let totals = engine.stats().totals;
    assert_eq!((totals.failed, totals.done + totals.cancelled), (0, 400));
}

#[test]
fn a_device_that_fails_costs_what_was_running_and_nothing_else() {
    let toy = Toy::with_accident(24, 3, Accident::DeviceError);
    let mut engine = engine(toy, limits(64, 2, 4096));
    let asks = [0, 1, 2].map(|i| Ask::greedy(&prompt(50, i), 6));
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    run(&mut engine);
    let found = answers.map(outcome);
    for failed in &found[..2] {
        assert_eq!(failed.end, End::Failed(Failure::Device("the device failed: unplugged".into())));
    }
    assert_eq!(found[2].said(), alone(&asks[2], 24, 4096).said());
}

#[test]
fn logits_that_are_no_numbers_cost_one_request() {
    let toy = Toy::with_accident(24, 3, Accident::NotANumber);
    let mut engine = engine(toy, limits(512, 2, 4096));
    let asks = [0, 1].map(|i| Ask::greedy(&prompt(50, i), 6));
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    run(&mut engine);
    let found = answers.map(outcome);
    assert!(
        matches!(&found[0].end, End::Failed(Failure::Output(why)) if why.contains("not a number"))
    );
    assert_eq!(found[0].tokens, alone(&asks[0], 24, 4096).tokens[..2]);
    assert_eq!(found[1].said(), alone(&asks[1], 24, 4096).said());
}

#[test]
fn what_can_never_be_answered_is_refused() {
    let bounds = engine(Toy::new(4), limits(64, 2, 200)).bounds();
    let check = |ask: Ask, expected: Result<(), Refused>| {
        assert_eq!(bounds.check(&ask.request().0), expected, "{ask:?}");
    };
    let greedy = |n| Ask::greedy(&prompt(n, 0), 5);
    check(greedy(1), Ok(()));
    check(greedy(0), Err(Refused::Empty));
    check(greedy(128), Ok(()));
    check(greedy(129), Err(Refused::TooLarge { needs_blocks: 5, blocks: 4 }));
    check(greedy(200), Err(Refused::TooLong { prompt: 200, context: 200 }));
    check(Ask::greedy(&[1, 24], 5), Err(Refused::BadToken { id: 24, vocab: VOCAB }));
    let sampling = |sampling| Ask { sampling, ..greedy(1) };
    let off = Sampling::default;
    let bias = sampling(Sampling { logit_bias: vec![(99, 1.0)], ..off() });
    check(bias, Err(Refused::BadToken { id: 99, vocab: VOCAB }));
    for (suppressed, expected) in [
        (Suppressed { always: vec![3, 24], ..Suppressed::default() }, 24),
        (Suppressed { first: vec![25], ..Suppressed::default() }, 25),
        (Suppressed { sequences: vec![vec![1, 26]], ..Suppressed::default() }, 26),
    ] {
        let ask = sampling(Sampling { suppressed: Arc::new(suppressed), ..off() });
        check(ask, Err(Refused::BadToken { id: expected, vocab: VOCAB }));
    }
    for (bad, field) in [
        (Sampling { temperature: f32::NAN, ..off() }, "temperature"),
        (Sampling { temperature: -1.0, ..off() }, "temperature"),
        (Sampling { top_p: 0.0, ..off() }, "top_p"),
        (Sampling { min_p: 1.5, ..off() }, "min_p"),
        (Sampling { repetition_penalty: 0.0, ..off() }, "repetition_penalty"),
        (Sampling { presence_penalty: f32::INFINITY, ..off() }, "presence_penalty"),
        (Sampling { logit_bias: vec![(1, f32::NAN)], ..off() }, "logit_bias"),
    ] {
        let refused = bounds.check(&sampling(bad).request().0);
        assert!(matches!(refused, Err(Refused::OutOfRange { field: f, .. }) if f == field));
    }
    let many = Ask { logprobs: Some(21), ..greedy(1) };
    check(many, Err(Refused::OutOfRange { field: "logprobs", range: "at most 20" }));
}

/// A clock that stands until it is set, in milliseconds.
fn clock() -> (Arc<AtomicU64>, Box<dyn Fn() -> Duration + Send>) {
    let now = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&now);
    (now, Box::new(move || Duration::from_millis(read.load(Ordering::Relaxed))))
}

#[test]
fn time_limits_hold_in_the_queue_and_beyond() {
    let (now, clock) = clock();
    let mut engine = Engine::new(Box::new(Toy::new(16)), limits(32, 1, 4096), clock);
    let limited = |salt, ms| {
        let timeout = Some(Duration::from_millis(ms));
        Ask { timeout, ..Ask::greedy(&prompt(70, salt), 50) }
    };
    let asks = [limited(0, 40), limited(1, 40), limited(2, 10_000), limited(3, 39)];
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    for _ in 0..5 {
        now.fetch_add(10, Ordering::Relaxed);
        engine.step();
    }
    let totals = engine.stats().totals;
    assert_eq!((totals.run_timeouts, totals.queue_timeouts, totals.failed), (1, 2, 3));
    run(&mut engine);
    let [runs, waits, patient, brief] = answers.map(outcome);
    // Three passes for the prompt; the fourth would have come at 40 ms.
    assert_eq!((runs.tokens.len(), runs.cached), (1, Some(0)));
    assert_eq!((waits.tokens.len(), waits.cached), (0, None));
    for (late, ms) in [(runs, 40), (waits, 40), (brief, 39)] {
        let limit = Duration::from_millis(ms);
        assert_eq!(late.end, End::Failed(Failure::TimedOut { limit }));
    }
    assert_eq!(patient.said(), alone(&asks[2], 16, 4096).said());
}

#[test]
fn lower_priorities_are_served_earlier_and_equals_in_order() {
    let ranked = |salt, priority| Ask { priority, ..Ask::greedy(&prompt(10, salt), 2) };
    let asks = [ranked(0, 5), ranked(1, 0), ranked(2, 5), ranked(3, -1), ranked(4, 0)];
    let (now, clock) = clock();
    let mut engine = Engine::new(Box::new(Toy::new(16)), limits(32, 1, 4096), clock);
    let answers = asks.each_ref().map(|ask| submit(&mut engine, ask));
    while !engine.is_idle() {
        engine.step();
        now.fetch_add(1, Ordering::Relaxed);
    }
    let waited = answers.map(|answer| match outcome(answer).end {
        End::Done(_, usage) => usage.queue_ms,
        end => panic!("{end:?}"),
    });
    assert_eq!(waited, [6.0, 2.0, 8.0, 0.0, 4.0]);
}
