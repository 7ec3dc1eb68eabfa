//! A served model is started again: what it computed is still there, unless nobody wanted that.
#![cfg(unix)]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
mod served;
#[expect(dead_code, reason = "other tests use the rest")]
mod server;

use common::Home;
use serde_json::Value;
use server::{Server, rest, wait_until};

/// The body of a response that must be a success.
fn ask(server: &Server, method: &str, path: &str, body: &str) -> Value {
    let response = rest(server.send(method, path, body));
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// What the model says, and how many tokens were cached and came from disk.
fn complete(server: &Server) -> (Value, u64, u64) {
    let prompt: Vec<u32> = (0..150).map(|i| i * 7 % 250).collect();
    let body = serde_json::json!({"prompt": prompt, "max_tokens": 12, "seed": 3});
    let mut answer = ask(server, "POST", "/v1/completions", &body.to_string());
    let details = &answer["usage"]["prompt_tokens_details"];
    let count = |name| details[name].as_u64().unwrap();
    let (cached, disk) = (count("cached_tokens"), count("disk_tokens"));
    (answer["choices"][0]["text"].take(), cached, disk)
}

/// Waits until a server that was started again has found what is on disk: it looks through its folder while
/// it serves, and computes what it has not come to.
fn wait_for_disk(server: &Server) {
    let stats = || ask(server, "GET", "/v1/cache/stats", "");
    wait_until(|| stats()["models"][0]["disk"]["blocks"] != 0);
}

/// Stops it and returns its log.
fn stop(server: Server) -> String {
    server.signal("TERM");
    let (status, log) = server.end();
    assert_eq!(status, Some(0), "{log}");
    log
}

#[test]
fn a_restart_finds_everything_and_clearing_leaves_nothing() {
    let home = Home::new();
    let server = Server::start(&home, &[]);
    let (said, cached, _) = complete(&server);
    assert_eq!(cached, 0);
    let (again, in_memory, disk) = complete(&server);
    assert_eq!((&again, disk), (&said, 0));
    assert!(in_memory >= 32);
    stop(server);

    // Whole blocks come from disk; memory knows their beginnings as well.
    let whole = in_memory / 32 * 32;
    let server = Server::start(&home, &[]);
    wait_for_disk(&server);
    assert_eq!(complete(&server), (said.clone(), whole, whole));
    let stats = ask(&server, "GET", "/v1/cache/stats", "")["models"][0].take();
    assert_eq!(stats["tokens_from_disk"], whole);
    assert!(stats["disk"]["tokens"].as_u64() >= Some(whole), "{stats}");
    let cleared = ask(&server, "POST", "/v1/cache/clear", "")["models"][0].take();
    assert_eq!(cleared["disk"]["tokens"], stats["disk"]["tokens"]);
    assert_eq!(cleared["disk"]["segments"], 1);
    assert_eq!(complete(&server), (said.clone(), 0, 0));
    stop(server);

    // Other arithmetic, and another way to store keys and values, find nothing of it.
    for option in [&["--exact-activations"][..], &["--kv-format", "q8"]] {
        let server = Server::start(&home, option);
        assert_eq!(complete(&server).1, 0);
        stop(server);
    }
}

#[test]
fn eight_bit_keys_and_values_come_back_from_disk_too() {
    let home = Home::new();
    let q8 = ["--kv-format", "q8"];
    let server = Server::start(&home, &q8);
    let status = ask(&server, "GET", "/v1/status", "");
    assert_eq!(status["models"][0]["engine"]["kv_format"], "q8");
    let (said, cached, _) = complete(&server);
    assert_eq!(cached, 0);
    stop(server);
    let server = Server::start(&home, &q8);
    wait_for_disk(&server);
    let (again, _, disk) = complete(&server);
    assert_eq!(again, said);
    assert!(disk >= 128, "{disk}");
    stop(server);
}

#[test]
fn without_a_disk_cache_nothing_is_written() {
    let home = Home::new();
    let server = Server::start(&home, &["--no-disk-cache"]);
    let (said, ..) = complete(&server);
    assert_eq!(ask(&server, "GET", "/v1/cache/stats", "")["models"][0]["disk"], Value::Null);
    stop(server);
    assert!(!home.path().join("hearth/kv").exists());
    let server = Server::start(&home, &["--no-disk-cache"]);
    assert_eq!(complete(&server), (said, 0, 0));
    stop(server);
}

#[test]
fn where_nothing_can_be_written_one_line_says_so() {
    let home = Home::new();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let blocked = ["--cache-disk-dir", file.to_str().unwrap()];
    for options in [&blocked[..], &["--cache-disk-max", "1k"]] {
        let server = Server::start(&home, options);
        let (said, ..) = complete(&server);
        assert_eq!(complete(&server).0, said);
        let log = stop(server);
        let lines = log.lines().filter(|line| line.contains("not kept on disk"));
        assert_eq!(lines.count(), 1, "{log}");
    }
}
