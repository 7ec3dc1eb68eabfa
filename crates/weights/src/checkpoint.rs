//! One opened model, whatever the format it is stored in. It hands out tensors by Hugging Face
//! names; it neither knows the formats nor which tensors a family needs.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Dtype, Error, Tensor, TextFiles, gguf, quantization::Quantization};

/// An opened model: config, text files and named tensors.
#[derive(Debug)]
pub struct Checkpoint {
    /// A Hugging Face config.json. For GGUF it is synthesised and may hold the extra key
    /// `rope_interleaved`: true, where q and k rows lie in interleaved order.
    pub config: Value,
    /// generation_config.json, where there is one.
    pub generation_config: Option<Value>,
    /// Tokenizer and chat template.
    pub text: TextFiles,
    pub(crate) path: PathBuf,
    format: Format,
    tensors: BTreeMap<String, Tensor>,
    /// Canonical name to stored name, see [`canonical`].
    aliases: HashMap<String, String>,
    pub(crate) quantization: Quantization,
    warnings: Vec<String>,
}

/// How a checkpoint is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Safetensors with MLX packings.
    Mlx,
    /// Safetensors with plain or FP8 tensors.
    HuggingFace,
    /// llama.cpp's single-file format.
    Gguf,
    /// Made in memory.
    Memory,
}

/// What a format's reader found; [`Checkpoint::from_parts`] makes one model of it.
pub(crate) struct Parts {
    /// The file or folder that was opened.
    pub(crate) path: PathBuf,
    /// Its format. [`Format::HuggingFace`] becomes [`Format::Mlx`] where MLX packings are in use.
    pub(crate) format: Format,
    /// A Hugging Face config.json.
    pub(crate) config: Value,
    /// generation_config.json.
    pub(crate) generation_config: Option<Value>,
    /// Tokenizer and chat template.
    pub(crate) text: TextFiles,
    /// Every tensor, under Hugging Face names, with Hugging Face meanings.
    pub(crate) tensors: Vec<Tensor>,
    /// What the reader ignored.
    pub(crate) warnings: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder of safetensors (MLX or Hugging Face), a .gguf file (of a split one, its first
    /// part), or a folder that holds nothing but a GGUF. Tensor bytes are mapped, not read.
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        let meta = std::fs::metadata(path).map_err(Error::io(path))?;
        if meta.is_dir() { crate::folder::open(path) } else { gguf::open(path) }
    }

    /// A model in memory, for tests and tiny models. The tensors are checked when they are asked
    /// for.
    pub fn from_tensors(config: Value, tensors: Vec<Tensor>) -> Checkpoint {
        Checkpoint::from_parts(Parts {
            path: "memory".into(),
            format: Format::Memory,
            config,
            generation_config: None,
            text: TextFiles::default(),
            tensors,
            warnings: Vec::new(),
        })
    }

    /// Puts a model together. Of two tensors of one name the last wins; readers refuse them before.
    pub(crate) fn from_parts(parts: Parts) -> Checkpoint {
        let tensors: BTreeMap<String, Tensor> =
            parts.tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        let mut aliases = HashMap::new();
        for name in tensors.keys() {
            aliases.entry(canonical(name).to_owned()).or_insert_with(|| name.clone());
            // Transformers stores stacked experts as parameters of their own.
            if name.ends_with("_proj") {
                let module = format!("{}.weight", canonical(name));
                aliases.entry(module).or_insert_with(|| name.clone());
            }
        }
        let quantization = Quantization::of(&parts.config);
        let mut warnings = parts.warnings;
        let modules = aliases.keys().filter_map(|name| name.strip_suffix(".weight"));
        warnings.extend(quantization.unmatched(modules));
        let format = match parts.format {
            Format::HuggingFace if quantization.is_mlx() => Format::Mlx,
            format => format,
        };
        Checkpoint {
            config: parts.config,
            generation_config: parts.generation_config,
            text: parts.text,
            path: parts.path,
            format,
            tensors,
            aliases,
            quantization,
            warnings,
        }
    }

    /// Names of all stored tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Names of all tensors in `module`, with or without what programs put before names, as stored.
    pub fn names_in(&self, module: &str) -> impl Iterator<Item = &str> {
        let module = canonical(module);
        let is_in = move |name: &str| {
            canonical(name).strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
        };
        self.names().filter(move |name| is_in(name))
    }

