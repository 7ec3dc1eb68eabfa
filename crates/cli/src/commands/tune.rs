//! `hearth tune`: which settings are fastest on this machine, by measurement.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use backend::KvFormat;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lab::rng::Rng;
use lab::stats::{Contrast, Verdict, median, of_pairs};

use super::bench::{Bench, Cell};
use crate::env::Environment;
use crate::load::{self, Crowd, LoadArgs, Opened};
use crate::progress::Meter;
use crate::store::catalog::DEFAULT_ALIAS;
use crate::tuned::{Settings, Tried, Tuning};

const EXAMPLES: &str = "\
Examples:
  hearth tune
  hearth tune ./model.gguf --try-threads 1,2,4 --prompt 2048 --gen 64
  hearth tune --try-kv-formats i16,f16,q8";

/// Find the fastest settings for a model on this machine
///
/// Measures the time of a typical request, --prompt tokens to read and --gen to write, in rounds of random
/// order: first with each number of threads, then, with the best of these, with each number of rows in a pass.
/// The best is saved with what was measured, and `hearth serve` and `hearth chat` use it from then on, unless
/// told otherwise; of those that cannot be told apart from it, the one that takes least. Answers do not depend
/// on any of this. They do on the format of keys and values, which is only compared when asked for, and never
/// used without being asked for.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to tune for
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Numbers of threads to try [default: from 1 to all processors]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    try_threads: Vec<usize>,
    /// Numbers of rows of one pass to try [default: 256, 128, and 512 and 1024 up to the prompt's length]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    try_pass_rows: Vec<usize>,
    /// Formats of keys and values to compare, which answers depend on
    #[arg(long, value_delimiter = ',', value_name = "FORMAT", value_parser = kv_formats())]
    try_kv_formats: Vec<String>,
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

/// A difference of less is worth no change.
const WORTH: f64 = 0.02;

fn kv_formats() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(KvFormat::ALL.map(KvFormat::name))
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let mut best = Settings {
        threads: args.load.options().n_threads(),
        pass_rows: args.load.pass_rows.unwrap_or(load::MAX_ROWS),
        kv_format: args.load.kv_format().name().to_owned(),
    };
    let threads = candidates(&args.try_threads);
    if let Some(wrong) = threads.iter().find(|n| !load::threads_range().contains(n)) {
        bail!("--try-threads {wrong}: must be 1 to {}", load::threads_range().end());
    }
    let rows = row_candidates(&args.try_pass_rows, args.prompt as usize);
    if let Some(wrong) = rows.iter().find(|n| !load::PASS_ROWS.contains(n)) {
        bail!("--try-pass-rows {wrong}: must be {:?}", load::PASS_ROWS);
    }
    let mut tried = Vec::new();
    let mut compare = |settings: Vec<Settings>, best: &mut Settings| -> Result<()> {
        if settings.is_empty() {
            return Ok(());
        }
        let measured = measure(&settings, &path, args)?;
        best.clone_from(&fastest(&measured).unwrap_or(&measured[0]).settings);
        tried.extend(measured);
        Ok(())
    };
    let with = |n: &usize| Settings { threads: *n, ..best.clone() };
    compare(threads.iter().map(with).collect(), &mut best)?;
    let with = |n: &usize| Settings { pass_rows: *n, ..best.clone() };
    compare(rows.iter().map(with).collect(), &mut best)?;
    let with = |name: &String| Settings { kv_format: name.clone(), ..best.clone() };
    compare(args.try_kv_formats.iter().map(with).collect(), &mut best)?;
    let tuning = Tuning {
        n_prompt: args.prompt,
        n_gen: args.generate,
        tried,
        ..Tuning::new(&args.model, &args.load, best)
    };
    let path = tuning.save(env)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&tuning)?)?;
    } else {
        print(&tuning, out)?;
        let Settings { threads, pass_rows, kv_format } = &tuning.best;
        writeln!(out, "saved in {}; serve and chat use it:", path.display())?;
        writeln!(out, "  --threads {threads} --pass-rows {pass_rows}")?;
        if *kv_format != args.load.kv_format().name() {
            writeln!(out, "not used, because answers depend on it:\n  --kv-format {kv_format}")?;
        }
    }
    Ok(())
}

/// Times of requests with each of the settings, in rounds of random order.
fn measure(all: &[Settings], path: &Path, args: &Args) -> Result<Vec<Tried>> {
    let mut benches = Vec::new();
    for settings in all {
        let load = settings.applied(&args.load);
        let opened = Opened::new(path, &load, Crowd::ONE)?;
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
    let tried = all.iter().zip(seconds).map(|(settings, rounds)| Tried {
        settings: settings.clone(),
        seconds: median(&rounds),
        seconds_rounds: rounds,
    });
    Ok(tried.collect())
}

/// Those with few threads first.
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

/// What is used anyway first, then those that take less memory. A pass cannot have more rows than a prompt.
fn row_candidates(asked: &[usize], prompt: usize) -> Vec<usize> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let larger = [512, 1024].into_iter().filter(|&rows| rows <= prompt);
    [load::MAX_ROWS, 128].into_iter().chain(larger).collect()
}

/// The fastest; or the first one that cannot be told from it.
fn fastest(tried: &[Tried]) -> Option<&Tried> {
    let fastest = tried.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
    let as_fast =
        |one: &&Tried| compared(one, fastest).is_some_and(|c| c.verdict(false) == Verdict::Same);
    tried.iter().take_while(|one| !std::ptr::eq(*one, fastest)).find(as_fast).or(Some(fastest))
}

fn compared(one: &Tried, with: &Tried) -> Option<Contrast> {
    let pairs: Vec<(f64, f64)> =
        one.seconds_rounds.iter().copied().zip(with.seconds_rounds.iter().copied()).collect();
    of_pairs(&pairs, WORTH)
}

fn print(tuning: &Tuning, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:>7} {:>5} {:>6} {:>10}   of a request",
        "threads", "rows", "format", "seconds"
    )?;
    for Tried { settings, seconds, seconds_rounds } in &tuning.tried {
        let mark = if *settings == tuning.best { "  best" } else { "" };
        let fastest = seconds_rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = seconds_rounds.iter().copied().fold(0.0, f64::max);
        let Settings { threads, pass_rows, kv_format } = settings;
        writeln!(
            out,
            "{threads:>7} {pass_rows:>5} {kv_format:>6} {seconds:>10.3}   {fastest:.3} to {slowest:.3}{mark}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(threads: usize, rounds: [f64; 5]) -> Tried {
        let settings = Settings { threads, pass_rows: 256, kv_format: "i16".to_owned() };
        Tried { settings, seconds: median(&rounds), seconds_rounds: rounds.to_vec() }
    }

    fn best(tried: &[Tried]) -> usize {
        fastest(tried).unwrap().settings.threads
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
        assert!(fastest(&[]).is_none());
    }

    #[test]
    fn numbers_to_try_are_each_tried_once() {
        assert_eq!(candidates(&[4, 1, 4]), [1, 4]);
        assert_eq!(candidates(&[]).first(), Some(&1));
        assert_eq!(row_candidates(&[], 512), [256, 128, 512]);
        assert_eq!(row_candidates(&[], 4096), [256, 128, 512, 1024]);
        assert_eq!(row_candidates(&[64], 512), [64]);
    }
}
