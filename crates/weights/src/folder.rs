//! Opens a folder: finds its shards and text files. The bytes of a shard are read by
//! [`crate::safetensors`], those of a GGUF by [`crate::gguf`].

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    Checkpoint, Error, Format, TextFiles,
    checkpoint::{Parts, mismatch},
    gguf, mmap, safetensors,
    text_files::read_json,
};

mod sidecars;

const INDEX: &str = "model.safetensors.index.json";

/// Opens the model in `dir`.
pub(crate) fn open(dir: &Path) -> Result<Checkpoint, Error> {
    let files = list(dir)?;
    let has_config = files.iter().any(|name| name == "config.json");
    let mut warnings = Vec::new();
    let shards = shards(dir, &files, &mut warnings)?;
    if shards.is_empty() || !has_config {
        let ggufs: Vec<&String> = files.iter().filter(|name| is_first_gguf(name)).collect();
        return match ggufs.as_slice() {
            [name] => gguf::open(&dir.join(name)),
            [] => Err(Error::NotAModel {
                path: dir.to_owned(),
                reason: "it holds neither config.json with model*.safetensors nor a .gguf file"
                    .into(),
            }),
            [first, ..] => Err(Error::NotAModel {
                path: dir.to_owned(),
                reason: format!(
                    "it holds {} GGUF models; name one of them, for example {first}",
                    ggufs.len()
                ),
            }),
        };
    }
    let path = dir.join("config.json");
    let config = read_json(&path)?.unwrap_or(Value::Null);
    if !config.is_object() {
        return Err(Error::BadConfig {
            file: path,
            key: "the whole file".into(),
            expected: "an object".into(),
            found: "something else".into(),
        });
    }
    let mut tensors = Vec::new();
    let mut seen = HashMap::new();
    for shard in shards {
        for tensor in safetensors::parse(&shard, mmap::map(&shard)?)? {
            if let Some(file) = seen.insert(tensor.name.clone(), shard.clone()) {
                let found = format!("another one in {}", file.display());
                return Err(mismatch(&tensor, "a name used once".into(), found));
            }
            tensors.push(tensor);
        }
    }
    tensors.extend(sidecars::tensors(dir, &files, &config, &mut warnings));
    Ok(Checkpoint::from_parts(Parts {
        path: dir.to_owned(),
        format: Format::HuggingFace,
        config,
        generation_config: read_json(&dir.join("generation_config.json"))?,
        text: TextFiles::read(dir)?,
        tensors,
        warnings,
    }))
}

/// File names in `dir`, sorted.
fn list(dir: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io(dir))? {
        let entry = entry.map_err(Error::io(dir))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// A GGUF that can be opened: a whole one, or the first part of a split one.
fn is_first_gguf(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".gguf") else { return false };
    match stem.rsplit_once("-of-") {
        Some((part, n)) if n.len() == 5 && n.bytes().all(|b| b.is_ascii_digit()) => {
            part.ends_with("-00001")
        }
        _ => true,
    }
}

/// The safetensors files that make up the model: those the index lists, all of which must exist,
/// or, where there is no index, `model*.safetensors`.
fn shards(dir: &Path, files: &[String], warnings: &mut Vec<String>) -> Result<Vec<PathBuf>, Error> {
    let present: BTreeSet<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|name| name.starts_with("model") && name.ends_with(".safetensors"))
        .filter(|name| !sidecars::is_one(name))
        .collect();
    let index = dir.join(INDEX);
    let Some(json) = read_json(&index)? else {
        if let Some((name, missing)) = present.iter().find_map(|name| {
            let missing = siblings(name).find(|name| !present.contains(name.as_str()))?;
            Some((name, missing))
        }) {
            return Err(Error::MissingFile { file: dir.join(missing), listed_in: dir.join(name) });
        }
        return Ok(present.iter().map(|name| dir.join(name)).collect());
    };
    let listed = listed_shards(&index, &json)?;
    for name in &listed {
        // A separator would let an index reach out of the folder.
        if name.contains(['/', '\\']) {
            return Err(Error::BadConfig {
                file: index,
                key: "weight_map".into(),
                expected: "names of files beside the index".into(),
                found: (*name).to_owned(),
            });
        }
        if !files.iter().any(|file| file == name) {
            return Err(Error::MissingFile { file: dir.join(name), listed_in: index });
        }
    }
    for extra in present.difference(&listed) {
        warnings.push(format!("{extra} is ignored: {INDEX} does not list it"));
    }
    Ok(listed.iter().filter(|name| !sidecars::is_one(name)).map(|name| dir.join(name)).collect())
}

/// The names of all shards, by the name of one: `model-00001-of-00003.safetensors`.
fn siblings(name: &str) -> impl Iterator<Item = String> {
    let parts = name.strip_suffix(".safetensors").and_then(|stem| {
        let (stem, n) = stem.rsplit_once("-of-")?;
        let (stem, _) = stem.rsplit_once('-')?;
        let count: usize = n.parse().ok()?;
        Some((stem.to_owned(), n.to_owned(), count))
    });
    parts.into_iter().flat_map(|(stem, n, count)| {
        let width = n.len();
        (1..=count).map(move |i| format!("{stem}-{i:0width$}-of-{n}.safetensors"))
    })
}

fn listed_shards<'a>(index: &Path, json: &'a Value) -> Result<BTreeSet<&'a str>, Error> {
    let bad = |found: &Value| Error::BadConfig {
        file: index.to_owned(),
        key: "weight_map".into(),
        expected: "an object from tensor names to file names".into(),
        found: found.to_string().chars().take(80).collect(),
    };
    let map = json.get("weight_map").and_then(Value::as_object).ok_or_else(|| bad(json))?;
    map.values().map(|name| name.as_str().ok_or_else(|| bad(name))).collect()
}
