//! Every measure is within 2 % of what the script did. The truth is reckoned from the script, never from
//! what the lab wrote down.

use hearth_lab::measure::{Context, Measure};
use hearth_lab::record::{Channel, Costs, Machine, State, Target, Turn};
use hearth_lab::rng::Rng;

use crate::server::{Script, Words, run, warm};

#[track_caller]
fn check(values: &[(Measure, f64)], measure: Measure, truth: f64) {
    let found = values.iter().find(|value| value.0 == measure);
    let found = found.unwrap_or_else(|| panic!("{measure:?} is missing")).1;
    assert!((found - truth).abs() <= 0.02 * truth.abs(), "{measure:?}: {found}, truly {truth}");
}

fn of(turn: &Turn) -> Vec<(Measure, f64)> {
    turn.measures(&Context::default())
}

/// A stream with jitter: 300 ms to the first token, then about 20 ms for each of 200 more, in chunks of
/// `sizes` tokens in turn. With it, the true milliseconds between its chunks.
fn jittered(sizes: &[usize]) -> (Script, Vec<f64>) {
    let mut rng = Rng::new(11);
    let mut script = Script::default().raw(150_000, ": still there\n\n").event(
        50_000,
        &serde_json::json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
    );
    let mut gaps = Vec::new();
    let (mut left, mut turn) = (201, 0);
    while left > 0 {
        let tokens = sizes[turn % sizes.len()].min(left);
        let text = "word ".repeat(tokens);
        let each = |rng: &mut Rng| 20_000.0 * (1.0 + 0.3 * (rng.unit() - 0.5));
        let us = if turn == 0 { 100_000 } else { (0..tokens).map(|_| each(&mut rng) as u64).sum() };
        script = script.text(us, "content", &text);
        if turn > 0 {
            gaps.push(us as f64 / 1e3);
        }
        left -= tokens;
        turn += 1;
    }
    // The end comes late and belongs to nothing.
    (script.finish(400_000, "length").usage(300_000, 1000, 201, 0).done(500_000), gaps)
}

#[test]
fn one_token_per_chunk() {
    let (script, gaps) = jittered(&[1]);
    let turn = script.play(7_000_000, Some(&Words));
    let decoded: f64 = gaps.iter().sum::<f64>() / 1e3;
    let values = of(&turn);
    check(&values, Measure::TtftCold, 300.0);
    check(&values, Measure::PrefillTps, 1000.0 / 0.3);
    check(&values, Measure::DecodeTps, 200.0 / decoded);
    check(&values, Measure::Tpot, 1e3 * decoded / 200.0);
    check(&values, Measure::EndToEnd, 300.0 + 1e3 * decoded);
    assert_eq!(
        turn.ended_us - turn.asked_us,
        300_000 + (1e3 * gaps.iter().sum::<f64>()) as u64 + 1_200_000
    );

    let values = run(vec![turn]).measures(&Context::default(), |_| true);
    let mut sorted = gaps;
    sorted.sort_by(f64::total_cmp);
    check(&values, Measure::GapP50, (sorted[99] + sorted[100]) / 2.0);
    check(&values, Measure::GapP95, sorted[189]);
    check(&values, Measure::GapP99, sorted[197]);
    check(&values, Measure::GapMax, sorted[199]);
}

#[test]
fn several_tokens_per_chunk_with_and_without_a_tokenizer() {
    // The first chunk has one, four or five tokens: its tokens are not decoded in the time that follows.
    for (sizes, first) in [(&[1, 3, 5][..], 1.0), (&[4], 4.0), (&[5, 1], 5.0)] {
        for tokens in [None, Some(&Words as _)] {
            let (script, gaps) = jittered(sizes);
            let turn = script.play(0, tokens);
            let decoded: f64 = gaps.iter().sum::<f64>() / 1e3;
            check(&of(&turn), Measure::DecodeTps, (201.0 - first) / decoded);
        }
    }
}

#[test]
fn without_usage_the_tokenizer_counts() {
    let mut script = Script::default();
    for i in 0..101 {
        script = script.text(if i == 0 { 50_000 } else { 10_000 }, "content", "word word ");
    }
    let turn = script.finish(0, "length").play(0, Some(&Words));
    assert_eq!(turn.tokens().unwrap().0, 202);
    check(&of(&turn), Measure::DecodeTps, 200.0);
}

