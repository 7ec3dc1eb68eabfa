//! The rules of ARCHITECTURE.md that a machine can hold: who depends on whom, what every file starts
//! with, how long it may be, where `unsafe`, printing and the environment are allowed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Our crates and which of ours each may depend on, outside of tests.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("weights", &[]),
    ("backend", &["weights"]),
    ("cpu", &["backend", "weights"]),
    ("mlx", &["backend", "weights"]),
    ("models", &["backend", "weights"]),
    ("engine", &["backend", "models"]),
    ("text", &[]),
    ("server", &["engine", "text"]),
    ("lab", &[]),
    ("cli", &["weights", "backend", "cpu", "mlx", "models", "engine", "text", "server", "lab"]),
    ("xtask", &[]),
];

/// Files and folders that may say `unsafe`.
const UNSAFE_FENCE: &[&str] = &[
    "crates/weights/src/mmap.rs",
    "crates/cpu/src/simd/",
    "crates/cpu/src/pool",
    "crates/mlx/src/ffi",
];

/// Longest allowed source file.
const MAX_LINES: usize = 620;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

fn output(command: &mut Command) -> String {
    let out = command.current_dir(root()).output().expect("the command starts");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Every tracked or new file whose name ends with `suffix`, relative to the root.
fn files(suffix: &str) -> Vec<String> {
    let listing = output(Command::new("git").args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]));
    let mut files: Vec<String> =
        listing.lines().filter(|f| f.ends_with(suffix)).map(str::to_owned).collect();
    files.retain(|file| root().join(file).is_file());
    assert!(!files.is_empty(), "no {suffix} files: is this a git checkout?");
    files
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Lines of code: without comments, and without what follows the file's test module.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().enumerate();
    lines.map(|(n, line)| (n + 1, line.split("//").next().unwrap_or_default()))
}

fn is_product_code(file: &str) -> bool {
    file.starts_with("crates/") && file.contains("/src/")
}

#[track_caller]
fn assert_none(rule: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

#[test]
fn crates_depend_only_downwards() {
    let metadata = output(Command::new("cargo").args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--offline",
    ]));
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("cargo metadata");
    let mut offenders = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().unwrap_or_default().trim_start_matches("hearth-");
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(krate, _)| *krate == name) else {
            offenders.push(format!("`{name}` is not in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_ours = on.strip_prefix("hearth-");
            let for_tests = dependency["kind"] == "dev";
            if let Some(on) = is_ours.filter(|on| !for_tests && !allowed.contains(on)) {
                offenders.push(format!("`{name}` depends on `{on}`"));
            }
        }
    }
    assert_none("a crate depends on one that it must not know", offenders);
}

#[test]
fn every_file_says_what_it_is() {
    let silent = files(".rs").into_iter().filter(|file| !read(file).starts_with("//!"));
    assert_none("a file does not start with `//!`", silent.collect());
}

#[test]
fn files_are_short() {
    let long = files(".rs").into_iter().filter_map(|file| {
        let lines = read(&file).lines().count();
        (lines > MAX_LINES).then(|| format!("{file}: {lines} lines"))
    });
    assert_none("a file is too long", long.collect());
}

#[test]
fn unsafe_stays_behind_its_fence() {
    let mut offenders = Vec::new();
    for file in files(".rs") {
        let fenced = UNSAFE_FENCE.iter().any(|fence| file.starts_with(fence));
        let this_file = file.ends_with("tests/tidy.rs");
        if fenced || this_file {
            continue;
        }
        for (n, line) in code_lines(&read(&file)) {
            if line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
                offenders.push(format!("{file}:{n}"));
            }
        }
    }
    assert_none("`unsafe` outside of the fence", offenders);
}

#[test]
fn no_leftovers() {
    let banned = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore", "should_panic"];
    let mut offenders = Vec::new();
    for file in files(".rs").into_iter().filter(|file| !file.ends_with("tests/tidy.rs")) {
        for (n, line) in read(&file).lines().enumerate() {
            if banned.iter().any(|word| line.contains(word)) {
                offenders.push(format!("{file}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    assert_none("a left-over", offenders);
}

#[test]
fn only_the_cli_prints_and_reads_the_environment() {
    let banned = ["println!(", "eprintln!(", "print!(", "eprint!(", "env::var", "env::args"];
    let mut offenders = Vec::new();
    for file in files(".rs") {
        if !is_product_code(&file) || file.starts_with("crates/cli/") {
            continue;
        }
        for (n, line) in code_lines(&read(&file)) {
            if banned.iter().any(|word| line.contains(word)) {
                offenders.push(format!("{file}:{n}: {}", line.trim()));
            }
        }
    }
    assert_none("output or environment outside of the cli", offenders);
}

#[test]
fn everything_is_formatted() {
    let mut command = Command::new("rustfmt");
    command.args(["--check", "-l", "--edition", "2024"]).args(files(".rs")).current_dir(root());
    let out = command.output().expect("rustfmt starts");
    let unformatted: BTreeSet<_> =
        String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
    assert_none("run `cargo fmt`", unformatted.into_iter().collect());
}

#[test]
fn no_paths_of_one_machine() {
    let banned = [["/ho", "me/"].concat(), ["/ro", "ot/"].concat(), ["/wo", "rk/"].concat()];
    let mut offenders = Vec::new();
    for suffix in [".rs", ".md", ".py", ".toml", ".sh", ".json"] {
        for file in files_or_none(suffix) {
            if banned.iter().any(|path| read(&file).contains(path.as_str())) {
                offenders.push(file);
            }
        }
    }
    assert_none("a path of somebody's machine", offenders);
}

fn files_or_none(suffix: &str) -> Vec<String> {
    let listing = output(Command::new("git").args(["ls-files"]));
    listing.lines().filter(|f| f.ends_with(suffix)).map(str::to_owned).collect()
}
