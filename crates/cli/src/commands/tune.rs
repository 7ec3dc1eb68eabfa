//! `hearth tune`: which settings are fastest on this machine, by measurement.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use lab::rng::Rng;
use lab::stats::{Contrast, Verdict, median, of_pairs};
use serde::{Deserialize, Serialize};

use super::bench::{Bench, Cell};
use crate::env::Environment;
use crate::load::{self, Crowd, LoadArgs, Opened};
use crate::progress::Meter;
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth tune
  hearth tune ./model.gguf --try-threads 1,2,4 --prompt 2048 --gen 64";

/// Find the fastest number of threads for a model on this machine
///
/// Measures the time of a typical request, --prompt tokens to read and --gen to write, with each number of
/// threads, in rounds of random order. The best is saved with what was measured; of those that cannot be told
/// apart from it, the one with the fewest threads.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to tune for
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Numbers of threads to try [default: from 1 to all processors]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    try_threads: Vec<usize>,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Tokens of the answer
    #[arg(long = "gen", default_value_t = 64, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    generate: u32,
    /// Rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100))]
    rounds: u32,
    /// Print an object for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
}

/// A difference of less is not worth a thread.
const WORTH: f64 = 0.02;

/// What was found, and what was measured for it.
#[derive(Debug, Serialize, Deserialize)]
struct Tuning {
    model: String,
    cpu: String,
    n_prompt: u32,
    n_gen: u32,
    /// The best.
    threads: usize,
    tried: Vec<Tried>,
}

/// One of the settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tried {
    threads: usize,
    /// Of one request, middle of all rounds.
    seconds: f64,
    /// In the order of the rounds.
    seconds_rounds: Vec<f64>,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let candidates = candidates(&args.try_threads);
    let mut benches = Vec::new();
    for &threads in &candidates {
        let load = LoadArgs { threads: Some(threads), ..args.load.clone() };
        let opened = Opened::new(&path, &load, Crowd::ONE)?;
        benches.push(Bench::new(&opened, &load)?);
    }
    let prefill = Cell::prefill(args.prompt as usize);
    let decode = Cell::decode(args.generate as usize, args.prompt as usize);
    let mut seconds = vec![Vec::new(); benches.len()];
    let meter = Meter::steps("tuning", u64::from(args.rounds + 1) * benches.len() as u64);
    for round in 0..=args.rounds {
        let mut order: Vec<usize> = (0..benches.len()).collect();
        Rng::of(u64::from(round), "tune").shuffle(&mut order);
        for i in order {
            let read = f64::from(args.prompt) / benches[i].measure(prefill)?;
            let wrote = f64::from(args.generate) / benches[i].measure(decode)?;
            meter.advance(1);
            // The first round warms up.
            if round > 0 {
                seconds[i].push(read + wrote);
            }
        }
    }
    drop(meter);
    let tried: Vec<Tried> = candidates
        .iter()
        .zip(seconds)
        .map(|(&threads, rounds)| Tried {
            threads,
            seconds: median(&rounds),
            seconds_rounds: rounds,
        })
        .collect();
    let tuning = Tuning {
        model: load::model_id(&args.model),
        cpu: lab::run::machine().cpu,
        n_prompt: args.prompt,
        n_gen: args.generate,
        threads: best(&tried),
        tried,
    };
    let path = save(&tuning, env)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&tuning)?)?;
    } else {
        print(&tuning, out)?;
        writeln!(out, "saved in {}; use it with --threads {}", path.display(), tuning.threads)?;
    }
    Ok(())
}

fn candidates(asked: &[usize]) -> Vec<usize> {
    let processors = lab::run::machine().processors;
    let mut all: Vec<usize> = match asked {
        // All of them where they are few, doubling where they are many.
        [] if processors <= 8 => (1..=processors).collect(),
        [] => (0..).map(|n| 1 << n).take_while(|&n| n < processors).chain([processors]).collect(),
        asked => asked.to_vec(),
    };
    all.sort_unstable();
    all.dedup();
    all
}

/// The fastest; or fewer threads, if they cannot be told from it.
fn best(tried: &[Tried]) -> usize {
    let Some(fastest) = tried.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)) else {
        return 1;
    };
    let as_fast =
        |one: &&Tried| compared(one, fastest).is_some_and(|c| c.verdict(false) == Verdict::Same);
    let fewest = tried.iter().filter(as_fast).map(|one| one.threads).min();
    fewest.unwrap_or(fastest.threads).min(fastest.threads)
}

fn compared(one: &Tried, with: &Tried) -> Option<Contrast> {
    let pairs: Vec<(f64, f64)> =
        one.seconds_rounds.iter().copied().zip(with.seconds_rounds.iter().copied()).collect();
    of_pairs(&pairs, WORTH)
}

/// Beside the models, one file for each of them.
fn save(tuning: &Tuning, env: &Environment) -> Result<PathBuf> {
    let folder = env.cache.join("tune");
    let name: String = tuning
        .model
        .chars()
        .map(|c| if c.is_alphanumeric() || ".-".contains(c) { c } else { '_' })
        .collect();
    let path = folder.join(format!("{name}.json"));
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(&folder)?;
        fs::write(&path, serde_json::to_string_pretty(tuning)?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn print(tuning: &Tuning, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{:>7} {:>10}   of a request", "threads", "seconds")?;
    for one in &tuning.tried {
        let mark = if one.threads == tuning.threads { "  best" } else { "" };
        let fastest = one.seconds_rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = one.seconds_rounds.iter().copied().fold(0.0, f64::max);
        let (threads, seconds) = (one.threads, one.seconds);
        writeln!(out, "{threads:>7} {seconds:>10.3}   {fastest:.3} to {slowest:.3}{mark}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(threads: usize, rounds: [f64; 5]) -> Tried {
        Tried { threads, seconds: median(&rounds), seconds_rounds: rounds.to_vec() }
    }

    #[test]
    fn more_threads_have_to_be_worth_it() {
        let one = tried(1, [2.0, 2.01, 1.99, 2.0, 2.02]);
        let two = tried(2, [1.0, 1.01, 1.02, 1.0, 1.01]);
        let four = tried(4, [0.99, 1.0, 1.01, 1.0, 1.0]);
        assert_eq!(best(&[one.clone(), two.clone(), four]), 2);
        let four = tried(4, [0.5, 0.51, 0.5, 0.52, 0.5]);
        assert_eq!(best(&[one.clone(), two, four]), 4);
        assert_eq!(best(&[one]), 1);
        // What is too noisy to tell stays with the fastest.
        let noisy = tried(1, [1.0, 3.0, 0.9, 2.0, 1.1]);
        assert_eq!(best(&[noisy, tried(2, [1.0, 1.0, 1.0, 1.0, 1.0])]), 2);
    }

    #[test]
    fn numbers_to_try_are_each_tried_once() {
        assert_eq!(candidates(&[4, 1, 4]), [1, 4]);
        assert_eq!(candidates(&[]).first(), Some(&1));
    }
}
