//! `hearth rm`: removes downloads.

use anyhow::Result;

use crate::env::Environment;

/// Removes a model from the caches. Files that you named by path are yours and stay.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// As `hearth ls` shows them
    #[arg(required = true)]
    models: Vec<String>,
}

pub(super) fn run(args: &Args, env: &Environment) -> Result<()> {
    for name in &args.models {
        for folder in super::with_store(env, |store| store.remove(name))? {
            println!("removed {}", folder.display());
        }
    }
    Ok(())
}
