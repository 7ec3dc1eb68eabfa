//! Streams as real servers sent them, with the times at which a plain reader of sockets got them. What is
//! expected was found by another program, which reads the events line by line.

use hearth_lab::measure::{Context, Measure};
use hearth_lab::record::Usage;
use serde::Deserialize;

use crate::server::Script;

#[derive(Deserialize)]
struct Recording {
    pieces: Vec<(u64, String)>,
}

/// What the other program found.
struct Expected {
    answer: &'static str,
    first_us: u64,
    last_us: u64,
    longest_gap_us: u64,
    thoughts: Option<u32>,
}

#[track_caller]
fn check(recording: &str, expected: &Expected) {
    let recording: Recording = serde_json::from_str(recording).unwrap();
    let mut script = Script::default();
    let mut before = 0;
    for (at, text) in &recording.pieces {
        script = script.raw(at - before, text);
        before = *at;
    }
    let turn = script.play(5_000_000, None);
    assert_eq!(turn.error, None);
    assert_eq!(turn.answer, expected.answer);
    assert_eq!(turn.finish.as_deref(), Some("length"));
    let usage = Usage {
        prompt: 36,
        completion: 16,
        cached: Some(0),
        thoughts: expected.thoughts,
        ..Usage::default()
    };
    assert_eq!(turn.usage, Some(usage));
    assert_eq!(turn.arrivals.len(), 16);
    assert_eq!(turn.flags(&Context::default(), None), []);
    let values = turn.measures(&Context::default());
    let value = |measure| values.iter().find(|value| value.0 == measure).unwrap().1;
    assert_eq!(value(Measure::TtftCold), expected.first_us as f64 / 1e3);
    assert_eq!(value(Measure::EndToEnd), expected.last_us as f64 / 1e3);
    let decode = 15e6 / (expected.last_us - expected.first_us) as f64;
    assert!((value(Measure::DecodeTps) - decode).abs() < 1e-9);
    let longest = turn.gaps_ms().into_iter().fold(0.0, f64::max);
    assert_eq!(longest, expected.longest_gap_us as f64 / 1e3);
}

#[test]
fn llama_server() {
    let expected = Expected {
        answer: "The three rivers of Europe are:\n\n1. Danube\n2. Rhine",
        first_us: 3_404_449,
        last_us: 12_462_999,
        longest_gap_us: 2_807_955,
        thoughts: None,
    };
    check(include_str!("../fixtures/streams/llama-server.json"), &expected);
}

#[test]
fn hearth() {
    let expected = Expected {
        answer: "The three rivers of Europe are:\n\n1. The Danube\n2. The",
        first_us: 79_392,
        last_us: 328_402,
        longest_gap_us: 28_131,
        thoughts: Some(0),
    };
    check(include_str!("../fixtures/streams/hearth.json"), &expected);
}

#[test]
fn mlx_lm_which_sends_comments_while_it_reads() {
    let expected = Expected {
        answer: "1. Danube\n2. Rhône\n3. Danube\n\nThese",
        first_us: 9_801_789,
        last_us: 13_080_540,
        longest_gap_us: 468_346,
        thoughts: None,
    };
    check(include_str!("../fixtures/streams/mlx-lm.json"), &expected);
}
