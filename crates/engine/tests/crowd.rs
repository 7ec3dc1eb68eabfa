//! Many at once: time per pass, prompts with a common beginning, blocks that run out.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use hearth_engine::{Answer, Engine, Event, Limits, Miss, Sampling, StopReason, Usage};
use proptest::prelude::*;

fn prompt(n: usize, salt: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 5 + i / 7 + salt) % VOCAB as u32).collect()
}

fn usage(answer: Answer) -> Usage {
    match outcome(answer).end {
        End::Done(_, usage) => usage,
        end => panic!("{end:?}"),
    }
}

/// Four answers flow while a prompt of 6,000 tokens comes in, and then one of 20.
#[test]
fn passes_keep_to_the_stall_target() {
    let target = Duration::from_millis(8);
    let limits = Limits { stall_target: Some(target), ..limits(256, 8, 8000) };
    let (mut engine, now) = Timed::engine(400, limits);
    let step = |engine: &mut Engine| {
        let before = now.load(Ordering::Relaxed);
        engine.step();
        Duration::from_micros(now.load(Ordering::Relaxed) - before)
    };
    // With nobody to disturb, prompts come in large chunks.
    let first = submit(&mut engine, &Ask::greedy(&prompt(600, 9), 3000));
    assert!(step(&mut engine) > 2 * target);
    (0..5).for_each(|_| assert!(step(&mut engine) > Duration::ZERO));
    let mut streams: Vec<_> =
        (0..3).map(|i| submit(&mut engine, &Ask::greedy(&prompt(30, i), 3000))).collect();
    streams.push(first);
    (0..20).for_each(|_| assert!(step(&mut engine) < target));
    let long = submit(&mut engine, &Ask::greedy(&prompt(6000, 3), 1));
    step(&mut engine);
    let short = submit(&mut engine, &Ask::greedy(&prompt(20, 4), 1));
    let mut gaps = Vec::new();
    while engine.stats().totals.done < 2 {
        let before = engine.stats().totals;
        gaps.push(step(&mut engine));
        let after = engine.stats().totals;
        assert!(after.generated_tokens - before.generated_tokens >= 4, "every stream goes on");
        let ended = after.done - before.done;
        assert!(ended == 1 || after.rows - before.rows >= 20, "and so does the long prompt");
    }
    gaps.sort();
    assert!(gaps[gaps.len() - 1] <= target, "{gaps:?}");
    assert!(gaps[gaps.len() / 2] > target / 2, "no time is given away: {gaps:?}");
    let [long, short] = [long, short].map(usage);
    assert!(short.prefill_ms < 10.0 && long.prefill_ms > 300.0, "{short:?} {long:?}");
}

/// However slow the passes are, a prompt makes them a quarter longer.
#[test]
fn a_target_that_cannot_be_met_stops_nobody() {
    let limits = Limits { stall_target: Some(Duration::from_micros(1)), ..limits(256, 4, 4096) };
    let (mut engine, _) = Timed::engine(100, limits);
    let stream = submit(&mut engine, &Ask::greedy(&prompt(5, 0), 100));
    engine.step();
    let long = submit(&mut engine, &Ask::greedy(&prompt(1600, 1), 1));
    let before = engine.stats().totals;
    (0..10).for_each(|_| engine.step());
    let rows = engine.stats().totals.prompt_rows - before.prompt_rows;
    // A pass with one row takes 1,060 µs, so that is four rows or five.
    assert!((30..=60).contains(&rows), "{rows}");
    run(&mut engine);
    assert_eq!(engine.stats().totals.done, 2);
    assert_eq!(usage(stream).completion_tokens, 100);
    assert_eq!(usage(long).completion_tokens, 1);
}

/// Sixteen users with one system prompt of 1,500 tokens, all at once.
#[test]
fn a_beginning_that_many_share_is_computed_once() {
    let with_tail = |i| Ask::greedy(&[prompt(1500, 0), vec![i, 3, 1]].concat(), 4);
    let mut engine = engine(Toy::new(400), limits(256, 16, 4096));
    let answers: Vec<_> = (0..16).map(|i| submit(&mut engine, &with_tail(i))).collect();
    run(&mut engine);
    let totals = engine.stats().totals;
    // One user's, and the three tokens of each of the others.
    assert_eq!(totals.prompt_rows, 1503 + 15 * 3);
    assert_eq!(totals.cached_tokens, 16 * 1503 - totals.prompt_rows);
    assert_eq!(totals.prefix_hits, totals.cached_tokens);
    assert!(totals.prefix_waits >= 15);
    for (i, answer) in (0..16).zip(answers) {
        let found = outcome(answer);
        assert_eq!(found.said(), alone(&with_tail(i), 400, 4096).said());
        let End::Done(_, usage) = found.end else { panic!("not done") };
        assert_eq!(usage.cached_tokens > 0, i > 0);
        let expected = if i == 0 { Miss::Cold } else { Miss::Diverged { block: 46 } };
        assert_eq!(usage.miss, Some(expected));
    }
}

