//! The built command as a server with a tiny model, and a client that speaks plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Home, write_model};
use crate::served::Served;

/// A server that runs, and where.
pub(crate) struct Server {
    process: Served,
    address: String,
}

impl Server {
    pub(crate) fn start(home: &Home, more: &[&str]) -> Server {
        let model = home.path().join("model");
        if !model.exists() {
            write_model(&model);
        }
        let mut args = vec!["serve", model.to_str().unwrap(), "--port", "0", "--threads", "1"];
        args.extend(more);
        let (process, address) = Served::start(home.command(&args, &[]).stderr(Stdio::piped()));
        Server { process, address }
    }

    /// Sends a request; the connection closes after the response.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: trip-7\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket
    }

    /// Begins a stream that goes on until the context is full, and waits for its first words. It is
    /// longer than what fits between server and client, so it does not end before it is read.
    pub(crate) fn stream(&self) -> BufReader<TcpStream> {
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

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits until `/readyz` says so.
    pub(crate) fn wait_for_draining(&self) {
        let ready = || rest(self.send("GET", "/readyz", ""));
        wait_until(|| !ready().starts_with("HTTP/1.1 200"));
        assert!(ready().contains("draining"));
    }

    /// The exit status and the log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let log = rest(self.process.0.stderr.take().unwrap());
        (self.process.0.wait().unwrap().code(), log)
    }
}

/// Asks again and again, for a minute at most.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came to be");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All that is still to come.
pub(crate) fn rest(mut reader: impl Read) -> String {
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}
