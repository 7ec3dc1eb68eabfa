//! One model on two processes that MLX connects by its ring, on this machine. `HEARTH_MLX` names MLX's C
//! library.
#![cfg(feature = "installed-mlx")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
mod served;
#[expect(dead_code, reason = "other tests use the rest")]
mod server;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use common::{Home, write_model_of};
use serde_json::Value;
use served::Served;
use server::{Server, rest};

fn library() -> String {
    std::env::var("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library")
}

/// Addresses where nobody listens.
fn addresses(n: usize) -> Vec<String> {
    let taken: Vec<TcpListener> =
        (0..n).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    taken.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

/// Flags of every server here, besides.
fn flags<'a>(library: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = ["--device", "mlx", "--mlx-library", library, "--kv-format", "f16"];
    own.iter().chain(more).copied().collect()
}

/// A server, and the process that shares its model.
struct Pair {
    first: Server,
    second: Served,
}

impl Pair {
    fn start(home: &mut Home, more: &[&str]) -> Pair {
        let (library, at) = (library(), addresses(3));
        let hosts = home.path().join("hosts.json");
        std::fs::write(&hosts, serde_json::json!([[at[0]], [at[1]]]).to_string()).unwrap();
        let model = home.path().join("model");
        if !model.exists() {
            common::write_model(&model);
        }
        let flags = flags(&library, &[&["--ranks", &at[2]][..], more].concat());
        let vars = |rank| [("MLX_RANK", rank), ("MLX_HOSTFILE", hosts.to_str().unwrap())];
        let args = [&["serve", model.to_str().unwrap()][..], &flags].concat();
        let mut second = home.command(&args, &vars("1"));
        second.stdout(Stdio::piped()).stderr(Stdio::piped());
        let second = Served(second.spawn().unwrap());
        let hosts = hosts.to_str().unwrap().to_owned();
        home.set(vec![("MLX_RANK", "0".to_owned()), ("MLX_HOSTFILE", hosts)]);
        Pair { first: Server::start(home, &flags), second }
    }

    /// How the second one ends by itself, and what it has printed.
    fn end_of_second(mut self) -> (Option<i32>, String) {
        let child: &mut Child = &mut self.second.0;
        let said = [rest(child.stdout.take().unwrap()), rest(child.stderr.take().unwrap())];
        (child.wait().unwrap().code(), said.concat())
    }
}

/// What a server says to two prompts, the first of them twice, and how much of each it had already.
fn answers(server: &Server) -> Vec<(Value, Value)> {
    let ask = |n: u32| {
        let prompt: Vec<u32> = (0..n).map(|i| i * 7 % 250).collect();
        let body = serde_json::json!({
            "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 1, "n": 2,
        });
        let response = rest(server.send("POST", "/v1/completions", &body.to_string()));
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let mut answer: Value =
            serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].take();
        let texts = answer["choices"].as_array().unwrap();
        let tokens = texts.iter().map(|choice| choice["logprobs"]["tokens"].clone()).collect();
        (tokens, cached)
    };
    [150, 40, 150].map(ask).to_vec()
}

fn end(server: Server) {
    server.signal("TERM");
    let (status, log) = server.end();
    assert_eq!(status, Some(0), "{log}");
}

/// What one process says, twice: the second time with what the first has left on disk.
fn alone_twice(home: &Home) -> [Vec<(Value, Value)>; 2] {
    [0, 1].map(|_| {
        let library = library();
        let server = Server::start(home, &flags(&library, &[]));
        let said = answers(&server);
        end(server);
        said
    })
}

#[test]
fn two_processes_say_what_one_says() {
    for name in ["llama", "qwen3_next", "gemma3_text"] {
        let mut homes = [Home::new(), Home::new()];
        for home in &homes {
            write_model_of(models::tiny::config(name).unwrap(), &home.path().join("model"));
        }
        let expected = alone_twice(&homes[0]);
        assert!(expected[0][2].1.as_u64() > Some(0), "{name}: a prefix is found again");
        let Pair { first, mut second } = Pair::start(&mut homes[1], &[]);
        assert_eq!(answers(&first), expected[0], "{name}");
        end(first);
        let log = rest(second.0.stderr.take().unwrap());
        assert_eq!(second.0.wait().unwrap().code(), Some(0), "{name}: {log}");
        // What both have computed together is of use to one alone.
        assert_eq!(alone_twice(&homes[1])[0], expected[1], "{name}");
        if name == "llama" {
            assert!(expected[1][0].1.as_u64() >= Some(64), "{expected:?}");
        }
    }
}

