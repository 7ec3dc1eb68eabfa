//! Opens a model, in whatever format it lies on disk, and hands out named, memory-mapped matrices
//! with their packing, the config, the tokenizer files and the chat template.
//!
//! Whatever the file, the rest of the program sees one thing: a [`Checkpoint`] whose tensors carry
//! Hugging Face names and meanings and whose config is a Hugging Face `config.json`.
//!
//! **Invariant:** this crate knows no device, no forward pass and no model family beyond its names.

mod checkpoint;
mod compressed;
mod convert;
mod error;
mod float;
mod folder;
pub mod gguf;
mod matrix;
mod mmap;
mod modules;
mod packing;
mod quantization;
pub mod quantize;
pub mod safetensors;
mod scheme;
mod spelling;
mod stacks;
mod tensor;
mod text_files;

pub use checkpoint::{Checkpoint, Format};
pub use convert::{ConvertOptions, ConvertReport, Progress, Repacking, convert};
pub use error::Error;
pub use matrix::Matrix;
pub use packing::{F32Bits, Float, GgufType, Packing};
pub use scheme::Scheme;
pub use tensor::{Dtype, Tensor};
pub use text_files::{TextFiles, TokenizerFile};
