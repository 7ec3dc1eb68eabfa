//! GGUF, the format of llama.cpp: one file (or a few parts) that holds tensors, hyperparameters,
//! tokenizer and chat template.
//!
//! It turns all of that into the terms of the rest of the program: Hugging Face names, a Hugging
//! Face config and tokenizer files. It does not multiply anything: packed tensors stay packed.

mod arch;
pub mod blocks;
mod config;
mod deepseek;
mod gemma;
mod generation;
mod hybrids;
pub mod metadata;
mod names;
pub mod reader;
mod split;
mod states;
mod tokenizer;

use std::path::Path;

use crate::{Checkpoint, Error, Format, TextFiles, checkpoint::Parts};

use self::{arch::Arch, config::Hyper, reader::File};

pub use tokenizer::{Joins, Vocabulary};

/// The architectures that are read, each with a `model_type` that it has elsewhere.
pub fn architectures() -> impl Iterator<Item = (&'static str, &'static str)> {
    arch::ARCHS.iter().map(|arch| (arch.name, arch.model_type)).chain(arch::OTHERS)
}

/// Opens a GGUF file; of a split one, the first part.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, Error> {
    understand(path, split::read(path)?)
}

/// The model that a whole GGUF file holds, without a file system: what [`Checkpoint::open`] does
/// after mapping. `path` is only named in errors.
pub fn from_bytes(path: &Path, bytes: bytes::Bytes) -> Result<Checkpoint, Error> {
    understand(path, reader::parse(path, bytes)?)
}

/// Tokenizer and chat template of a file, whatever its architecture.
pub fn text_files(metadata: &metadata::Metadata) -> Result<TextFiles, Error> {
    Ok(tokenizer::build(metadata)?.files)
}

fn understand(path: &Path, file: File) -> Result<Checkpoint, Error> {
    let metadata = &file.metadata;
    let hyper = Hyper { metadata, arch: Arch::of(metadata)? };
    let (tensors, factors) = names::translate(hyper.arch, &hyper.layers()?, file.tensors)?;
    let config = config::config(&hyper, &tensors, &factors)?;
    let text = tokenizer::build(metadata)?;
    Ok(Checkpoint::from_parts(Parts {
        path: path.to_owned(),
        format: Format::Gguf,
        config,
        generation_config: Some(generation::generation_config(metadata, &text.stops)?),
        text: text.files,
        tensors,
        warnings: text.warnings,
    }))
}