#[test]
fn thoughts_and_answers_are_apart() {
    let mut script = Script::default();
    for i in 0..50 {
        script = script.text(if i == 0 { 200_000 } else { 10_000 }, "reasoning_content", "hm ");
    }
    for _ in 0..30 {
        script = script.text(10_000, "content", "yes ");
    }
    let turn = script.finish(0, "stop").usage(0, 100, 80, 0).done(0).play(0, Some(&Words));
    assert_eq!((turn.counted.thoughts, turn.counted.answer), (Some(50), Some(30)));
    let answers = turn.arrivals.iter().filter(|arrival| arrival.1 == Channel::Answer).count();
    assert_eq!(answers, 30);
    let values = of(&turn);
    check(&values, Measure::TtftCold, 200.0);
    check(&values, Measure::FirstAnswer, 200.0 + 500.0);
    check(&values, Measure::DecodeTps, 100.0);
}

#[test]
fn cached_tokens_are_not_read_again() {
    let answer = |cached| {
        let script = Script::default().text(100_000, "content", "a ").text(20_000, "content", "b ");
        script.finish(0, "length").usage(0, 1040, 2, cached).done(0)
    };
    check(&of(&answer(40).play(0, None)), Measure::PrefillTps, 1000.0 / 0.1);
    let turn = warm(answer(1024).play(0, None));
    check(&of(&turn), Measure::TtftWarm, 100.0);
    assert!(of(&turn).iter().all(|value| value.0 != Measure::PrefillTps));
}

#[test]
fn users_at_once() {
    // Three users, asking at 0, 0.1 and 0.2 s: the first token after 0.5, 0.6 and 0.7 s, then 49 more
    // every 20, 40 and 50 ms.
    let user = |at: u64, ttft: u64, gap: u64| {
        let mut script = Script::default().text(ttft, "content", "a ");
        for _ in 0..49 {
            script = script.text(gap, "content", "b ");
        }
        script.finish(0, "length").usage(0, 64, 50, 0).done(0).play(at, None)
    };
    let turns = vec![
        user(0, 500_000, 20_000),
        user(100_000, 600_000, 40_000),
        user(200_000, 700_000, 50_000),
    ];
    let target = Target { ttft_ms: 650.0, tpot_ms: 45.0 };
    let mut all = run(turns);
    (all.before, all.after) = (State::default(), State::default());
    all.before.joules = Some(1000.0);
    all.after.joules = Some(1030.0);
    let values = all.measures(&Context { target, ..Context::default() }, |_| true);
    let last = 0.2 + 0.7 + 49.0 * 0.05;
    check(&values, Measure::Aggregate, 150.0 / last);
    check(&values, Measure::PerUser, 25.0);
    check(&values, Measure::Goodput, 2.0 / last);
    check(&values, Measure::TtftP95, 690.0);
    check(&values, Measure::Energy, 30.0 / 150.0);
    assert!(values.iter().all(|value| value.0 != Measure::Roofline));
}

#[test]
fn shares_of_what_the_machine_can_do() {
    let mut script = Script::default().text(500_000, "content", "a ");
    for _ in 0..100 {
        script = script.text(10_000, "content", "b ");
    }
    let turn = script.finish(0, "length").usage(0, 1000, 101, 0).done(0).play(0, None);
    let costs = Costs { weight_bytes: 90e6, kv_bytes: 46_080.0, prompt_macs: 1e8 };
    let machine = Machine { bandwidth: Some(20e9), int8_macs: Some(400e9), ..Machine::default() };
    let context = Context { costs: Some(costs), machine: Some(&machine), ..Context::default() };
    let values = turn.measures(&context);
    // 100 tokens a second, each reading the weights and, on average, 1050 positions.
    check(&values, Measure::Roofline, 100.0 * 100.0 * (90e6 + 46_080.0 * 1050.0) / 20e9);
    check(&values, Measure::Arithmetic, 100.0 * 2000.0 * 1e8 / 400e9);
}

#[test]
fn drafts_that_were_right() {
    let usage = serde_json::json!({"prompt_tokens": 9, "completion_tokens": 2});
    let timings = serde_json::json!({"draft_n": 50, "draft_n_accepted": 35});
    let script =
        Script::default().text(1000, "content", "a ").text(1000, "content", "b ").finish(0, "stop");
    let script =
        script.event(0, &serde_json::json!({"choices": [], "usage": usage, "timings": timings}));
    check(&of(&script.done(0).play(0, None)), Measure::Accepted, 70.0);
}
