//! `hearth eval`: whether a model's answers are right, beside how fast they are.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lab::engine::{Engine, Format};
use lab::eval::code::{Fence, Outcome, Problem};
use lab::eval::{DEPTHS, Question, Tally, bfcl, call, choice, code, data, index, needle};
use lab::plan::{Arm, Model, Plan, greedy};
use lab::record::Target;
use lab::rng::Rng;
use lab::run::{Ask, Host, ask_one};
use serde::Serialize;

use super::lab::Terminal;
use crate::env::Environment;
use crate::load;
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth eval default
  hearth eval ./model.gguf --needle 512,2048,8192 --calls 40 --json
  hearth eval qwen2.5-0.5b-coder-q4_k_m --bfcl BFCL_v4_simple_python.json --humaneval HumanEval.jsonl --run-model-code
  hearth perplexity ./model-q4.gguf book.txt --against ./model-q8.gguf";

/// Measure how often a model's answers are right
///
/// Starts a server with the model and asks it, greedily, what has one right answer: numbers that were hidden
/// in texts of --needle tokens, at five depths; and calls of a function that a question plainly asks for.
/// Questions of others come from files that are given by path: BFCL (simple), HumanEval, MMLU. Where all
/// three are, the model-harness index is told: 50 % calls, 30 % programs, 20 % choices.
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
    #[command(flatten)]
    files: Files,
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

/// Questions of others.
#[derive(clap::Args)]
struct Files {
    /// Questions that ask for one call, in the form of BFCL (simple)
    #[arg(long, value_name = "FILE")]
    bfcl: Option<PathBuf>,
    /// Possible answers to those; without them a call is right whose arguments are of the declared types
    #[arg(long, value_name = "FILE", requires = "bfcl")]
    bfcl_answers: Option<PathBuf>,
    /// Questions with choices, in the form of MMLU (lines with question, choices, answer)
    #[arg(long, value_name = "FILE")]
    mmlu: Option<PathBuf>,
    /// Functions to be written, in the form of HumanEval; needs --run-model-code
    #[arg(long, value_name = "FILE", requires = "run_model_code")]
    humaneval: Option<PathBuf>,
    /// Run the Python programs that the model writes, ON THIS MACHINE, as this user. A child process
    /// bounds their time, memory and files to write to, not which files they read
    #[arg(long, requires = "humaneval")]
    run_model_code: bool,
    /// Python to run them with
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Questions of each file, drawn by the seed
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
}

/// Seconds and bytes that a program may take.
const PROGRAM: (u64, u64) = (10, 1 << 30);

/// What was found.
#[derive(Serialize)]
struct Findings {
    model: String,
    seed: u64,
    /// By length of the text and depth in percent.
    needle: BTreeMap<u32, BTreeMap<u32, Tally>>,
    calls: Tally,
    bfcl: Tally,
    humaneval: Tally,
    mmlu: Tally,
    /// In percent, where all its parts were asked for.
    model_harness_index: Option<f64>,
}

/// What a question belongs to.
#[derive(Clone, Copy)]
enum Part {
    Needle { length: u32, depth: u32 },
    Calls,
    Bfcl,
    Mmlu,
}

impl Findings {
    fn tally(&mut self, part: Part) -> &mut Tally {
        match part {
            Part::Needle { length, depth } => {
                self.needle.entry(length).or_default().entry(depth).or_default()
            }
            Part::Calls => &mut self.calls,
            Part::Bfcl => &mut self.bfcl,
            Part::Mmlu => &mut self.mmlu,
        }
    }
}

/// All that is asked.
struct Questions {
    plain: Vec<(Part, Question)>,
    /// And what their answers are run in.
    programs: Option<(Vec<Problem>, Fence)>,
}

