//! What servers do wrong, or say wrong: all of it is noticed.

use hearth_lab::flag::Flag;
use hearth_lab::measure::Context;
use hearth_lab::record::{Costs, Machine, State, Trouble, Turn};

use crate::server::{Script, Words, run, warm};

/// 20 tokens of one word each, the first after `ttft`, the others every 10 ms.
fn answer(ttft: u64) -> Script {
    let mut script = Script::default().text(ttft, "content", "a ");
    for _ in 0..19 {
        script = script.text(10_000, "content", "b ");
    }
    script.finish(0, "length")
}

fn flags(turn: &Turn) -> Vec<String> {
    turn.flags(&Context::default(), None).iter().map(Flag::name).collect()
}

#[test]
fn a_sound_answer_has_no_flags() {
    let turn = answer(100_000).usage(0, 300, 20, 0).done(0).play(0, Some(&Words));
    let turn = Turn { wanted: Some(300), max_tokens: 20, ..turn };
    assert_eq!(flags(&turn), [""; 0]);
}

#[test]
fn usage_that_is_missing_or_wrong() {
    assert_eq!(flags(&answer(1000).done(0).play(0, Some(&Words))), ["no_usage"]);
    assert_eq!(flags(&answer(1000).done(0).play(0, None)), ["no_usage", "no_count"]);
    let wrong = answer(1000).usage(0, 9, 40, 0).done(0).play(0, Some(&Words));
    assert_eq!(flags(&wrong), ["counts_differ"]);
    assert_eq!(wrong.tokens().unwrap().0, 20);
    assert_eq!(flags(&answer(1000).usage(0, 9, 20, 10).done(0).play(0, None)), ["cached_too_many"]);
}

#[test]
fn a_cold_prompt_with_cached_tokens_is_worthless() {
    let turn = answer(1000).usage(0, 1000, 20, 512).done(0).play(0, None);
    let found = turn.flags(&Context::default(), None);
    assert_eq!(found, [Flag::ColdHit { cached: 512 }]);
    assert!(found[0].is_fatal());
    // The beginning of the template is everybody's.
    let turn = answer(1000).usage(0, 1000, 20, 30).done(0).play(0, None);
    assert_eq!(turn.flags(&Context::default(), Some(32)), []);
    assert_eq!(turn.flags(&Context::default(), Some(20)), [Flag::ColdHit { cached: 30 }]);
    assert_eq!(flags(&warm(answer(1000).usage(0, 1000, 20, 512).done(0).play(0, None))), [""; 0]);
}

#[test]
fn a_prompt_read_faster_than_the_machine_can_is_not_believed() {
    let costs = Costs { weight_bytes: 1e8, kv_bytes: 0.0, prompt_macs: 1e8 };
    let machine = Machine { int8_macs: Some(400e9), ..Machine::default() };
    let context = Context { costs: Some(costs), machine: Some(&machine), ..Context::default() };
    // The machine computes 4000 tokens of prompt a second at most. It says it cached none.
    let cold =
        |ttft| answer(ttft).usage(0, 2000, 20, 0).done(0).play(0, None).flags(&context, None);
    let [Flag::ImpossiblePrefill { tps, limit }] = cold(100_000)[..] else { panic!("not flagged") };
    assert_eq!((tps.round(), limit.round()), (20_000.0, 4000.0));
    assert_eq!(cold(600_000), []);
    // A peak that was measured while others worked is no measure of anything.
    let machine = Machine { foreign: Some(1.7), ..machine };
    let context = Context { costs: Some(costs), machine: Some(&machine), ..Context::default() };
    let turn = answer(100_000).usage(0, 2000, 20, 0).done(0).play(0, None);
    assert_eq!(turn.flags(&context, None), []);
}

