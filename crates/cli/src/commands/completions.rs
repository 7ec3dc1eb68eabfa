//! `hearth completions`: scripts for shells.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;

const EXAMPLES: &str = "\
Examples:
  source <(hearth completions bash)
  hearth completions zsh > ~/.zfunc/_hearth
  hearth completions fish > ~/.config/fish/completions/hearth.fish";

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    // The generator panics where it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "hearth", &mut script);
    out.write_all(&script)?;
    Ok(())
}
