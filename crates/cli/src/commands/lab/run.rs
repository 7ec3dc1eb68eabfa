//! `hearth lab run`: carries out a plan, or measures one running server.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use lab::engine::Engine;
use lab::plan::{Arm, Model, Plan, greedy};
use lab::record::Target;
use lab::run::{Bench, records_path};
use lab::workload::Workload;

use super::host::Terminal;
use crate::env::Environment;
use crate::store::catalog::{DEFAULT_ALIAS, ModelName};

/// Measure what a plan says, or one running server
///
/// Results are added to FOLDER/records.jsonl as they come. Ctrl-C ends after what has been measured so
/// far; the same command goes on from there.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Plan, a file in TOML
    #[arg(required_unless_present = "url")]
    plan: Option<PathBuf>,
    /// Address of a running server to measure instead
    #[arg(long, conflicts_with = "plan")]
    url: Option<String>,
    /// What that server calls its model
    #[arg(long, requires = "url", default_value = DEFAULT_ALIAS)]
    model: String,
    /// Model whose tokenizer makes prompts of exact length and checks the server's counts
    #[arg(long, requires = "url", value_name = "MODEL")]
    tokenizer: Option<String>,
    /// Workloads to measure it with
    #[arg(long, requires = "url", value_delimiter = ',', default_value = "context")]
    workload: Vec<String>,
    /// File with the key that the server wants
    #[arg(long, requires = "url", value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Folder of the results [default: target/lab/NAME]
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Runs of every cell, in place of what the plan says
    #[arg(long)]
    runs: Option<u32>,
    /// Where the program of an engine is
    #[arg(long, value_name = "ENGINE=PATH", value_parser = program)]
    program: Vec<(String, PathBuf)>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

fn program(text: &str) -> Result<(String, PathBuf), String> {
    let (engine, path) = text.split_once('=').ok_or("must be ENGINE=PATH")?;
    Ok((engine.to_owned(), PathBuf::from(path)))
}

pub(super) fn run(args: Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let mut plan = match (&args.plan, &args.url) {
        (Some(path), _) => Plan::read(path)?,
        (None, Some(url)) => of_url(url, &args)?,
        (None, None) => bail!("give a plan or --url"),
    };
    if let Some(runs) = args.runs {
        plan.runs = runs;
    }
    if let Ok(this) = std::env::current_exe() {
        plan.find_program("hearth", &this);
    }
    for (engine, path) in &args.program {
        if !plan.set_program(engine, path) {
            bail!("--program: the plan has no engine {engine}");
        }
    }
    if let Some(path) = &args.api_key_file {
        let key = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        plan.arms.iter_mut().for_each(|arm| arm.key = Some(key.trim().to_owned()));
    }
    plan.resolve(|name| match ModelName::parse(name) {
        Ok(ModelName::Alias(_)) => super::super::resolve(name, env).map(Some),
        _ => Ok(None),
    })?;
    if args.dry_run {
        return describe(&plan, out);
    }
    let default = || PathBuf::from("target/lab").join(&plan.name);
    let folder = args.out.clone().unwrap_or_else(default);
    let terminal = Terminal::new("measuring")?;
    let mut bench = Bench::open(&plan, &folder, &terminal)?;
    let complete = bench.run()?;
    drop(bench);
    terminal.finish();
    let path = records_path(&folder);
    writeln!(out, "{}", path.display())?;
    if !complete {
        let (what, again) = ("not everything was measured", "the same command goes on from here");
        return Err(anyhow!("{what}; {again}"));
    }
    Ok(())
}

fn of_url(url: &str, args: &Args) -> Result<Plan> {
    let mut forms = [(lab::engine::Format::Name, args.model.clone())].to_vec();
    if let Some(tokenizer) = &args.tokenizer {
        forms.push((lab::engine::Format::Gguf, tokenizer.clone()));
    }
    let workloads = args.workload.iter().map(|name| Workload::named(name, toml::Table::new()));
    Ok(Plan {
        name: "url".to_owned(),
        text: format!("url = \"{url}\""),
        runs: 5,
        warm_up: 1,
        cool_down_s: 1.0,
        threads: 0,
        seed: 1,
        limit_s: 600,
        sampling: greedy(),
        target: Target::default(),
        arms: vec![Arm {
            label: url.to_owned(),
            engine: Engine::named("url")?,
            arguments: Vec::new(),
            url: Some(url.to_owned()),
            key: None,
            models: Vec::new(),
            cells: None,
        }],
        null: None,
        models: vec![Model {
            name: args.model.clone(),
            forms: forms.into_iter().collect(),
            cells: None,
        }],
        workloads: workloads.collect::<Result<_, _>>()?,
    })
}

fn describe(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}: {} runs of every cell", plan.name, plan.runs)?;
    for (model, arm) in plan.pairs() {
        writeln!(out, "  {} with {}", arm.label, model.name)?;
    }
    for workload in &plan.workloads {
        let cells: Vec<String> = workload.cells().iter().map(|cell| cell.at.to_string()).collect();
        writeln!(out, "  {}: {}", workload.title, cells.join(" "))?;
    }
    let runs = plan.n_runs();
    let rest = runs as f64 * plan.cool_down_s / 60.0;
    writeln!(out, "{runs} runs in all, {rest:.0} minutes of them are rest")?;
    Ok(())
}
