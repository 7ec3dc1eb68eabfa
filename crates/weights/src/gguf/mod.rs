//! GGUF, the format of llama.cpp: one file (or a few parts) that holds tensors, hyperparameters,
//! tokenizer and chat template.
//!
//! It turns all of that into the terms of the rest of the program: Hugging Face names, a Hugging
//! Face config and tokenizer files. It does not multiply anything: packed tensors stay packed.

pub mod blocks;
