//! `hearth rm`: removes downloads.

use std::io::Write;

use anyhow::Result;

use crate::env::Environment;

const EXAMPLES: &str = "\
Example:
  hearth rm smollm2-135m-4bit";

/// Remove a downloaded model
///
/// Removes a model from the caches. Files that you named by path are yours and stay.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// As `hearth ls` shows them
    #[arg(required = true)]
    models: Vec<String>,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    for name in &args.models {
        for folder in super::with_store(env, |store| store.remove(name))? {
            writeln!(out, "removed {}", folder.display())?;
        }
    }
    Ok(())
}