/// The one that computes for all leaves; another one goes on where it stopped.
#[test]
fn a_leader_that_leaves_costs_nothing() {
    for leaves_after in [1, 2, 3] {
        let mut engine = engine(Toy::new(400), limits(100, 8, 4096));
        let asks: Vec<_> =
            (0..5).map(|i| Ask::greedy(&[prompt(700, 0), vec![i]].concat(), 2)).collect();
        let mut answers: Vec<_> = asks.iter().map(|ask| Some(submit(&mut engine, ask))).collect();
        (0..leaves_after).for_each(|_| engine.step());
        answers[0] = None;
        run(&mut engine);
        let rows = engine.stats().totals.prompt_rows;
        assert!(rows <= 701 + 4, "{rows} rows, leaving after {leaves_after}");
        for (ask, answer) in asks.iter().zip(answers) {
            let Some(answer) = answer else { continue };
            assert_eq!(outcome(answer).said(), alone(ask, 400, 4096).said());
        }
    }
}

/// Whoever has computed nearly all of what it shares does not wait for the rest.
#[test]
fn nobody_waits_for_the_end_of_what_it_computed_itself() {
    let mut engine = engine(Toy::new(100), limits(64, 8, 4096));
    let with_tail = |n, salt| Ask::greedy(&[prompt(100, 0), prompt(n, salt)].concat(), 1);
    // The oldest never waits, so it is somebody else.
    let oldest = submit(&mut engine, &Ask::greedy(&prompt(2000, 7), 1));
    let first = submit(&mut engine, &with_tail(200, 3));
    (0..2).for_each(|_| engine.step());
    assert_eq!(engine.stats().totals.prompt_rows, 128);
    let second = submit(&mut engine, &with_tail(5, 11));
    engine.step();
    // The shorter one is done; nobody lost a pass to it.
    let totals = engine.stats().totals;
    assert_eq!((totals.done, totals.prefix_waits, totals.prompt_rows), (1, 0, 192));
    run(&mut engine);
    assert_eq!(outcome(oldest).cached, Some(0));
    assert_eq!(outcome(first).said(), alone(&with_tail(200, 3), 100, 4096).said());
    let second = outcome(second);
    assert_eq!(second.cached, Some(96));
    assert_eq!(second.said(), alone(&with_tail(5, 11), 100, 4096).said());
}

/// One prompt, and then answers of its own to each of `n` requests.
#[test]
fn choices_of_one_prompt_compute_it_once() {
    let mut engine = engine(Toy::new(100), limits(50, 8, 4096));
    let choice = |seed| Ask {
        sampling: Sampling { temperature: 0.9, seed, ..Sampling::default() },
        ..Ask::greedy(&prompt(333, 0), 20)
    };
    let answers: Vec<_> = (0..6).map(|seed| submit(&mut engine, &choice(seed))).collect();
    run(&mut engine);
    assert_eq!(engine.stats().totals.prompt_rows, 333 + 5);
    for (seed, answer) in (0..).zip(answers) {
        assert_eq!(outcome(answer).said(), alone(&choice(seed), 100, 4096).said());
    }
}

/// Runs `first`, then `second`. Returns how many tokens of the second were not computed again.
fn reused(first: &Ask, second: &Ask) -> usize {
    let mut engine = engine(Toy::new(16), limits(64, 1, 400));
    let before = submit(&mut engine, first);
    run(&mut engine);
    assert!(matches!(outcome(before).end, End::Done(..)));
    let answer = submit(&mut engine, second);
    run(&mut engine);
    let found = outcome(answer);
    assert_eq!(found.said(), alone(second, 16, 400).said());
    found.cached.unwrap()
}

/// An exact repeat computes one token and never none (K01).
#[test]
fn a_repeated_prompt_computes_one_token() {
    for n in [2, 31, 32, 33, 40, 64, 65] {
        let ask = Ask::greedy(&prompt(n, 0), 3);
        assert_eq!(reused(&ask, &ask), n - 1, "{n} tokens");
    }
}