    /// All stored tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// Whether a tensor of this full name exists, with or without `model.` and `language_model.`
    /// before it.
    pub fn contains(&self, name: &str) -> bool {
        self.tensor(name).is_some()
    }

    /// Whether there is a weight of this module, however it is packed.
    pub fn has_weight(&self, module: &str) -> bool {
        let name = format!("{module}.weight");
        self.contains(&name)
            || self.contains(&format!("{name}_packed"))
            || self.blocks(module).is_some()
    }

    /// The tensor of this full name; where there is none, the one that differs only by the
    /// `model.`, `language_model.`, `backbone.` or `transformer.` before it.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name).or_else(|| self.tensors.get(self.aliases.get(canonical(name))?))
    }

    /// The tensor of this name, checked to hold as many bytes as its type and shape say.
    pub(crate) fn sound(&self, name: &str) -> Result<&Tensor, Error> {
        let tensor = self.tensor(name).ok_or_else(|| Error::MissingTensor {
            path: self.path.clone(),
            tensor: name.to_owned(),
        })?;
        match tensor.dtype.n_bytes(&tensor.shape) {
            Some(n) if n == tensor.data.len() => Ok(tensor),
            _ => Err(mismatch(
                tensor,
                format!("the bytes of {}", tensor.describe()),
                format!("{} bytes", tensor.data.len()),
            )),
        }
    }

    /// Any float tensor of `len` numbers (a norm's gain, a bias) as f32; the full tensor name.
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        let tensor = self.sound(name)?;
        let Dtype::Float(float) = tensor.dtype else {
            return Err(mismatch(tensor, "F32, F16 or BF16".into(), tensor.describe()));
        };
        if tensor.data.len() / float.n_bytes() != len {
            return Err(mismatch(tensor, format!("{len} numbers"), tensor.describe()));
        }
        let mut values = vec![0.0; len];
        float.read(&tensor.data, &mut values);
        Ok(values)
    }

    /// What is odd about the files but no error: override keys that match nothing, files ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes of all tensors.
    pub fn n_bytes(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.data.len() as u64).sum()
    }

    /// How it is stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The file or folder it was opened from; `memory` for one made there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity for caches: config, tokenizer size, and of every tensor its name, type, shape and
    /// samples of its bytes, from its first to its last. Takes milliseconds, touching a few pages
    /// per tensor.
    ///
    /// Training, merging, pruning and quantising change nearly every byte of what they touch, so two
    /// models that differ at all differ in some sample. What could slip through is a file of which
    /// somebody edited single numbers by hand.
    pub fn fingerprint(&self) -> [u8; 32] {
        const SAMPLE: usize = 64;
        const SAMPLES: usize = 16;
        let mut hash = Sha256::new();
        hash.update(self.config.to_string());
        hash.update(self.text.tokenizer.as_ref().map_or(0, |t| t.n_bytes() as u64).to_le_bytes());
        for tensor in self.tensors.values() {
            hash.update(format!("\0{}\0{}\0", tensor.name, tensor.describe()));
            let len = tensor.data.len();
            hash.update((len as u64).to_le_bytes());
            let last = len.saturating_sub(SAMPLE);
            for n in 0..SAMPLES {
                let at = (last as u128 * n as u128 / (SAMPLES - 1) as u128) as usize;
                hash.update(&tensor.data[at..len.min(at + SAMPLE)]);
            }
        }
        hash.finalize().into()
    }
}

/// What programs put before names.
const PREFIXES: [&str; 4] = ["model.", "language_model.", "backbone.", "transformer."];

/// A name without the `model.`, `language_model.`, `backbone.` and `transformer.` before it, in any order and number.
/// Programs disagree on them, and a config's keys often follow another convention than the tensors.
pub(crate) fn canonical(name: &str) -> &str {
    let shorter = |name| PREFIXES.iter().find_map(|prefix| str::strip_prefix(name, prefix));
    let mut rest = name;
    while let Some(name) = shorter(rest) {
        rest = name;
    }
    rest
}

/// A [`Error::BadTensor`] about `tensor`.
pub(crate) fn mismatch(tensor: &Tensor, expected: String, found: String) -> Error {
    Error::BadTensor {
        file: tensor.file.to_path_buf(),
        tensor: tensor.name.clone(),
        expected,
        found,
    }
}
