//! Shares of every family's layers, on processes that MLX connects by its ring on this machine, compute
//! together the logits that transformers computes. `HEARTH_MLX` names MLX's C library.
//!
//! Not how a server leads such processes: that is `crates/cli/tests/ranks.rs`.
#![cfg(feature = "installed-mlx")]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "suite/common.rs"]
mod common;

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use backend::KvFormat;
use hearth_models::{Share, recipe};
use weights::Checkpoint;

use common::{EXACT, Runner, distance, floats, golden_cases, tokens};

/// What the first rank says at last.
const DONE: &str = "cases that can be shared";

/// Processes that end with this.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The variable that names the cases of a process, all of them if it is empty.
const CASES: &str = "HEARTH_SHARED_CASES";

/// Runs [`one_rank`] in so many processes. What the first one has found.
fn run(test: &str, ranks: usize, cases: &str) -> String {
    let taken: Vec<TcpListener> =
        (0..ranks).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let places: Vec<[String; 1]> =
        taken.iter().map(|taken| [taken.local_addr().unwrap().to_string()]).collect();
    drop(taken);
    let hosts = file_in_target(&format!("hosts-{ranks}-{}.json", std::process::id()));
    std::fs::write(&hosts, serde_json::json!(places).to_string()).unwrap();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // The same test, which is a rank where it finds what it is to do.
        command.args([test, "--exact", "--nocapture"]);
        command.env("MLX_RANK", rank.to_string()).env("MLX_HOSTFILE", &hosts);
        command.env(CASES, cases);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut all = Ranks((0..ranks).map(start).collect());
    let (say, said) = channel();
    for (rank, child) in all.0.iter_mut().enumerate() {
        let (mut out, mut log) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let say = say.clone();
        thread::spawn(move || {
            let (mut text, mut more) = (String::new(), String::new());
            // Both are short.
            let _ = (out.read_to_string(&mut text), log.read_to_string(&mut more));
            // Nobody listens any more where another one has failed.
            let _ = say.send((rank, text + &more));
        });
    }
    // Where one has failed, the others may wait for it for ever.
    let mut first = String::new();
    for _ in 0..ranks {
        let (rank, text) = said.recv().unwrap();
        let status = all.0[rank].wait().unwrap();
        assert!(status.success(), "rank {rank} of {ranks}: {text}");
        if rank == 0 {
            first = text;
        }
    }
    std::fs::remove_file(hosts).unwrap();
    first
}

/// A file that no other test writes.
fn file_in_target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Holds every family that so many can share to its golden: the prompt at once, and in pieces that begin
/// with the states that the one before has left.
fn one_rank(some: &str) {
    let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
    let options = mlx::Options { library: Some(library.into()), ..Default::default() };
    let mut device = mlx::Mlx::open(&options).expect("the library that HEARTH_MLX names");
    let mlx::Rank { rank, ranks } = device.join().expect("a group");
    let share = Share { rank, ranks };
    let (mut cases, mut shared) = (golden_cases(), Vec::new());
    let is_one = |folder: &PathBuf| some.split(' ').any(|case| folder.ends_with(case));
    cases.retain(|folder| some.is_empty() || is_one(folder));
    cases.sort();
    for folder in cases {
        let checkpoint = Checkpoint::open(&folder).expect("a model");
        let spec = recipe(&checkpoint.config).expect("a family").with_kv_format(KvFormat::F16);
        let mut runner = match Runner::of_share(&device, (&spec, share), &checkpoint) {
            Ok(runner) => runner,
            Err(why) => {
                println!("{}: {why}", folder.display());
                continue;
            }
        };
        let (tokens, golden) =
            (tokens(&folder.join("input.json")), floats(&folder.join("logits_kv16.f32")));
        for chunk in [tokens.len(), tokens.len().div_ceil(3)] {
            let logits = runner.logits(&tokens, chunk);
            if rank > 0 {
                assert!(logits.is_empty(), "they are the first rank's");
                continue;
            }
            let what = format!("{} on {ranks}, chunks of {chunk}", folder.display());
            let (worst, rms) = distance(&logits, &golden);
            assert!(worst < EXACT.worst, "{what}: a logit is {worst} deviations off (rms {rms})");
            assert!(rms < EXACT.rms, "{what}: logits are {rms} deviations off (worst {worst})");
        }
        shared.push(folder.file_name().unwrap().to_string_lossy().into_owned());
    }
    println!("{} {DONE}: {}", shared.len(), shared.join(" "));
}

/// The cases that so many ranks have shared, of some or of all.
fn shared(test: &str, ranks: usize, cases: &str) -> Vec<String> {
    let said = run(test, ranks, cases);
    let line = said.lines().find(|line| line.contains(DONE)).expect("the last line");
    let (n, found) = line.split_once(&format!(" {DONE}: ")).expect("a list");
    let found: Vec<String> = found.split(' ').map(str::to_owned).collect();
    assert_eq!(n, found.len().to_string(), "{said}");
    found
}

#[test]
fn two_ranks_compute_what_others_computed() {
    if let Ok(cases) = std::env::var(CASES) {
        return one_rank(&cases);
    }
    let found = shared("two_ranks_compute_what_others_computed", 2, "");
    assert!(found.len() > 60, "{found:?}");
    let states = ["qwen3_next", "qwen3_5", "mamba2", "granitemoehybrid", "nemotron_h", "lfm2"];
    let others = ["deepseek_v3", "minicpm3", "olmo2", "minimax_m2", "gpt_oss", "gemma4_experts"];
    for name in [states, others].concat() {
        assert!(found.iter().any(|found| found == name), "{name} is not shared: {found:?}");
    }
}

/// Fewer heads of keys, and groups of heads, than ranks. A few cases, because MLX's ring keeps every
/// processor busy for each of them.
#[test]
fn four_ranks_compute_what_others_computed() {
    if let Ok(cases) = std::env::var(CASES) {
        return one_rank(&cases);
    }
    let cases = "deepseek_v3 llama mamba2 olmo2 qwen3_next";
    let found = shared("four_ranks_compute_what_others_computed", 4, cases);
    assert_eq!(found.join(" "), cases);
}
