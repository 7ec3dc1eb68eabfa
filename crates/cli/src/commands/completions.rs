//! `hearth completions`: scripts for shells.

use anyhow::Result;
use clap::CommandFactory;

/// For bash, for example: `source <(hearth completions bash)`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &Args) -> Result<()> {
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "hearth",
        &mut std::io::stdout(),
    );
    Ok(())
}
