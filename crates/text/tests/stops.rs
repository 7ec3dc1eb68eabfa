//! Stop strings, whatever the cuts.

mod common;

use common::splits;
use hearth_text::StopMatcher;
use proptest::prelude::*;

/// Joined deltas, and whether it stopped.
fn run(stops: &[&str], pieces: &[String]) -> (String, bool) {
    let mut matcher = StopMatcher::new(stops.iter().map(|stop| stop.to_string()).collect());
    let mut text = String::new();
    for piece in pieces {
        let pushed = matcher.push(piece);
        text.push_str(&pushed.text);
        if pushed.stopped {
            return (text, true);
        }
    }
    text.push_str(&matcher.finish());
    (text, false)
}

#[track_caller]
fn check(stops: &[&str], text: &str, expected: &str, stopped: bool) {
    for pieces in splits(text) {
        assert_eq!(run(stops, &pieces), (expected.to_owned(), stopped), "{pieces:?}");
    }
}

/// Case D04.
#[test]
fn a_stop_string_over_several_tokens_never_shows() {
    let pieces = ["alpha", " be", "ta", " gam", "ma", " delta"].map(String::from);
    let mut matcher = StopMatcher::new(vec!["beta gamma".into()]);
    let mut deltas = Vec::new();
    for piece in &pieces {
        let pushed = matcher.push(piece);
        deltas.push(pushed.text);
        if pushed.stopped {
            break;
        }
    }
    assert_eq!(deltas.concat(), "alpha ");
    assert!(deltas.iter().all(|delta| !delta.contains("be")));
    check(&["beta gamma"], "alpha beta gamma delta", "alpha ", true);
    check(&["\nUser:"], "x\nUsed", "x\nUsed", false);
}

#[test]
fn the_stop_that_is_complete_first_wins() {
    check(&["abcd", "bc"], "xabcd", "xa", true);
    check(&["ab", "abc"], "xabc", "x", true);
    check(&["🦜!"], "a🦜🦜!b", "a🦜", true);
    check(&["aab"], "aaab", "a", true);
    check(&[""], "text", "text", false);
    check(&[], "text", "text", false);
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_text(
        text in "[ab🦜]{0,24}",
        stops in proptest::collection::vec("[ab🦜]{0,4}", 0..4),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let all = splits(&text);
        let whole = run(&stops, &all[0]);
        for pieces in &all {
            prop_assert_eq!(run(&stops, pieces), whole.clone());
        }
    }
}