/// Sums over columns are put together in another order, so bits differ; tokens do not.
#[test]
fn two_shares_of_every_layer_say_what_one_process_says() {
    for name in ["gpt2", "qwen2", "phi3", "gemma3_text", "qwen2_moe"] {
        let mut homes = [Home::new(), Home::new()];
        let mut config = models::tiny::config(name).unwrap();
        if name == "phi3" {
            // Two cannot have as many rows each of the output matrix.
            config["vocab_size"] = (models::tiny::VOCAB + 1).into();
        }
        for home in &homes {
            write_model_of(config.clone(), &home.path().join("model"));
        }
        let expected = alone_twice(&homes[0]);
        let Pair { first, mut second } = Pair::start(&mut homes[1], &["--split", "tensor"]);
        assert_eq!(answers(&first), expected[0], "{name}");
        end(first);
        let log = rest(second.0.stderr.take().unwrap());
        assert_eq!(second.0.wait().unwrap().code(), Some(0), "{name}: {log}");
        assert!(log.contains("share 2 of 2"), "{name}: {log}");
        // What shares have left on disk is of no use to one alone, and is not taken for its own.
        assert_eq!(alone_twice(&homes[1])[0], expected[0], "{name}");
    }
}

#[test]
fn what_cannot_be_shared_is_said_before_anything_is_loaded() {
    let home = Home::new();
    let mut config = models::tiny::config("llama").unwrap();
    config["num_attention_heads"] = 3.into();
    config["num_key_value_heads"] = 1.into();
    write_model_of(config, &home.path().join("model"));
    let (library, at) = (library(), addresses(3));
    let hosts = home.path().join("hosts.json");
    std::fs::write(&hosts, serde_json::json!([[at[0]], [at[1]]]).to_string()).unwrap();
    let model = home.path().join("model");
    let more = ["--ranks", &at[2], "--split", "tensor", "--port", "0"];
    let args = [&["serve", model.to_str().unwrap()][..], &flags(&library, &more)].concat();
    let mut start = |rank| {
        let vars = [("MLX_RANK", rank), ("MLX_HOSTFILE", hosts.to_str().unwrap())];
        let mut command = home.command(&args, &vars);
        Served(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let [mut second, mut first] = ["1", "0"].map(&mut start);
    let said = rest(first.0.stderr.take().unwrap());
    assert_eq!(first.0.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("its 3 heads cannot be split over them"), "{said}");
    assert!(said.contains("--split pipeline") && !said.contains("loading"), "{said}");
    assert!(second.0.wait().unwrap().code().is_some(), "by itself");
}

#[test]
fn who_is_lost_is_an_error_and_nobody_hangs() {
    let mut home = Home::new();
    let Pair { first, mut second } = Pair::start(&mut home, &[]);
    let mut stream = first.stream();
    second.0.kill().unwrap();
    let said = rest(&mut stream);
    assert!(said.contains("rank 1 is gone"), "{said}");
    // Nor does it hang for those who come later, nor when it is to end.
    let body = r#"{"prompt": "x", "max_tokens": 2}"#;
    let response = rest(first.send("POST", "/v1/completions", body));
    assert!(
        response.starts_with("HTTP/1.1 5") && response.contains("rank 1 is gone"),
        "{response}"
    );
    end(first);
}

#[test]
fn others_end_when_the_first_one_dies() {
    let mut home = Home::new();
    let pair = Pair::start(&mut home, &[]);
    // In the middle of passes.
    let _stream = pair.first.stream();
    pair.first.signal("KILL");
    let (status, log) = pair.end_of_second();
    assert!(log.starts_with("rank 1 follows rank 0"), "{log}");
    assert!(status.is_some(), "by itself: {log}");
}

#[test]
fn what_is_no_group_is_refused() {
    let (home, library) = (Home::new(), library());
    let model = home.path().join("model");
    common::write_model(&model);
    let refused = |vars: &[(&str, &str)], path: &str| {
        let flags = flags(&library, &["--ranks", "127.0.0.1:1"]);
        let out = home.run(&[&["serve", path][..], &flags].concat(), vars);
        assert_eq!(out.status.code(), Some(1));
        BufReader::new(&out.stderr[..]).lines().map_while(Result::ok).last().unwrap()
    };
    let path = model.to_str().unwrap();
    let said = refused(&[], path);
    assert!(said.starts_with("error: --ranks: no group was joined: MLX: "), "{said}");
    let hosts = home.path().join("hosts.json");
    let vars = [("MLX_RANK", "0"), ("MLX_HOSTFILE", hosts.to_str().unwrap())];
    std::fs::write(&hosts, "no JSON").unwrap();
    let said = refused(&vars, path);
    assert!(said.starts_with("error: --ranks: no group was joined: MLX: "), "{said}");
}
