//! GGUF, the format of llama.cpp: one file (or a few parts) that holds tensors, hyperparameters,
//! tokenizer and chat template.
//!
//! It turns all of that into the terms of the rest of the program: Hugging Face names, a Hugging
//! Face config and tokenizer files. It does not multiply anything: packed tensors stay packed.

pub mod blocks;

use std::path::Path;

use crate::{Checkpoint, Error};

/// Opens a GGUF file; of a split one, the first part.
pub(crate) fn open(path: &Path) -> Result<Checkpoint, Error> {
    Err(Error::Unsupported {
        file: path.to_owned(),
        what: "reading GGUF".into(),
        advice: "use a folder of safetensors".into(),
    })
}
