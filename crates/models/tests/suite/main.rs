//! What the crate promises, seen from outside: recipes, loading, and logits against goldens.

mod common;
mod compressed;
mod families;
mod gguf;
mod heads;
mod latents;
mod loading;
mod packings;
mod recipes;
mod settings;
mod support;
