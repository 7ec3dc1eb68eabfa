//! `hearth lab`: measures servers, ours and others, and shows what it found.

mod host;
mod run;
mod show;

use std::io::Write;

use anyhow::Result;

use crate::env::Environment;

pub(super) use host::Terminal;

const EXAMPLES: &str = "\
Examples:
  hearth lab run bench/plans/small.toml
  hearth lab run --url http://127.0.0.1:8000 --model default --workload context
  hearth lab report target/lab/small
  hearth lab compare target/lab/small";

/// Measure servers over HTTP, compare them, draw charts
///
/// Engines, workloads and plans are data (bench/engines, bench/workloads, bench/plans). What was measured
/// is one file of JSON lines with every raw time; tables, charts and verdicts are made of it. The rules
/// that keep the numbers honest are in docs/lab.md.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(run::Args),
    Report(show::ReportArgs),
    Plot(show::PlotArgs),
    Compare(show::CompareArgs),
}

pub(super) fn run(args: Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    match args.command {
        Command::Run(args) => run::run(args, env, out),
        Command::Report(args) => show::report(&args, out),
        Command::Plot(args) => show::plot(&args, out),
        Command::Compare(args) => show::compare(&args, out),
    }
}
