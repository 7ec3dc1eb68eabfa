//! A served model is told to stop, as service managers do it: by signals.
#![cfg(unix)]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
mod served;
mod server;

use common::Home;
use server::{Server, rest};

#[test]
fn running_answers_finish_before_the_exit() {
    for signal in ["TERM", "INT"] {
        let home = Home::new();
        let server = Server::start(&home, &["--log-format", "json", "--grace", "600"]);
        let running = server.stream();
        server.signal(signal);
        server.wait_for_draining();
        let refused = rest(server.send("POST", "/v1/completions", r#"{"prompt": "x"}"#));
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.to_lowercase().contains("retry-after: "), "{refused}");
        let said = rest(running);
        assert!(said.contains(r#""finish_reason":"length""#) && said.contains("[DONE]"), "{said}");
        let (status, log) = server.end();
        assert_eq!(status, Some(0), "{log}");
        let lines: Vec<serde_json::Value> =
            log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let answered = lines.iter().find(|line| line["message"] == "answered").unwrap();
        assert_eq!(answered["request_id"], "trip-7");
        assert_eq!(answered["finish_reason"], "length");
        for number in ["prompt_tokens", "completion_tokens", "ttft_ms", "tokens_per_second"] {
            assert!(answered[number].as_f64() > Some(0.0), "{number}: {answered}");
        }
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let home = Home::new();
    let server = Server::start(&home, &["--grace", "600", "--log-level", "warn"]);
    // It does not read on, so the server cannot get rid of it.
    let running = server.stream();
    server.signal("TERM");
    server.wait_for_draining();
    server.signal("TERM");
    let (status, log) = server.end();
    assert_eq!(status, Some(1));
    assert!(log.contains("error: stopped at once"), "{log}");
    drop(running);
}
