//! The command with MLX as its device. `HEARTH_MLX` names the C library, and the command reads it too.
#![cfg(feature = "installed-mlx")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
mod served;
#[expect(dead_code, reason = "other tests use the rest")]
mod server;

use common::Home;
use serde_json::Value;
use server::{Server, rest};

const LIBRARY: &str = "HEARTH_MLX";

fn library() -> String {
    std::env::var(LIBRARY).expect("HEARTH_MLX names MLX's C library")
}

/// What a server says that its device holds, and whether `/v1/status` says so too.
fn held(server: &Server) -> (Vec<f64>, bool) {
    let metrics = rest(server.send("GET", "/metrics", ""));
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("hearth_device_memory_bytes{"));
    let numbers = lines.map(|line| line.split_once("} ").unwrap().1.parse().unwrap());
    let status = rest(server.send("GET", "/v1/status", ""));
    (numbers.collect(), status.contains("\"device\":{\"active_bytes\":"))
}

/// What a server with these flags says to a prompt, and how many tokens it had already.
fn complete(home: &Home, device: &str) -> (Value, u64) {
    let library = library();
    let flags = ["--device", device, "--mlx-library", &library, "--exact-activations"];
    let server = Server::start(home, &[&flags[..], &["--kv-format", "f16"]].concat());
    let prompt: Vec<u32> = (0..150).map(|i| i * 7 % 250).collect();
    let body = serde_json::json!({"prompt": prompt, "max_tokens": 12, "temperature": 0});
    let response = rest(server.send("POST", "/v1/completions", &body.to_string()));
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let mut answer: Value =
        serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
    let (held, in_status) = held(&server);
    match (device, &held[..]) {
        ("mlx", [active, _, peak]) => assert!(in_status && *active > 0.0 && peak >= active),
        // The processor keeps no books of its own.
        _ => assert!(device == "cpu" && held.is_empty() && !in_status, "{device}: {held:?}"),
    }
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    server.signal("TERM");
    let (status, log) = server.end();
    assert_eq!(status, Some(0), "{log}");
    (answer["choices"][0]["text"].take(), cached)
}

#[test]
fn a_server_on_mlx_says_what_one_on_the_processor_says() {
    let home = Home::new();
    let (on_mlx, _) = complete(&home, "mlx");
    // Another device's keys and values are of no use to it, and it does not find them.
    let (on_cpu, cached) = complete(&home, "cpu");
    assert_eq!((&on_cpu, cached), (&on_mlx, 0));
    assert!(on_cpu.as_str().is_some_and(|text| !text.is_empty()));
}

/// Nothing that must not matter changes more than rounding.
#[test]
fn a_verification_on_mlx_says_how_near_answers_are() {
    let (home, library) = (Home::new(), library());
    let folder = home.path().join("model");
    let mut config = models::tiny::config("llama").unwrap();
    // As many tokens as the tokenizer has, and more.
    config["vocab_size"] = 4096.into();
    common::write_model_of(config, &folder);
    let own = ["--device", "mlx", "--mlx-library", &library, "--tokens", "4", "--json"];
    let args = [&["verify", folder.to_str().unwrap()][..], &own].concat();
    let out = home.run(&args, &[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    let arms = found["arms"].as_array().unwrap();
    let name = |arm: &Value| arm["arm"].as_str().unwrap().to_owned();
    let names: Vec<String> = arms.iter().map(name).collect();
    // A GPU has no threads to be told the number of.
    assert!(names.len() == 8 && !names.iter().any(|name| name.contains("thread")), "{names:?}");
    for arm in arms {
        match arm["verdict"].as_str().unwrap() {
            "equal" => assert_eq!(arm["off"], Value::Null, "{arm}"),
            "near" => assert!(arm["off"].as_f64().is_some_and(|off| off <= 1e-3), "{arm}"),
            _ => panic!("{arm}"),
        }
    }
}

#[test]
fn what_is_missing_is_said() {
    let home = Home::new();
    let library = library();
    let doctor = |flags: &[&str]| {
        let args = [&["doctor"][..], flags].concat();
        let out = home.command(&args, &[(LIBRARY, "")]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("mlx  ")).expect(&text).to_owned();
        (out.status.success(), line)
    };
    let (sound, line) = doctor(&["--mlx-library", &library]);
    assert!(sound && line.starts_with("ok ") && line.contains("MLX 0.32."), "{line}");
    let (sound, line) = doctor(&["--mlx-library", "/nowhere/libmlxc.so"]);
    assert!(sound && line.starts_with("note") && line.contains("/nowhere"), "{line}");
    let (sound, _) = doctor(&["--mlx-library", "/nowhere/libmlxc.so", "--device", "mlx"]);
    assert!(!sound, "what was asked for is not there");
    // A library, but another one.
    let other = std::fs::read_dir("/lib/x86_64-linux-gnu").into_iter().flatten().flatten();
    let mut other = other.map(|entry| entry.path());
    if let Some(path) = other.find(|path| path.file_name().is_some_and(|name| name == "libm.so.6"))
    {
        let (sound, line) = doctor(&["--mlx-library", path.to_str().unwrap()]);
        assert!(sound && line.contains("it is not mlx-c 0.7"), "{line}");
    }
}
