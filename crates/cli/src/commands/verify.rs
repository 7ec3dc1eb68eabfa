//! `hearth verify`: the promise, put to the proof on the user's own model and machine.

mod arms;
mod ask;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use engine::{DiskOptions, Executor, ExecutorShape, Handle, Limits};
use serde::Serialize;
use text::Tokenizer;

use self::arms::{Depth, Proof, Report, Setup, Verdict};
use self::ask::Promise;
use crate::env::Environment;
use crate::load::{Crowd, LoadArgs, Opened};
use crate::progress::Meter;
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth verify
  hearth verify ./model.gguf --tokens 8 --threads 4
  hearth verify default --json && echo every byte is the same";

/// Prove that the same request gets the same bytes from a model on this machine
///
/// Asks eight questions, greedily and with a seed, each alone on a fresh engine, and then again in
/// every way that must not matter: in a crowd, with the prompt in chunks, with a warm cache, after
/// a restart, with other numbers of threads, after giving way to others. Tokens and their
/// probabilities are compared bit for bit; on MLX, which chooses among kernels by the number of rows,
/// as near as it promises: log-probabilities within 0.001 (more in 16 bits), and another token only
/// where that decides. Ends with status 1 if anything differs.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to verify
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Tokens of each answer
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1024))]
    tokens: u16,
    /// Leave out what takes answers of more than 256 tokens: giving way to others
    #[arg(long)]
    quick: bool,
    /// Print an object for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
}

/// What was found, for programs.
#[derive(Serialize)]
struct Findings<'a> {
    model: &'a str,
    threads: usize,
    questions: usize,
    tokens: usize,
    seconds: f64,
    /// Whether what was promised is so.
    equal: bool,
    arms: &'a [Report],
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let opened = Opened::new(&path, &args.load, Crowd::ONE)?;
    let tokenizer = opened.tokenizer()?;
    let longest = opened.plan.context.saturating_sub(usize::from(args.tokens) + 1);
    let questions = ask::questions(&tokenizer, longest, args.tokens.into())?;
    let threads = args.load.options().n_threads();
    let started = Instant::now();
    let folder = Folder::new(env)?;
    let proof = Proof {
        questions: &questions,
        promise: promise(&args.load)?,
        threads,
        depth: if args.quick { Depth::Quick } else { Depth::Full },
        folder: &folder.0,
        factory: &|setup| engine(&opened, &args.load, setup),
    };
    let meter = Meter::steps("verifying", proof.n_answers());
    let reports = proof.run(&mut || meter.advance(1))?;
    drop((meter, folder));
    let findings = Findings {
        model: &args.model,
        threads,
        questions: questions.len(),
        tokens: args.tokens.into(),
        seconds: started.elapsed().as_secs_f64(),
        equal: reports.iter().all(|report| report.verdict != Verdict::Differs),
        arms: &reports,
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&findings)?)?;
    } else {
        print(&findings, &tokenizer, out)?;
    }
    out.flush()?;
    if !findings.equal {
        bail!("the same request did not give the same answer");
    }
    Ok(())
}

/// What the device that was asked for promises.
fn promise(load: &LoadArgs) -> Result<Promise> {
    Ok(match load.device()?.nearness() {
        None => Promise::Bits,
        Some(most) => Promise::Within(most),
    })
}

/// An engine for one arm, on a device of its own.
fn engine(opened: &Opened, load: &LoadArgs, setup: &Setup) -> Result<Handle> {
    let executor = load.device_with(setup.threads)?.executor(opened, setup.shape())?;
    Ok(start(executor, setup, opened.plan.context))
}

/// A folder that is gone when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(env: &Environment) -> Result<Folder> {
        let folder = env.cache.join(format!("verify-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over is a cache, which costs a little room and nothing else.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Puts an executor to work as the arm says.
fn start(executor: Box<dyn Executor>, setup: &Setup, context: usize) -> Handle {
    let ExecutorShape { max_rows, max_want, .. } = executor.shape();
    let limits = Limits {
        rows: setup.rows.min(max_rows),
        seqs: setup.seqs.min(max_want),
        queue: 64,
        context,
        stall_target: None,
    };
    match &setup.disk {
        None => engine::start(executor, limits),
        Some(dir) => {
            // The folder belongs to this proof alone, so every block in it is of this model.
            let (max_bytes, min_free_bytes, fingerprint) = (1 << 30, 0, [0; 32]);
            let disk = DiskOptions { dir: dir.clone(), max_bytes, min_free_bytes, fingerprint };
            let handle = engine::start_with_disk(executor, limits, &disk);
            // What is there has to be known before the first question. An engine that is gone says
            // so when it is asked one.
            let _ = handle.flush();
            handle
        }
    }
}

fn print(findings: &Findings<'_>, tokenizer: &Tokenizer, out: &mut dyn Write) -> Result<()> {
    for report in findings.arms {
        let Report { arm, answers, verdict, reason, difference, off } = report;
        let verdict = match verdict {
            Verdict::Equal => "equal".to_owned(),
            Verdict::Near => format!("near: {:.1e} off", off.unwrap_or(0.0)),
            Verdict::Differs => "DIFFERS".to_owned(),
            Verdict::NotTested => "not tested".to_owned(),
        };
        write!(out, "{arm:<34} {answers:>3} answers   {verdict}")?;
        match reason {
            Some(reason) => writeln!(out, ": {reason}")?,
            None => writeln!(out)?,
        }
        if let Some(difference) = difference {
            writeln!(out, "    {}", difference.told(tokenizer))?;
        }
    }
    let answers: usize = findings.arms.iter().map(|report| report.answers).sum();
    let is_near = findings.arms.iter().any(|report| report.verdict == Verdict::Near);
    let verdict = match (findings.equal, is_near) {
        (false, _) => "THE ANSWERS DIFFER",
        (true, true) => "every answer is as near as this device promises",
        (true, false) => "every byte is the same",
    };
    writeln!(
        out,
        "{}: {verdict}; {answers} answers of {} tokens in {:.1} s",
        findings.model, findings.tokens, findings.seconds
    )?;
    Ok(())
}
