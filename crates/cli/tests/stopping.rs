//! A served model is told to stop, as service managers do it: by signals.
#![cfg(unix)]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::{Home, write_model};

/// A server that runs, and where.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(home: &Home, more: &[&str]) -> Server {
        let model = home.path().join("model");
        write_model(&model);
        let mut args = vec!["serve", model.to_str().unwrap(), "--port", "0", "--threads", "1"];
        args.extend(more);
        let mut process =
            home.command(&args, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (_, address) = line.split_once("http://").unwrap_or_else(|| panic!("{line}"));
        let address = address.trim().trim_end_matches("/v1").to_owned();
        Server { process, address }
    }

    /// Sends a request; the connection closes after the response.
    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Request-Id: trip-7\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket
    }

    /// Begins a stream that goes on until the context is full, and waits for its first words. It is
    /// longer than what fits between server and client, so it does not end before it is read.
    fn stream(&self) -> BufReader<TcpStream> {
        let body = r#"{"prompt": "x", "n": 16, "max_tokens": 100000, "ignore_eos": true,
                       "stream": true}"#;
        let mut reader = BufReader::new(self.send("POST", "/v1/completions", body));
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
        reader
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits until `/readyz` says so.
    fn wait_for_draining(&self) {
        let ready = || rest(self.send("GET", "/readyz", ""));
        while ready().starts_with("HTTP/1.1 200") {}
        assert!(ready().contains("draining"));
    }

    /// The exit status and the log.
    fn end(self) -> (Option<i32>, String) {
        let out = self.process.wait_with_output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    }
}

fn rest(mut reader: impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

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
