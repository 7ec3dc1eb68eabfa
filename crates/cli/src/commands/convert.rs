//! `hearth convert`: any readable model to the MLX format.

use std::io::Write;
use std::path::PathBuf;
use std::thread;

use anyhow::{Result, bail};
use weights::{Checkpoint, ConvertOptions, Float, Repacking, Scheme};

use crate::env::Environment;
use crate::machine::human_bytes;
use crate::progress::Meter;

const EXAMPLES: &str = "\
Examples:
  hearth convert default ./smol-4bit --bits 4 --group-size 64
  hearth convert ./model.gguf ./model-mlx --mode keep";

/// Convert a model to the MLX format, quantising it
///
/// Reads MLX and Hugging Face folders and GGUF files; writes a folder that mlx-lm and Hearth load,
/// with tokenizer and chat template. Nothing appears at TARGET unless everything went well.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to convert
    source: String,
    /// Folder to write; it must not exist yet
    target: PathBuf,
    /// Bits per weight [default: 4, or what the mode fixes]
    #[arg(long)]
    bits: Option<u64>,
    /// Weights that share a scale [default: 64, or what the mode fixes]
    #[arg(long)]
    group_size: Option<u64>,
    /// How weights are packed; `keep` loses as little as the format allows, `none` does not quantise
    #[arg(long, value_enum, default_value_t = Mode::Affine)]
    mode: Mode,
    /// Type of scales and of what is not quantised [default: the source's]
    #[arg(long, value_enum)]
    dtype: Option<FloatName>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mode {
    Affine,
    Mxfp4,
    Mxfp8,
    Nvfp4,
    Keep,
    None,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FloatName {
    F16,
    Bf16,
    F32,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.source, env)?;
    let source = Checkpoint::open(&path)?;
    let options = ConvertOptions {
        packing: args.packing()?,
        dtype: args.dtype.map(|name| match name {
            FloatName::F16 => Float::F16,
            FloatName::Bf16 => Float::Bf16,
            FloatName::F32 => Float::F32,
        }),
        threads: thread::available_parallelism().map_or(1, usize::from),
        shard_bytes: ConvertOptions::SHARD,
    };
    let meter = Meter::bytes("converting", 0);
    let report = weights::convert(&source, &args.target, &options, &mut |progress| {
        meter.set_of(progress.done, progress.total);
    })?;
    drop(meter);
    for note in &report.notes {
        eprintln!("note: {note}");
    }
    writeln!(
        out,
        "{}: {}, {:.2} bits per weight, {} tensors exact, {} rounded",
        args.target.display(),
        human_bytes(report.n_bytes),
        report.bits_per_weight(),
        report.n_exact,
        report.n_rounded
    )?;
    Ok(())
}

impl Args {
    fn packing(&self) -> Result<Repacking> {
        let mode = match self.mode {
            Mode::Affine => "affine",
            Mode::Mxfp4 => "mxfp4",
            Mode::Mxfp8 => "mxfp8",
            Mode::Nvfp4 => "nvfp4",
            Mode::Keep => return Ok(Repacking::Keep),
            Mode::None => return Ok(Repacking::Floats),
        };
        match Scheme::new(mode, self.bits, self.group_size) {
            Ok(scheme) => Ok(Repacking::To(scheme)),
            Err(expected) => bail!("--mode {mode} takes {expected}"),
        }
    }
}
