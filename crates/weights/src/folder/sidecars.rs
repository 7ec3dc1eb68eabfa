//! Draft heads in files of their own beside a model, which programs name and place in several ways.
//!
//! A model runs without them, so whatever is wrong with such a file is a warning.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::checkpoint::canonical;
use crate::{Error, Tensor, mmap, safetensors};

/// What the names of a head's tensors begin with.
const HEAD: &str = "mtp.";

/// Whether a safetensors file beside a model is no part of it.
pub(super) fn is_one(name: &str) -> bool {
    name.starts_with("mtp") || name.starts_with("model-mtp")
}

/// The tensors of all such files. Of two that would have one name the first is taken.
pub(super) fn tensors(
    dir: &Path,
    files: &[String],
    config: &Value,
    warnings: &mut Vec<String>,
) -> Vec<Tensor> {
    let mut found: Vec<Tensor> = Vec::new();
    for path in paths(dir, files, config) {
        match read(&path) {
            Ok(tensors) => {
                for tensor in tensors {
                    if found.iter().all(|other| other.name != tensor.name) {
                        found.push(tensor);
                    }
                }
            }
            Err(error) => warnings.push(format!("a draft head is ignored: {error}")),
        }
    }
    found
}

fn read(path: &Path) -> Result<Vec<Tensor>, Error> {
    let mut tensors = safetensors::parse(path, mmap::map(path)?)?;
    for tensor in &mut tensors {
        // Some files leave out what all of their names would begin with. Heads that are layers behind
        // the last one say so.
        let is_whole = canonical(&tensor.name).starts_with(HEAD)
            || tensor.name.starts_with("model.layers.")
            || tensor.name.starts_with("model.mtp_layers.");
        if !is_whole {
            tensor.name = format!("{HEAD}{}", canonical(&tensor.name));
        }
    }
    Ok(tensors)
}

/// Files beside the model, those in a folder `mtp`, and the one that the config names.
fn paths(dir: &Path, files: &[String], config: &Value) -> Vec<PathBuf> {
    let is_tensors = |name: &str| name.ends_with(".safetensors");
    let beside = files.iter().filter(|name| is_one(name) && is_tensors(name));
    let mut paths: Vec<PathBuf> = beside.map(|name| dir.join(name)).collect();
    let inside = std::fs::read_dir(dir.join("mtp")).into_iter().flatten().flatten();
    let mut inside: Vec<PathBuf> = inside.map(|entry| entry.path()).collect();
    inside.retain(|path| path.to_str().is_some_and(is_tensors));
    inside.sort();
    paths.extend(inside);
    if let Some(named) = config.pointer("/mlx_lm_extra_tensors/mtp_file").and_then(Value::as_str) {
        let named = Path::new(named);
        // Anything else could lead out of the folder.
        let is_plain = named.components().all(|part| matches!(part, Component::Normal(_)));
        let path = dir.join(named);
        if is_plain && is_tensors(&named.to_string_lossy()) && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}
