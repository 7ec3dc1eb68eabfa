//! `hearth serve` with several models, as a client meets it.

mod common;
mod served;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use common::{Home, only_line, write_model};
use serde_json::{Value, json};
use served::Served;

/// A server that is stopped when this is dropped.
struct Server {
    _process: Served,
    address: String,
}

impl Server {
    fn start(home: &Home, args: &[&str]) -> Server {
        let args = [&["serve", "--port", "0", "--threads", "1"], args].concat();
        let mut command = home.command(&args, &[("HF_HUB_OFFLINE", "1")]);
        let (process, address) = Served::start(command.stderr(Stdio::null()));
        Server { _process: process, address }
    }

    /// Status and body.
    fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let n = body.len();
        let host = &self.address;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {n}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn complete(&self, model: &str) -> Value {
        let body = json!({"model": model, "prompt": [5, 40, 7], "max_tokens": 6, "temperature": 0});
        let (status, reply) = self.call("POST", "/v1/completions", &body.to_string());
        assert_eq!(status, 200, "{reply}");
        reply["choices"][0]["text"].clone()
    }

    fn statuses(&self) -> Vec<(String, String)> {
        let (_, list) = self.call("GET", "/v1/models", "");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let models = list["data"].as_array().unwrap().iter();
        models.map(|model| (text(&model["id"]), text(&model["status"]))).collect()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn named_models_and_those_of_a_folder_are_served_and_loaded_when_asked_for() {
    let home = Home::new();
    for name in ["one", "dir/two", "dir/org/three"] {
        write_model(&home.path().join(name));
    }
    let (one, dir) = (home.path().join("one"), home.path().join("dir"));
    let args = [one.to_str().unwrap(), "--model-dir", dir.to_str().unwrap()];
    let more = ["--alias", "uno", "--alias", "drei=org/three", "--pin", "two"];
    let server = Server::start(&home, &[&args[..], &more].concat());
    let before = [("one", "loaded"), ("org/three", "unloaded"), ("two", "loaded")];
    assert_eq!(server.statuses(), pairs(&before));
    let said = server.complete("one");
    assert_eq!(server.complete("uno"), said);
    assert_eq!(server.complete("default"), said);
    // The same files under another name.
    assert_eq!(server.complete("drei"), said);
    let after = [("one", "loaded"), ("org/three", "loaded"), ("two", "loaded")];
    assert_eq!(server.statuses(), pairs(&after));
    let (status, reply) = server.call("POST", "/v1/models/org/three/unload", "");
    assert_eq!((status, &reply["status"]), (200, &json!("unloaded")));
    let (status, reply) = server.call("POST", "/v1/models/two/unload", "");
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("model_pinned")));
    assert_eq!(server.complete("org/three"), said);
    let (_, one) = server.call("GET", "/v1/models/one", "");
    assert!(one["size_bytes"].as_u64().unwrap() > 1 << 20, "{one}");
}

#[test]
fn a_broken_model_is_refused_and_the_others_go_on() {
    let home = Home::new();
    let dir = home.path().join("dir");
    write_model(&dir.join("good"));
    std::fs::write(dir.join("bad.gguf"), "Once upon a time").unwrap();
    let server = Server::start(&home, &["--model-dir", dir.to_str().unwrap()]);
    let body = json!({"model": "bad", "prompt": "x"}).to_string();
    let (status, reply) = server.call("POST", "/v1/completions", &body);
    assert_eq!((status, &reply["error"]["code"]), (500, &json!("model_load_failed")), "{reply}");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("does not begin with GGUF"), "{message}");
    server.complete("good");
    // What was mended is loaded by the next request.
    std::fs::remove_file(dir.join("bad.gguf")).unwrap();
    write_model(&dir.join("mended"));
    let (_, bad) = server.call("GET", "/v1/models/bad", "");
    assert_eq!(bad["status"], "failed");
}

#[test]
fn memory_is_limited_and_the_refusal_has_the_numbers() {
    let home = Home::new();
    let model = home.path().join("model");
    write_model(&model);
    let model = model.to_str().unwrap();
    for command in ["info", "serve", "bench"] {
        let mut args = vec![command, model, "--memory-limit", "2MiB"];
        args.extend(["--port", "0"].iter().filter(|_| command == "serve"));
        let out = home.run(&args, &[]);
        assert_eq!(out.status.code(), Some(1), "{command}");
        let said = String::from_utf8_lossy(&out.stderr);
        let line = said.lines().last().unwrap_or_default();
        for part in ["does not fit", "the memory limit is 2.00 MiB", "raise --memory-limit"] {
            assert!(line.contains(part), "{command}: {part} is not in: {line}");
        }
    }
    let out = home.run(&["info", model, "--memory-limit", "lots"], &[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("8GiB, 512MiB or 80%"));
    // A context that keys and values leave no room for is told with what would help.
    let args = ["--kv-memory", "32k", "--memory-limit", "1GiB"];
    let server = Server::start(&home, &[&[model][..], &args].concat());
    let prompt: Vec<u32> = (0..3000).map(|i| i % 200).collect();
    let body = json!({"prompt": prompt}).to_string();
    let (status, reply) = server.call("POST", "/v1/completions", &body);
    assert_eq!((status, &reply["error"]["code"]), (400, &json!("context_length_exceeded")));
    let message = reply["error"]["message"].as_str().unwrap();
    for part in ["3000 tokens", "raise --kv-memory or --memory-limit", "per token"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    let out = home.run(&["serve", "--model-dir", home.path().to_str().unwrap(), "--pin", "x"], &[]);
    assert!(only_line(&out).contains("`x` is not served here"));
}
