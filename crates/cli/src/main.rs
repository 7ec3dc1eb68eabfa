//! The `hearth` command: the only place that reads flags and the environment, names a device and
//! wires the crates together.

mod agents;
mod commands;
mod disk_cache;
mod edge;
mod env;
mod load;
mod machine;
mod progress;
#[cfg(with_mlx)]
mod ranks;
mod service;
mod signals;
mod size;
mod store;
mod tuned;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::env::Environment;

/// Runs language models on this machine.
///
/// Chat in the terminal, serve any OpenAI client, measure speed. A MODEL is a short name (`hearth
/// models --available`), a folder, a .gguf file, or a hub repository as org/name.
#[derive(Parser)]
#[command(name = "hearth", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Never touch the network; use only what is on this machine (also: HF_HUB_OFFLINE=1)
    #[arg(long, global = true)]
    offline: bool,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut env = Environment::read();
    env.offline |= cli.offline;
    let mut out = std::io::stdout().lock();
    match commands::run(cli.command, &env, &mut out) {
        Ok(status) => status,
        // As in `hearth chat ... | head`: the reader has what it wants.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes. Many name their cause themselves; it is not said twice.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_errors = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    io_errors.map(std::io::Error::kind).any(|kind| kind == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("disk full").context("m.gguf: disk full").context("no model");
        assert_eq!(one_line(&error), "no model: m.gguf: disk full");
    }
}