/// As many tokens as the prompts have in common, wherever in a block that ends (K02).
#[test]
fn reuse_goes_as_far_as_prompts_are_equal() {
    for (cached, shared) in [(30, 21), (30, 30), (6, 5), (40, 27), (100, 33), (100, 100), (70, 64)]
    {
        let first = Ask::greedy(&prompt(cached, 0), 0);
        let other = (0..60).map(|i| (prompt(200, 0)[shared] + 1 + i % 5) % VOCAB as u32);
        let second: Vec<u32> = prompt(shared, 0).into_iter().chain(other).collect();
        assert_eq!(reused(&first, &Ask::greedy(&second, 4)), shared, "{shared} of {cached}");
    }
}

/// The next turn of a conversation goes on where the answer ended.
#[test]
fn a_next_turn_computes_what_is_new() {
    let first = Ask::greedy(&prompt(50, 0), 12);
    let answer = alone(&first, 16, 400).tokens;
    let next = [first.prompt.clone(), answer, vec![1, 2, 3]].concat();
    // The last token of the answer was chosen, and never run.
    assert_eq!(reused(&first, &Ask::greedy(&next, 2)), 50 + 11);
}

/// Nobody waits for a beginning that is hardly longer than what it has.
#[test]
fn short_beginnings_are_not_waited_for() {
    let mut engine = engine(Toy::new(40), limits(256, 8, 4096));
    let ask = Ask::greedy(&prompt(60, 0), 1);
    let answers = [(); 3].map(|()| submit(&mut engine, &ask));
    engine.step();
    let totals = engine.stats().totals;
    assert_eq!((totals.done, totals.prefix_waits, totals.prompt_rows), (3, 0, 180));
    let misses = answers.map(|answer| usage(answer).miss);
    assert_eq!(misses[0], Some(Miss::Cold));
}

/// Answers that grow beyond what was expected of them: the youngest is parked and says the same.
#[test]
fn when_blocks_run_out_the_youngest_is_parked() {
    let context = 700;
    let n_blocks = 22;
    let mut engine = engine(Toy::new(n_blocks), limits(64, 4, context));
    let asks: Vec<_> = (0..3)
        .map(|i| Ask { logprobs: Some(1), ..Ask::greedy(&prompt(20, i * 3), usize::MAX) })
        .collect();
    let mut answers: Vec<_> = asks.iter().map(|ask| submit(&mut engine, ask)).collect();
    let mut oldest = 0;
    let mut most_parked = 0;
    while !engine.is_idle() {
        engine.step();
        assert_eq!(engine.faults(), None);
        let stats = engine.stats();
        most_parked = most_parked.max(stats.parked);
        if stats.totals.done == 0 {
            oldest += 1;
            let tokens = answers[0].by_ref().filter(|event| matches!(event, Event::Token { .. }));
            assert_eq!(tokens.take(1).count(), 1, "the oldest goes on in pass {oldest}");
        }
    }
    let totals = engine.stats().totals;
    assert!(totals.preemptions >= 1 && totals.resumed == totals.preemptions, "{totals:?}");
    assert!(most_parked >= 1);
    assert_books_balance(&engine);
    for (ask, answer) in asks.iter().zip(answers).skip(1) {
        let found = outcome(answer);
        assert_eq!(found.said(), alone(ask, n_blocks, context).said());
        assert_eq!(found.said().2, Some(StopReason::Context));
    }
}

/// A request of lower priority is parked before one that came later.
#[test]
fn the_lowest_priority_is_parked_first() {
    let n_blocks = 22;
    let mut engine = engine(Toy::new(n_blocks), limits(64, 2, 700));
    let ask = |salt, priority| Ask { priority, ..Ask::greedy(&prompt(20, salt), 500) };
    let (low, high) = (ask(0, 1), ask(5, 0));
    let low_answer = submit(&mut engine, &low);
    (0..3).for_each(|_| engine.step());
    let high_answer = submit(&mut engine, &high);
    let high_steps = (0..)
        .find(|_| {
            engine.step();
            engine.stats().totals.done > 0
        })
        .unwrap();
    assert_eq!(high_steps, 499, "nothing held it up");
    run(&mut engine);
    assert!(engine.stats().totals.preemptions > 0);
    assert_eq!(outcome(low_answer).said(), alone(&low, n_blocks, 700).said());
    assert_eq!(outcome(high_answer).said(), alone(&high, n_blocks, 700).said());
}