#[test]
fn a_cache_that_is_kept_secret() {
    let cold = answer(1_000_000).usage(0, 1000, 20, 0).done(0).play(0, None);
    let next = |ttft, cached| warm(answer(ttft).usage(0, 1100, 20, cached).done(0).play(0, None));
    let found = |turn| {
        let (each, _) = run(vec![cold.clone(), turn]).flags(&Context::default(), None);
        each[1].iter().map(Flag::name).collect::<Vec<_>>()
    };
    assert_eq!(found(next(100_000, 0)), ["silent_hit"]);
    assert_eq!(found(next(100_000, 1000)), [""; 0]);
    assert_eq!(found(next(1_050_000, 0)), [""; 0]);
}

#[test]
fn errors_are_kept_with_what_came_before() {
    let trouble = |turn: &Turn| turn.error.clone().unwrap();
    let refused = Script { status: Some(503), ..Script::default() }
        .raw(2000, r#"{"error": {"message": "queue is full"}}"#)
        .play(0, None);
    assert_eq!(
        trouble(&refused),
        Trouble::Refused { status: 503, why: "queue is full".to_owned() }
    );

    let half = || Script::default().text(5000, "content", "a ").text(5000, "content", "b ");
    let failed = half().event(1000, &serde_json::json!({"error": {"message": "out of memory"}}));
    let failed = failed.done(0).play(0, None);
    assert_eq!(trouble(&failed), Trouble::Failed { why: "out of memory".to_owned() });
    assert_eq!((failed.arrivals.len(), failed.answer.as_str()), (2, "a b "));

    for script in [half().broken(1000), half()] {
        let cut = script.play(0, None);
        assert!(matches!(trouble(&cut), Trouble::Cut { .. }));
        assert_eq!(cut.arrivals.len(), 2);
        assert_eq!(flags(&cut), ["failed"]);
        assert_eq!(cut.measures(&Context::default()), []);
    }
    let garbled = half().raw(0, "data: <html>oops</html>\n\n").play(0, None);
    assert_eq!(trouble(&garbled), Trouble::Garbled { why: "<html>oops</html>".to_owned() });
    // A reason to finish is an end, even without the last word.
    assert_eq!(half().finish(0, "stop").play(0, None).error, None);
}

#[test]
fn answers_and_prompts_of_the_wrong_length() {
    let turn = || answer(1000).usage(0, 300, 20, 0).done(0).play(0, None);
    assert_eq!(flags(&Turn { max_tokens: 128, ..turn() }), ["short_answer"]);
    assert_eq!(flags(&Turn { wanted: Some(512), ..turn() }), ["prompt_length"]);
    assert_eq!(flags(&Turn { wanted: Some(301), ..turn() }), [""; 0]);
}

#[test]
fn several_tokens_at_once_are_said() {
    let mut script = Script::default();
    for _ in 0..10 {
        script = script.text(10_000, "content", "a b c ");
    }
    let turn = script.finish(0, "length").usage(0, 9, 30, 0).done(0).play(0, None);
    assert_eq!(turn.flags(&Context::default(), None), [Flag::Bundles { tokens: 3.0 }]);
}

#[test]
fn a_busy_or_a_hot_machine_is_said() {
    let mut all = run(vec![answer(1000).usage(0, 9, 20, 0).done(0).play(0, None)]);
    assert_eq!(all.flags(&Context::default(), None).1, []);
    all.before = State { foreign: Some(0.8), mhz: Some(4000.0), ..State::default() };
    all.after = State { mhz: Some(3000.0), ..State::default() };
    let expected = [Flag::Busy { processors: 0.8 }, Flag::Throttled { percent: 75.0 }];
    assert_eq!(all.flags(&Context::default(), None).1, expected);
}

#[test]
fn whoever_is_asked_to_stop_stops() {
    use hearth_lab::client::{Reply, Session, Transport};
    struct Endless;
    impl Transport for Endless {
        fn post(&mut self, _: &str, _: &str) -> Result<Reply, String> {
            Ok(Reply { status: 200, body: Box::new(std::io::repeat(b'\n')) })
        }
    }
    let clock = crate::server::Virtual::default();
    let mut session =
        Session { transport: Box::new(Endless), clock: &clock, tokens: None, stopped: &|| true };
    assert_eq!(session.ask("", "").error, Some(Trouble::Interrupted));
}