impl Questions {
    fn of(args: &Args, tokens: &dyn lab::prompt::CountTokens) -> Result<Questions> {
        let mut rng = Rng::of(args.seed, "eval");
        let mut plain: Vec<(Part, Question)> = Vec::new();
        for &length in args.needle.iter().filter(|&&n| n > 0) {
            for depth in DEPTHS {
                for _ in 0..args.per_depth {
                    let question = needle(length, depth, &mut rng, tokens);
                    plain.push((Part::Needle { length, depth }, question));
                }
            }
        }
        plain.extend((0..args.calls).map(|_| (Part::Calls, call(&mut rng))));
        let Files { bfcl, bfcl_answers, mmlu, humaneval, python, sample, .. } = &args.files;
        let drawn = |part: Part, all: Vec<Question>| {
            let mut rng = Rng::of(args.seed, "sample");
            data::sample(all, *sample as usize, &mut rng).into_iter().map(move |one| (part, one))
        };
        if let Some(path) = bfcl {
            plain.extend(drawn(Part::Bfcl, bfcl::read(path, bfcl_answers.as_deref())?));
        }
        if let Some(path) = mmlu {
            plain.extend(drawn(Part::Mmlu, choice::read(path)?));
        }
        let programs = match humaneval {
            None => None,
            Some(path) => {
                let all = code::read(path)?;
                let mut rng = Rng::of(args.seed, "sample");
                let (seconds, memory) = PROGRAM;
                let problems = data::sample(all, *sample as usize, &mut rng);
                Some((problems, Fence::new(python, seconds, memory)?))
            }
        };
        Ok(Questions { plain, programs })
    }

    fn len(&self) -> usize {
        self.plain.len() + self.programs.as_ref().map_or(0, |(problems, _)| problems.len())
    }

    /// Asks one after the other, until somebody wants it to end.
    fn ask(&self, host: &Terminal, ask: &mut Ask, findings: &mut Findings) -> Result<()> {
        let all = self.len();
        for (n, (part, question)) in self.plain.iter().enumerate() {
            if host.stopped() {
                return Ok(());
            }
            host.progress(n, all, "asking");
            findings.tally(*part).add(question, &ask(&question.step));
        }
        let Some((problems, fence)) = &self.programs else { return Ok(()) };
        let mut rng = Rng::of(findings.seed, "signs");
        for (n, problem) in problems.iter().enumerate() {
            if host.stopped() {
                return Ok(());
            }
            host.progress(self.plain.len() + n, all, &problem.task_id);
            let turn = ask(&problem.step());
            let passed = turn.error.is_none()
                && fence.judge(problem, &turn.answer, &mut rng)? == Outcome::Passed;
            findings.humaneval.count(&turn, passed);
        }
        Ok(())
    }
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let terminal = Terminal::new("asking")?;
    let plan = plan(args, &path)?;
    let tokens = terminal.tokenizer(&plan.models[0]).context("the model has no tokenizer")?;
    let questions = Questions::of(args, &*tokens)?;
    if let Some((_, fence)) = &questions.programs
        && !fence.is_offline()
    {
        terminal
            .note("programs of the model have the network: this system lets nobody take it away");
    }
    let mut findings = Findings {
        model: load::model_id(&args.model),
        seed: args.seed,
        needle: BTreeMap::new(),
        calls: Tally::default(),
        bfcl: Tally::default(),
        humaneval: Tally::default(),
        mmlu: Tally::default(),
        model_harness_index: None,
    };
    let folder = env.cache.join(format!("eval-{}", std::process::id()));
    let mut judged = Ok(());
    let asked = ask_one(&plan, &folder, &terminal, &mut |ask| {
        judged = questions.ask(&terminal, ask, &mut findings);
    });
    // The log of the server is worth something only if it could not be started.
    if asked.is_ok() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    let stopped = terminal.stopped();
    terminal.finish();
    asked?;
    judged?;
    if stopped {
        bail!("interrupted: there is no result");
    }
    let Findings { bfcl, humaneval, mmlu, .. } = &findings;
    findings.model_harness_index = index(bfcl, humaneval, mmlu);
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
    let Files { bfcl, mmlu, humaneval, .. } = &args.files;
    // Questions of others are longer than ours; those of one of these files are known to fit.
    let others = bfcl.is_some() || mmlu.is_some() || humaneval.is_some();
    let least = if others { 3072 } else { 512 };
    let context = format!("sizes = [{}]\nanswer = 512", longest.max(least));
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
            cells: None,
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
    let Findings { calls, bfcl, humaneval, mmlu, .. } = findings;
    let parts = [("calls", calls), ("BFCL simple", bfcl), ("HumanEval", humaneval), ("MMLU", mmlu)];
    for (name, tally) in parts.into_iter().filter(|(_, tally)| tally.asked > 0) {
        writeln!(out, "{name:<14} {}", told(tally))?;
    }
    if let Some(index) = findings.model_harness_index {
        writeln!(out, "{:<14} {index:.1}", "index")?;
    }
    Ok(())
}