/// A request of higher priority gets the place, or the blocks, of one of lower priority, which goes on
/// later and says the same.
#[test]
fn the_urgent_come_first_and_the_patient_go_on() {
    for (n_blocks, seqs) in [(100, 1), (22, 4)] {
        let mut engine = engine(Toy::new(n_blocks), limits(64, seqs, 700));
        let ask = |salt, priority| Ask { priority, ..Ask::greedy(&prompt(300, salt), 200) };
        let asks = [ask(0, 1), ask(5, 0), ask(9, 0)];
        let patient = submit(&mut engine, &asks[0]);
        (0..20).for_each(|_| engine.step());
        let urgent = submit(&mut engine, &asks[1]);
        engine.step();
        let stats = engine.stats();
        assert_eq!((stats.running, stats.parked, stats.totals.preemptions), (1, 1, 1));
        // Nobody makes way for an equal, and who made way goes on before who came later.
        let equal = submit(&mut engine, &asks[2]);
        let mut ended = Vec::new();
        while !engine.is_idle() {
            engine.step();
            assert_eq!(engine.faults(), None);
            let stats = engine.stats();
            if stats.totals.done > ended.len() as u64 {
                ended.push((stats.parked, stats.totals.resumed));
            }
        }
        assert_eq!(ended, [(1, 0), (0, 1), (0, 1)]);
        assert_eq!(engine.stats().totals.preemptions, 1);
        for (ask, answer) in asks.iter().zip([patient, urgent, equal]) {
            assert_eq!(outcome(answer).said(), alone(ask, n_blocks, 700).said());
        }
    }
}

/// Nobody is parked if that is not enough.
#[test]
fn nobody_makes_way_in_vain() {
    let n_blocks = 30;
    let mut engine = engine(Toy::new(n_blocks), limits(64, 4, 900));
    let ask = |n, salt, priority| Ask { priority, ..Ask::greedy(&prompt(n, salt), 100) };
    // 16 blocks, 8 blocks, and then one that needs 20.
    let asks = [ask(400, 0, 0), ask(150, 5, 1), ask(530, 9, 0)];
    let mut answers: Vec<_> = asks[..2].iter().map(|ask| submit(&mut engine, ask)).collect();
    (0..20).for_each(|_| engine.step());
    answers.push(submit(&mut engine, &asks[2]));
    engine.step();
    assert_eq!((engine.stats().running, engine.stats().totals.preemptions), (2, 0));
    run(&mut engine);
    assert_eq!(engine.stats().totals.preemptions, 0);
    for (ask, answer) in asks.iter().zip(answers) {
        assert_eq!(outcome(answer).said(), alone(ask, n_blocks, 900).said());
    }
}

/// Urgent requests without end: who made way for the first of them does not wait for the rest.
#[test]
fn who_made_way_once_is_not_starved() {
    let mut engine = engine(Toy::new(100), limits(64, 1, 700));
    let ask = |salt, priority| Ask { priority, ..Ask::greedy(&prompt(20, salt), 30) };
    let patient = submit(&mut engine, &ask(0, 7));
    (0..3).for_each(|_| engine.step());
    let mut urgent = Vec::new();
    for step in 0..90 {
        if step % 5 == 0 {
            urgent.push(submit(&mut engine, &ask(step, 0)));
        }
        engine.step();
    }
    // Thirty passes each, and one or two to go on.
    let ended = |answer: Answer| matches!(outcome(answer).end, End::Done(..));
    assert!(engine.stats().totals.done >= 2 && engine.stats().totals.resumed == 1);
    drop(urgent.split_off(1));
    engine.step();
    assert!(engine.is_idle() && ended(patient) && ended(urgent.remove(0)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever comes when, each makes way at most once for each priority above its own, and all of
    /// them get their answers.
    #[test]
    fn making_way_is_bounded(
        arrivals in prop::collection::vec((-2..3i32, 1..120usize, 1..25usize, 0..12usize), 1..24),
        seqs in 1..4usize,
    ) {
        let mut engine = engine(Toy::new(300), limits(48, seqs, 700));
        let mut asked = Vec::new();
        for (salt, (priority, n_prompt, max_tokens, steps)) in (0..).zip(arrivals) {
            let ask = Ask { priority, ..Ask::greedy(&prompt(n_prompt, salt), max_tokens) };
            asked.push((submit(&mut engine, &ask), ask));
            (0..steps).for_each(|_| engine.step());
        }
        run(&mut engine);
        let above = |own: i32| (-2..own).filter(|p| asked.iter().any(|(_, ask)| ask.priority == *p));
        let bound: usize = asked.iter().map(|(_, ask)| above(ask.priority).count()).sum();
        let totals = engine.stats().totals;
        prop_assert!(totals.preemptions <= bound as u64, "{} times, {}", totals.preemptions, bound);
        // Whoever had no row yet when it made way begins later, and does not go on.
        prop_assert!(totals.resumed <= totals.preemptions);
        prop_assert_eq!(totals.done, asked.len() as u64);
        for (answer, ask) in asked {
            let (found, expected) = (outcome(answer), alone(&ask, 300, 700));
            prop_assert_eq!(found.said(), expected.said());
        }
    }
}
