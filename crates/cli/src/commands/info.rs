//! `hearth info`: what a model is made of and what it needs, without loading it.

use std::collections::BTreeMap;

use anyhow::Result;
use models::Footprint;
use serde_json::{Value, json};

use crate::env::Environment;
use crate::load::{LoadArgs, Opened};
use crate::machine::{available_memory, human_bytes};
use crate::store::catalog::DEFAULT_ALIAS;

/// Reads the headers of the files only.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to look at
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Print an object for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
}

pub(super) fn run(args: &Args, env: &Environment) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let opened = Opened::new(&path, &args.load)?;
    let footprint = Footprint::of(&opened.spec, &opened.checkpoint)?;
    let tokenizer = opened.tokenizer()?;
    let template = opened.template(&tokenizer)?;
    let spec = &opened.spec;
    let needed = footprint.weight_bytes + opened.kv_bytes();
    let facts = json!({
        "path": path.display().to_string(),
        "format": format!("{:?}", opened.checkpoint.format()),
        "family": spec.family,
        "parameters": spec.n_params(),
        "active_parameters": spec.n_active_params(),
        "layers": spec.layers.len(),
        "hidden": spec.hidden,
        "vocabulary": spec.vocab,
        "trained_context": models::recipe(&opened.checkpoint.config)?.max_positions,
        "context": opened.context,
        "weights_bytes": footprint.weight_bytes,
        "bytes_read_per_token": footprint.bytes_per_token,
        "kv_bytes_per_token": spec.kv_bytes_per_token(),
        "kv_bytes": opened.kv_bytes(),
        "available_memory_bytes": available_memory(),
        "chats": template.is_some(),
        "notes": opened.checkpoint.warnings(),
    });
    if args.json {
        println!("{}", serde_json::to_string_pretty(&facts)?);
        return Ok(());
    }
    print_facts(&facts);
    let verdict = if needed <= available_memory() { "fits" } else { "does NOT fit" };
    println!("{:<24} {verdict}: needs {}", "this machine", human_bytes(needed));
    Ok(())
}

/// One fact per line, bytes in the unit people read.
fn print_facts(facts: &Value) {
    let facts: BTreeMap<&String, &Value> = facts.as_object().into_iter().flatten().collect();
    for (name, value) in facts {
        let label = name.trim_end_matches("_bytes").replace('_', " ");
        let text = match value {
            Value::Number(n) if name.contains("bytes") => human_bytes(n.as_u64().unwrap_or(0)),
            Value::String(text) => text.clone(),
            Value::Array(notes) if notes.is_empty() => continue,
            other => other.to_string(),
        };
        println!("{label:<24} {text}");
    }
}
