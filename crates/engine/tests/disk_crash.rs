//! Killed while it writes, again and again: what is found afterwards is right, and all that was
//! said to be written is found.
//!
//! The victim is this same test program, started as another process.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::*;
use hearth_engine::{DiskOptions, Engine};

/// Names the folder for the process that is to be killed.
const FOLDER: &str = "HEARTH_TEST_CRASH_FOLDER";
const ROUNDS: u32 = 60;
/// Prompts of a round, of eight whole blocks each.
const PROMPTS: u32 = 40;

fn disk(dir: &Path) -> DiskOptions {
    DiskOptions { dir: dir.into(), max_bytes: 1 << 30, min_free_bytes: 0, fingerprint: [1; 32] }
}

/// Blocks of 50 KB, so that a kill often hits the middle of one.
fn started(dir: &Path) -> Engine {
    let mut engine = engine(Toy::with_padding(400, 50_000), limits(256, 2, 2000));
    engine.keep_on_disk(&disk(dir)).unwrap();
    engine.flush();
    engine
}

fn ask(round: u32, n: u32) -> Ask {
    let number = round * PROMPTS + n;
    let start = [number % 24, number / 24 % 24, number / 576 % 24, 5];
    let rest = (0..254u32).map(|i| (i * 7 + number) % VOCAB as u32);
    Ask::greedy(&start.into_iter().chain(rest).collect::<Vec<_>>(), 3)
}

/// The victim: answers prompts and says which are on disk. Without a folder there is nothing to do.
#[test]
fn a_process_that_writes_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (folder, round) = folder.rsplit_once(':').unwrap();
    let mut engine = started(Path::new(folder));
    let mut out = std::io::stdout();
    for n in 0..PROMPTS {
        let answer = submit(&mut engine, &ask(round.parse().unwrap(), n));
        run(&mut engine);
        assert!(matches!(outcome(answer).end, End::Done(..)));
        // Every other prompt's blocks are left to the writer, to be killed at work.
        if n % 2 == 0 {
            engine.flush();
            writeln!(out, "written {n}").unwrap();
        }
    }
    engine.flush();
    // Killed while nothing happens, too.
    std::thread::park();
}

/// A process that does not outlive the test, however that ends.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be dead already, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn victim(dir: &Path, round: u32) -> Victim {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["a_process_that_writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, format!("{}:{round}", dir.display()))
        .stdout(Stdio::piped())
        .spawn();
    Victim(child.unwrap())
}

/// Kills it after it has reported `n` prompts. Returns the last one that it reported.
fn kill_after(mut victim: Victim, n: u32) -> Option<u32> {
    let mut lines = BufReader::new(victim.0.stdout.take().unwrap()).lines();
    let mut last = None;
    let mut reports = 0;
    while reports < n {
        let line = lines.next().unwrap().unwrap();
        if let Some(number) = line.strip_prefix("written ") {
            last = Some(number.parse().unwrap());
            reports += 1;
        }
    }
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    // What it said before it died counts as well.
    let said = lines
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("written ").and_then(|number| number.parse().ok()));
    said.last().or(last)
}

#[test]
fn a_kill_costs_at_most_what_was_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for round in 0..ROUNDS {
        let last = kill_after(victim(dir.path(), round), round * 7 % (PROMPTS / 2 + 1));
        written.push(last.map_or(0, |last| last + 1));
    }
    let mut engine = started(dir.path());
    for (round, written) in (0..).zip(written) {
        for n in 0..PROMPTS {
            let ask = ask(round, n);
            let answer = submit(&mut engine, &ask);
            run(&mut engine);
            let found = outcome(answer);
            assert_eq!(found.said(), alone(&ask, 400, 2000).said(), "round {round}, prompt {n}");
            if n < written {
                assert_eq!(found.cached, Some(256), "round {round}, prompt {n}");
            }
        }
    }
    let stats = engine.stats().disk.unwrap();
    assert_eq!((stats.damaged, stats.write_errors), (0, 0));
}
