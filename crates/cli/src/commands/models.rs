//! `hearth models`, `hearth ls`: what is here and what could be.

use std::io::Write;

use anyhow::Result;

use crate::env::Environment;
use crate::machine::human_bytes;
use crate::store::catalog::{self, DEFAULT_ALIAS};

const EXAMPLES: &str = "\
Examples:
  hearth models
  hearth models --available";

/// List the models on this machine, or the short names that can be pulled
///
/// Without flags: the models in the caches of this machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The short names that `hearth pull` knows
    #[arg(long, conflicts_with = "supported")]
    available: bool,
    /// The model families that this build runs, with their names and layers, as a Markdown table
    #[arg(long)]
    supported: bool,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    if args.supported {
        out.write_all(models::support_table()?.as_bytes())?;
        return Ok(());
    }
    if args.available {
        for entry in catalog::entries() {
            let size = entry.size.map_or_else(String::new, human_bytes);
            writeln!(out, "{:<28} {size:>12}  {} [{}]", entry.alias, entry.about, entry.license)?;
        }
        return Ok(());
    }
    let installed = super::with_store(env, |store| Ok(store.list()))?;
    if installed.is_empty() {
        eprintln!("No models here yet. `hearth pull {DEFAULT_ALIAS}` gets the default one,");
        eprintln!("`hearth models --available` lists more.");
    }
    for model in installed {
        let size = human_bytes(model.bytes);
        writeln!(out, "{:<44} {size:>12}  {}", model.name, model.path.display())?;
    }
    Ok(())
}
