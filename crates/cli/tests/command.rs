//! The command as a program among programs: what it says of wrong input, how it ends, and that its
//! help can be read.

mod common;

use std::fs;
use std::io::pipe;
use std::net::TcpListener;

use common::{Home, only_line, write_checkpoint, write_model};

const COMMANDS: &[&str] = &[
    "chat",
    "serve",
    "pull",
    "models",
    "info",
    "rm",
    "convert",
    "bench",
    "perplexity",
    "verify",
    "agents",
    "launch",
    "completions",
];

#[test]
fn wrong_input_is_one_line_that_helps() {
    let home = Home::new();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (empty, text, model) = (path("empty"), path("text.gguf"), path("model"));
    let blank = path("keys");
    fs::write(&blank, "# none yet\n\n").unwrap();
    fs::create_dir(&empty).unwrap();
    fs::write(&text, "Once upon a time").unwrap();
    write_model(home.path().join("model").as_path());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, expected) in [
        (&["info", "smollm-135m"][..], "did you mean `smollm2-135m-4bit`"),
        (&["info", "./nowhere/model.gguf"], "there is no file or folder `./nowhere/model.gguf`"),
        (&["info", &empty], "it holds neither config.json"),
        (&["info", &text], "does not begin with GGUF"),
        (&["info", &model, "--context", "0"], "--context 0 is out of range"),
        (&["info", &model, "--context", "9999999"], "--context 9999999 is out of range"),
        (&["bench", &model, "--prompt", "5000"], "lower --prompt"),
        (&["chat", &model, "hello"], "has no chat template"),
        (&["chat"], "there is nothing to answer"),
        (&["serve", &model, "--port", &port], "choose another --port"),
        (&["serve", &model, "--host", "0.0.0.0"], "--insecure-bind"),
        (&["serve", &model, "--api-key", "two words"], "no spaces"),
        (&["serve", &model, "--host", "0.0.0.0", "--api-key-file", &blank], "holds no key"),
        (&["rm", &model], "remove it yourself"),
        (&["rm", "org/unknown"], "`hearth ls` shows what is"),
        (&["convert", &model, &model], "choose another folder"),
        (&["convert", &model, &empty, "--bits", "7"], "--mode affine takes"),
        (&["perplexity", &model, "nowhere.txt"], "cannot read nowhere.txt"),
        (&["perplexity", &model, &text], "outside of the model's vocabulary of 264"),
        (
            &["perplexity", &model, &text, "--compare-f16-kv", "--kv-format", "f16"],
            "leave that out, or say q8",
        ),
    ] {
        let out = home.run(args, &[("HF_HUB_OFFLINE", "1")]);
        assert_eq!(
            out.status.code(),
            Some(1),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(out.stdout.is_empty(), "{args:?}");
        let line = only_line(&out);
        assert!(line.starts_with("error: ") && line.contains(expected), "{args:?}: {line}");
    }
    for threads in ["0", "9999", "many"] {
        let out = home.run(&["info", &model, "--threads", threads], &[]);
        assert_eq!(out.status.code(), Some(2));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains("must be 1 to "), "{said}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let home = Home::new();
    let model = home.path().join("model");
    write_model(&model);
    let model = model.to_str().unwrap();
    for args in [&["completions", "bash"][..], &["models", "--available"], &["info", model]] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let out = home.command(args, &[]).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "{args:?}: {said}");
    }
}

#[test]
fn help_fits_the_terminal_and_gives_examples() {
    let home = Home::new();
    for command in COMMANDS {
        let out = home.run(&[command, "--help"], &[("COLUMNS", "200")]);
        let help = String::from_utf8(out.stdout).unwrap();
        assert!(help.contains("\nExample"), "{command}: {help}");
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{command}: {long:?}");
    }
    let help = String::from_utf8(home.run(&["--help"], &[]).stdout).unwrap();
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in: {help}");
    }
}

#[test]
fn info_for_people_and_for_programs_says_the_same() {
    let home = Home::new();
    let model = home.path().join("model");
    write_model(&model);
    let model = model.to_str().unwrap();
    let text = String::from_utf8(home.run(&["info", model], &[]).stdout).unwrap();
    let json = home.run(&["info", model, "--json"], &[]).stdout;
    let facts: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(facts["packings"]["BF16"], 23);
    for part in ["family         llama\n", "layers         3 of width 64\n", "23 x BF16\n"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(text.lines().next().unwrap(), format!("path           {model}"));
}

/// Also where a model has so few tokens that random prompts would soon begin alike.
#[test]
fn the_cache_helps_no_run_of_a_benchmark() {
    let home = Home::new();
    let model = home.path().join("model");
    write_model(&model);
    let model = model.to_str().unwrap();
    let args = ["bench", model, "--prompt", "4", "--gen", "0", "--runs", "60", "--json"];
    let out = home.run(&args, &[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(rows[0]["tok_s_runs"].as_array().unwrap().len(), 60);
}

/// One that is not whole is a note.
#[test]
fn info_tells_of_draft_heads() {
    let home = Home::new();
    let config = models::tiny::config("qwen3_5_text").unwrap();
    let spec = models::recipe(&config).unwrap();
    let heads = models::tiny::draft_tensors(&spec, 7);
    let info = |name: &str, heads: &[weights::Tensor]| -> serde_json::Value {
        let tensors = [&models::tiny::tensors(&spec, 7)[..], heads].concat();
        let folder = home.path().join(name);
        write_checkpoint(weights::Checkpoint::from_tensors(config.clone(), tensors), &folder);
        let out = home.run(&["info", folder.to_str().unwrap(), "--json"], &[]);
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let n_bytes: usize = heads.iter().map(|tensor| tensor.data.len()).sum();
    let n_gains: usize = heads.iter().filter(|t| t.shape.len() == 1).map(|t| t.shape[0]).sum();
    let whole = info("whole", &heads);
    assert_eq!(whole["draft_heads"]["n"], 1);
    assert_eq!(whole["draft_heads"]["parameters"], n_bytes / 2);
    // Gains are held in f32.
    assert_eq!(whole["draft_heads"]["bytes"], n_bytes + 2 * n_gains);
    assert_eq!(whole["notes"], serde_json::json!([]));
    assert_eq!(info("without", &[])["draft_heads"], serde_json::Value::Null);
    let broken = info("broken", &heads[..heads.len() - 1]);
    assert_eq!(broken["draft_heads"], serde_json::Value::Null);
    assert!(broken["notes"][0].as_str().unwrap().contains("mtp.norm.weight"), "{broken}");
}

#[test]
fn info_of_what_does_not_fit_says_the_sum_and_what_to_do() {
    let home = Home::new();
    let model = home.path().join("model");
    write_model(&model);
    let args = ["info", model.to_str().unwrap(), "--memory-limit", "200MiB", "--kv-memory", "1GiB"];
    let out = home.run(&args, &[]);
    assert!(!out.status.success());
    assert!(only_line(&out).contains("lower --kv-memory to 1"), "{}", only_line(&out));
    let text = String::from_utf8(out.stdout).unwrap();
    for part in [
        "family         llama\n",
        "1.00 GiB in all: ",
        "\ndoes not fit   in the limit of 200.00 MiB",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let out = home.run(&[&args[..], &["--json"]].concat(), &[]);
    assert!(!out.status.success());
    let facts: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let memory = &facts["memory"];
    assert_eq!(memory["fits"], false);
    assert!(memory["total"].as_u64() > memory["limit"].as_u64(), "{memory}");
}
