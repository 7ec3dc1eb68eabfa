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
use serde_json::{Value, json};
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

/// A server, and the processes that share its model.
struct Group {
    first: Server,
    others: Vec<Served>,
}

impl Group {
    /// Of two.
    fn pair(home: &mut Home, more: &[&str]) -> Group {
        Group::start(home, 2, more)
    }

    fn start(home: &mut Home, n: usize, more: &[&str]) -> Group {
        let (library, at) = (library(), addresses(n + 1));
        let hosts = home.path().join("hosts.json");
        let places: Vec<[&String; 1]> = at[..n].iter().map(|at| [at]).collect();
        std::fs::write(&hosts, json!(places).to_string()).unwrap();
        let model = home.path().join("model");
        if !model.exists() {
            common::write_model(&model);
        }
        let flags = flags(&library, &[&["--ranks", &at[n]][..], more].concat());
        let args = [&["serve", model.to_str().unwrap()][..], &flags].concat();
        let hosts = hosts.to_str().unwrap().to_owned();
        let start = |rank: usize| {
            let vars = [("MLX_RANK", &*rank.to_string()), ("MLX_HOSTFILE", &*hosts)];
            let mut other = home.command(&args, &vars);
            Served(other.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        };
        let others = (1..n).map(start).collect();
        home.set(vec![("MLX_RANK", "0".to_owned()), ("MLX_HOSTFILE", hosts)]);
        let first = Server::start(home, &flags);
        home.set(Vec::new());
        Group { first, others }
    }

    /// Ends it. How the others end by themselves, and what they have printed.
    fn end(self) -> Vec<(Option<i32>, String)> {
        end(self.first);
        self.others.into_iter().map(end_of).collect()
    }
}

/// How a process ends by itself, and what it has printed.
fn end_of(mut process: Served) -> (Option<i32>, String) {
    let child: &mut Child = &mut process.0;
    let said = [rest(child.stdout.take().unwrap()), rest(child.stderr.take().unwrap())];
    (child.wait().unwrap().code(), said.concat())
}

/// What a server says to two prompts, the first of them twice, and how much of each it had already.
fn answers(server: &Server) -> Vec<(Value, Value)> {
    answers_below(server, 250)
}

/// The same with no token from `most` on in prompts.
fn answers_below(server: &Server, most: u32) -> Vec<(Value, Value)> {
    let ask = |n: u32| {
        let prompt: Vec<u32> = (0..n).map(|i| i * 7 % most).collect();
        let body = json!({
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
        let pair = Group::pair(&mut homes[1], &[]);
        assert_eq!(answers(&pair.first), expected[0], "{name}");
        for (status, log) in pair.end() {
            assert_eq!(status, Some(0), "{name}: {log}");
        }
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
        let pair = Group::pair(&mut homes[1], &["--split", "tensor"]);
        assert_eq!(answers(&pair.first), expected[0], "{name}");
        for (status, log) in pair.end() {
            assert_eq!(status, Some(0), "{name}: {log}");
            assert!(log.contains("share 2 of 2"), "{name}: {log}");
        }
        // What shares have left on disk is of no use to one alone, and is not taken for its own.
        assert_eq!(alone_twice(&homes[1])[0], expected[0], "{name}");
    }
}

/// A tiny config with other values.
fn config_with(name: &str, more: Value) -> Value {
    let mut config = models::tiny::config(name).unwrap();
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

/// Shares of a model say what one process says: from the beginning, from what they remember of a prompt,
/// and, if they are started again, from what they have left on disk.
#[track_caller]
fn shares_say_what_one_says(config: &Value, ranks: usize, is_started_again: bool) {
    let mut homes = [Home::new(), Home::new()];
    for home in &homes {
        write_model_of(config.clone(), &home.path().join("model"));
    }
    let alone = || {
        let (library, home) = (library(), &homes[0]);
        let server = Server::start(home, &flags(&library, &[]));
        let said = answers(&server);
        end(server);
        said
    };
    let runs = if is_started_again { 2 } else { 1 };
    let expected: Vec<_> = (0..runs).map(|_| alone()).collect();
    let what = &config["model_type"];
    assert!(expected[0][2].1.as_u64() > Some(0), "{what}: a prefix is found again");
    for expected in &expected {
        let group = Group::start(&mut homes[1], ranks, &["--split", "tensor"]);
        assert_eq!(answers(&group.first), *expected, "{what} on {ranks}");
        for (status, log) in group.end() {
            assert_eq!(status, Some(0), "{what}: {log}");
        }
    }
    if is_started_again {
        assert!(expected[1][0].1.as_u64() > Some(0), "{what}: states are found again");
    }
}

#[test]
fn shares_of_layers_with_states_say_what_one_process_says() {
    // As GGUF files have them: value heads in turn.
    let in_turn = json!({"linear_by_kind": true, "linear_heads_in_turn": true});
    shares_say_what_one_says(&config_with("qwen3_next", in_turn), 2, true);
    // Heads with a state, one set of queries and keys for all of them.
    let one_key = json!({"linear_num_key_heads": 1});
    shares_say_what_one_says(&config_with("qwen3_next", one_key), 2, false);
    for name in ["qwen3_5", "falcon_h1", "lfm2"] {
        shares_say_what_one_says(&config_with(name, json!({})), 2, false);
    }
    // Norms over what both have read.
    for name in ["granitemoehybrid", "nemotron_h"] {
        let one = json!({"mamba_n_groups": 1, "n_groups": 1});
        shares_say_what_one_says(&config_with(name, one), 2, false);
    }
}

#[test]
fn shares_of_latents_and_of_norms_over_all_heads_say_what_one_process_says() {
    shares_say_what_one_says(&config_with("kimi_linear", json!({})), 2, true);
    for name in ["deepseek_v3", "deepseek_v2", "olmo2", "minimax_m2"] {
        shares_say_what_one_says(&config_with(name, json!({})), 2, false);
    }
    // Experts beside another layer, each behind a norm of what both machines say.
    let twin = json!({
        "enable_moe_block": true, "moe_intermediate_size": 32, "num_experts": 5, "top_k_experts": 2,
    });
    shares_say_what_one_says(&config_with("gemma4", twin), 2, false);
}

/// Where there are fewer heads of keys, or groups of heads, than machines, neighbours have the same, and
/// norms go over some of the machines.
#[test]
fn four_shares_say_what_one_process_says() {
    shares_say_what_one_says(&config_with("olmo2", json!({})), 4, false);
    shares_say_what_one_says(&config_with("mamba2", json!({})), 4, false);
    shares_say_what_one_says(&config_with("qwen3_next", json!({})), 4, false);
}

/// Experts as gpt-oss is published: rows of gate and up take turns.
#[test]
fn shares_of_experts_whose_rows_take_turns_say_what_one_process_says() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/fixtures/gpt_oss");
    let mut homes = [Home::new(), Home::new()];
    for home in &homes {
        let checkpoint = weights::Checkpoint::open(fixture.as_ref()).unwrap();
        assert!(checkpoint.is_parameter("model.layers.0.mlp.experts.gate_up_proj"));
        common::write_checkpoint(checkpoint, &home.path().join("model"));
        let written = weights::Checkpoint::open(&home.path().join("model")).unwrap();
        assert!(written.is_parameter("model.layers.0.mlp.experts.gate_up_proj"));
    }
    let library = library();
    let server = Server::start(&homes[0], &flags(&library, &[]));
    let expected = answers_below(&server, 70);
    end(server);
    let pair = Group::pair(&mut homes[1], &["--split", "tensor"]);
    assert_eq!(answers_below(&pair.first, 70), expected);
    pair.end().into_iter().for_each(|(status, log)| assert_eq!(status, Some(0), "{log}"));
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
    std::fs::write(&hosts, json!([[at[0]], [at[1]]]).to_string()).unwrap();
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
    let Group { first, mut others } = Group::pair(&mut home, &[]);
    let mut stream = first.stream();
    others[0].0.kill().unwrap();
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
    let Group { first, mut others } = Group::pair(&mut home, &[]);
    // In the middle of passes.
    let _stream = first.stream();
    first.signal("KILL");
    let (status, log) = end_of(others.remove(0));
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
