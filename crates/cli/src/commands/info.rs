//! `hearth info`: what a model is made of and what it needs, without loading it.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use models::modules::Module;
use models::{Footprint, ModelSpec};
use serde::Serialize;
use weights::{Checkpoint, Format, GgufType, Packing};

use crate::env::Environment;
use crate::load::{LoadArgs, Opened};
use crate::machine::{available_memory, human_bytes};
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth info
  hearth info ./model.gguf --context 4096";

/// Show what a model is made of and what it needs
///
/// Reads the headers of the files only.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
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

/// Everything worth knowing, in the order it is told.
#[derive(Serialize)]
struct Facts {
    path: String,
    format: &'static str,
    family: &'static str,
    parameters: u64,
    /// Read for one token; fewer where there are experts.
    active_parameters: u64,
    layers: usize,
    hidden: usize,
    vocabulary: usize,
    /// Matrices by packing.
    packings: BTreeMap<String, usize>,
    weights_bytes: u64,
    bytes_read_per_token: u64,
    trained_context: usize,
    context: usize,
    kv_bytes_per_token: usize,
    kv_bytes: u64,
    available_memory_bytes: u64,
    /// Has a chat template.
    chats: bool,
    notes: Vec<String>,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let opened = Opened::new(&path, &args.load)?;
    let (spec, checkpoint) = (&opened.spec, &opened.checkpoint);
    let footprint = Footprint::of(spec, checkpoint)?;
    let tokenizer = opened.tokenizer()?;
    let facts = Facts {
        path: path.display().to_string(),
        format: match checkpoint.format() {
            Format::Mlx => "MLX",
            Format::HuggingFace => "Hugging Face",
            Format::Gguf => "GGUF",
            Format::Memory => "memory",
        },
        family: spec.family,
        parameters: spec.n_params(),
        active_parameters: spec.n_active_params(),
        layers: spec.layers.len(),
        hidden: spec.hidden,
        vocabulary: spec.vocab,
        packings: packings(spec, checkpoint),
        weights_bytes: footprint.weight_bytes,
        bytes_read_per_token: footprint.bytes_per_token,
        trained_context: models::recipe(&checkpoint.config)?.max_positions,
        context: opened.context,
        kv_bytes_per_token: spec.kv_bytes_per_token(),
        kv_bytes: opened.kv_bytes(),
        available_memory_bytes: available_memory(),
        chats: opened.template(&tokenizer)?.is_some(),
        notes: checkpoint.warnings().to_vec(),
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&facts)?)?;
    } else {
        for (label, text) in facts.lines() {
            writeln!(out, "{label:<14} {text}")?;
        }
    }
    Ok(())
}

impl Facts {
    /// Labels and texts for people.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let bits = self.weights_bytes as f64 * 8.0 / self.parameters.max(1) as f64;
        let mut packings: Vec<_> = self.packings.iter().collect();
        packings.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let packings: Vec<String> =
            packings.into_iter().map(|(packing, n)| format!("{n} x {packing}")).collect();
        let needed = self.weights_bytes + self.kv_bytes;
        let verdict = if needed <= self.available_memory_bytes { "fits" } else { "does NOT fit" };
        let mut lines = vec![
            ("path", self.path.clone()),
            ("format", self.format.to_owned()),
            ("family", self.family.to_owned()),
            ("parameters", self.parameter_count()),
            ("layers", format!("{} of width {}", self.layers, self.hidden)),
            ("vocabulary", format!("{} tokens", self.vocabulary)),
            ("chats", if self.chats { "yes" } else { "no: it has no chat template" }.to_owned()),
            (
                "weights",
                format!("{}, {bits:.2} bits per parameter", human_bytes(self.weights_bytes)),
            ),
            ("matrices", packings.join(", ")),
            ("one token", format!("reads {} of weights", human_bytes(self.bytes_read_per_token))),
            ("context", format!("{} tokens; made for {}", self.context, self.trained_context)),
            (
                "cache",
                format!(
                    "{}, {} per token of context",
                    human_bytes(self.kv_bytes),
                    human_bytes(self.kv_bytes_per_token as u64)
                ),
            ),
            (
                "memory",
                format!(
                    "{verdict}: needs {} of the {} that are free",
                    human_bytes(needed),
                    human_bytes(self.available_memory_bytes)
                ),
            ),
        ];
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        lines
    }

    fn parameter_count(&self) -> String {
        let millions = |n: u64| format!("{:.1} million", n as f64 / 1e6);
        if self.active_parameters < self.parameters / 2 {
            let (all, active) = (millions(self.parameters), millions(self.active_parameters));
            format!("{all}, of which one token meets {active}")
        } else {
            millions(self.parameters)
        }
    }
}

/// How many matrices there are of each packing. Experts that are stored as one stack are one.
fn packings(spec: &ModelSpec, checkpoint: &Checkpoint) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for module in spec.modules() {
        let matrix = match &module {
            Module::Linear(l) | Module::Embedding(l) => checkpoint.matrix(&l.name, l.rows, l.cols),
            Module::Experts(e) => checkpoint
                .experts(&e.stacked(), e.n, e.rows, e.cols)
                .or_else(|_| checkpoint.matrix(&e.single(0), e.rows, e.cols)),
            Module::Gain { .. } => continue,
        };
        // A head that the config leaves open need not be there; nothing else is missing here.
        if let Ok(matrix) = matrix {
            *counts.entry(name_of(matrix.packing)).or_insert(0) += 1;
        }
    }
    counts
}

fn name_of(packing: Packing) -> String {
    match packing {
        Packing::Plain(float) => format!("{float:?}").to_uppercase(),
        Packing::Affine { bits, group, .. } => format!("affine {bits} bit / {group}"),
        Packing::Fp8Blocks { .. } => "FP8".to_owned(),
        Packing::Mxfp4 | Packing::Mxfp8 | Packing::Nvfp4 => format!("{packing:?}").to_lowercase(),
        Packing::Gguf(ty) => gguf_name(ty),
    }
}

/// `Q4_K` where Rust says `Q4K`.
fn gguf_name(ty: GgufType) -> String {
    let name = format!("{ty:?}").to_uppercase();
    match name.strip_suffix('K') {
        Some(stem) => format!("{stem}_K"),
        None => name.replace("IQ4NL", "IQ4_NL"),
    }
}
