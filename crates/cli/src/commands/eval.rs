//! `hearth eval`: whether a model's answers are right, beside how fast they are.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lab::engine::{Engine, Format};
use lab::eval::{DEPTHS, Question, Tally, call, needle};
use lab::plan::{Arm, Model, Plan, greedy};
use lab::record::Target;
use lab::rng::Rng;
use lab::run::{Host, ask_one};
use serde::Serialize;

use super::lab::Terminal;
use crate::env::Environment;
use crate::load;
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth eval default
  hearth eval ./model.gguf --needle 512,2048,8192 --calls 40 --json
  hearth perplexity ./model-q4.gguf book.txt --against ./model-q8.gguf";

/// Measure how often a model's answers are right
///
/// Starts a server with the model and asks it, greedily, what has one right answer: numbers that were hidden
/// in texts of --needle tokens, at five depths; and calls of a function that a question plainly asks for.
/// How near one format of a model is to another says `hearth perplexity --against`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to ask
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Lengths of the texts in which numbers are hidden; 0 leaves that out
    #[arg(long, value_delimiter = ',', default_value = "512,2048", value_name = "TOKENS")]
    needle: Vec<u32>,
    /// Numbers hidden at each depth of each length
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_depth: u32,
    /// Questions that ask for a call; 0 leaves that out
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(..=10_000))]
    calls: u32,
    /// Threads that compute [default: one per processor]
    #[arg(long, default_value_t = 0, value_name = "N", hide_default_value = true)]
    threads: usize,
    /// Seed of the questions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print an object for programs
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Serialize)]
struct Findings {
    model: String,
    seed: u64,
    /// By length of the text and depth in percent.
    needle: BTreeMap<u32, BTreeMap<u32, Tally>>,
    calls: Tally,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let terminal = Terminal::new("asking")?;
    let plan = plan(args, &path)?;
    let tokens = terminal.tokenizer(&plan.models[0]).context("the model has no tokenizer")?;
    let mut rng = Rng::of(args.seed, "eval");
    let mut questions: Vec<(Option<(u32, u32)>, Question)> = Vec::new();
    for &n in args.needle.iter().filter(|&&n| n > 0) {
        for depth in DEPTHS {
            for _ in 0..args.per_depth {
                questions.push((Some((n, depth)), needle(n, depth, &mut rng, &*tokens)));
            }
        }
    }
    questions.extend((0..args.calls).map(|_| (None, call(&mut rng))));
    let mut findings = Findings {
        model: load::model_id(&args.model),
        seed: args.seed,
        needle: BTreeMap::new(),
        calls: Tally::default(),
    };
    let folder = env.cache.join(format!("eval-{}", std::process::id()));
    let all = questions.len();
    let asked = ask_one(&plan, &folder, &terminal, &mut |ask| {
        for (n, (place, question)) in questions.iter().enumerate() {
            if terminal.stopped() {
                return;
            }
            terminal.progress(n, all, "asking");
            let tally = match place {
                Some((length, depth)) => {
                    findings.needle.entry(*length).or_default().entry(*depth).or_default()
                }
                None => &mut findings.calls,
            };
            tally.add(question, &ask(&question.step));
        }
    });
    // The log of the server is worth something only if it could not be started.
    if asked.is_ok() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    let stopped = terminal.stopped();
    terminal.finish();
    asked?;
    if stopped {
        bail!("interrupted: there is no result");
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&findings)?)?;
    } else {
        print(&findings, out)?;
    }
    Ok(())
}

fn plan(args: &Args, path: &Path) -> Result<Plan> {
    let mut engine = Engine::named("hearth")?;
    engine.program = Some(std::env::current_exe()?.display().to_string());
    // Answers end by themselves here.
    engine.fields.remove("ignore_eos");
    let longest = args.needle.iter().copied().max().unwrap_or(0);
    let context = format!("sizes = [{}]\nanswer = 256", longest.max(512));
    let workload = lab::workload::Workload::named("context", toml::from_str(&context)?)?;
    Ok(Plan {
        name: "eval".to_owned(),
        text: String::new(),
        runs: 1,
        warm_up: 0,
        cool_down_s: 0.0,
        threads: args.threads,
        seed: args.seed,
        limit_s: 3600,
        sampling: greedy(),
        target: Target::default(),
        arms: vec![Arm {
            label: "hearth".to_owned(),
            engine,
            arguments: Vec::new(),
            url: None,
            key: None,
            models: Vec::new(),
        }],
        null: None,
        models: vec![Model {
            name: load::model_id(&args.model),
            forms: [(Format::Gguf, path.display().to_string())].into(),
            cells: None,
        }],
        workloads: vec![workload],
    })
}

fn print(findings: &Findings, out: &mut dyn Write) -> std::io::Result<()> {
    let told = |tally: &Tally| match tally.failed {
        0 => format!("{} of {}", tally.right, tally.asked),
        failed => format!("{} of {}, {failed} failed", tally.right, tally.asked),
    };
    for (length, depths) in &findings.needle {
        writeln!(out, "needle in {length} tokens")?;
        for (depth, tally) in depths {
            writeln!(out, "  at {depth:>3} %   {}", told(tally))?;
        }
    }
    if findings.calls.asked > 0 {
        writeln!(out, "calls          {}", told(&findings.calls))?;
    }
    Ok(())
}
