//! The server's loader: models by the path of their files, on the one device of this process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use server::{DeviceMemory, LoadError, Loader, Model, Name, Survey};

use super::plan::DoesNotFit;
use super::{Budget, Crowd, Device, LoadArgs, Opened};
use crate::disk_cache::DiskCache;
use crate::machine::{self, human_bytes};

/// Loads models of which it knows the path.
pub(crate) struct FileLoader {
    paths: BTreeMap<String, PathBuf>,
    args: LoadArgs,
    crowd: Crowd,
    budget: Budget,
    disk: Option<DiskCache>,
    device: Device,
    /// What the latest survey opened, for the load that follows it.
    surveyed: Mutex<Option<(String, Opened)>>,
}

impl FileLoader {
    /// Of models by id, all with these choices on one device, within `budget`, that share the cache on
    /// disk.
    pub(crate) fn new(
        paths: BTreeMap<String, PathBuf>,
        (args, device): (LoadArgs, Device),
        crowd: Crowd,
        budget: Budget,
        disk: Option<DiskCache>,
    ) -> FileLoader {
        let surveyed = Mutex::default();
        FileLoader { paths, args, crowd, budget, disk, device, surveyed }
    }

    fn open(&self, id: &str) -> Result<Opened> {
        let path = self.paths.get(id).with_context(|| format!("nobody knows a model `{id}`"))?;
        let opened = Opened::within(self.budget, path, &self.args, self.crowd)?;
        Ok(Opened { disk: self.disk.clone(), ..opened })
    }

    fn take_surveyed(&self, id: &str) -> Option<Opened> {
        let mut surveyed = self.surveyed.lock().unwrap_or_else(PoisonError::into_inner);
        surveyed.take().filter(|(of, _)| of == id).map(|(_, opened)| opened)
    }
}

impl Loader for FileLoader {
    fn survey(&self, name: &Name) -> Result<Survey, LoadError> {
        let opened = self.open(&name.id).map_err(load_error)?;
        let plan = &opened.plan;
        let survey =
            Survey { bytes: plan.total(), mapped_bytes: plan.cost.mapped, context: plan.context };
        let mut surveyed = self.surveyed.lock().unwrap_or_else(PoisonError::into_inner);
        *surveyed = Some((name.id.clone(), opened));
        Ok(survey)
    }

    fn load(&self, name: &Name) -> Result<Model, LoadError> {
        let opened = self.take_surveyed(&name.id).map_or_else(|| self.open(&name.id), Ok);
        let loaded = opened.and_then(|opened| {
            let model = opened.serve(name, &self.device)?;
            let kept = opened.disk.as_ref().map(|disk| format!(", {} on disk", disk.describe()));
            eprintln!(
                "{}: context {} tokens, {} for keys and values, {} in all{}",
                name.id,
                opened.plan.context,
                human_bytes(opened.plan.cost.cache),
                human_bytes(opened.plan.total()),
                kept.unwrap_or_default(),
            );
            Ok(model)
        });
        loaded.map_err(load_error)
    }

    fn anonymous_bytes(&self) -> u64 {
        machine::anonymous_bytes()
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.device.memory()
    }
}

fn load_error(error: anyhow::Error) -> LoadError {
    match error.downcast_ref::<DoesNotFit>() {
        Some(error) => LoadError::TooLarge(error.to_string()),
        None => LoadError::Failed(crate::one_line(&error)),
    }
}

/// How many folders deep models are looked for: `org/name/file.gguf`.
const DEPTH: usize = 3;

/// Every model below a folder, by its path in it: folders with a config.json and safetensors, and
/// GGUF files, without their ending; of one in parts, the first. A file that is all there is in its
/// folder goes by the folder's name.
pub(crate) fn find_models(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    // What is asked for has to be there; what lies below may be somebody else's.
    fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = BTreeMap::new();
    search(folder, "", DEPTH, &mut found);
    Ok(found)
}

fn search(folder: &Path, prefix: &str, depth: usize, found: &mut BTreeMap<String, PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let ends = |path: &Path, ending: &str| path.extension().is_some_and(|e| e == ending);
    let files = || paths.iter().filter(|path| path.is_file());
    if files().any(|path| path.file_name().is_some_and(|name| name == "config.json"))
        && files().any(|path| ends(path, "safetensors"))
        && !prefix.is_empty()
    {
        found.insert(prefix.to_owned(), folder.to_owned());
        return;
    }
    let below = |name: &str| match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}/{name}"),
    };
    let visible = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'))
    };
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folders: Vec<_> = paths.iter().filter(visible).filter(|path| path.is_dir()).collect();
    for folder in folders.iter().filter(|_| depth > 1) {
        search(folder, &below(&name(folder)), depth - 1, found);
    }
    let ggufs: Vec<(String, &PathBuf)> = files()
        .filter(visible)
        .filter_map(|path| Some((first_part(name(path).strip_suffix(".gguf")?)?.to_owned(), path)))
        .collect();
    if let ([(_, path)], true, false) = (&ggufs[..], folders.is_empty(), prefix.is_empty()) {
        found.insert(prefix.to_owned(), (*path).clone());
        return;
    }
    found.extend(ggufs.into_iter().map(|(stem, path)| (below(&stem), path.clone())));
}

/// The name of a GGUF file without ending and part number; `None` for parts but the first, and for
/// the image encoders that lie beside models.
fn first_part(stem: &str) -> Option<&str> {
    if stem.starts_with("mmproj") {
        return None;
    }
    let part = stem.rsplit_once("-of-").and_then(|(rest, of)| {
        let (name, number) = rest.rsplit_once('-')?;
        let numbers = [number, of].map(|n| n.len() == 5 && n.bytes().all(|b| b.is_ascii_digit()));
        (numbers == [true, true]).then_some((name, number))
    });
    match part {
        None => Some(stem),
        Some((name, "00001")) => Some(name),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_where_people_keep_them() {
        let home = tempfile::tempdir().unwrap();
        for file in [
            "small.gguf",
            "notes.txt",
            ".hidden.gguf",
            "org/folder/config.json",
            "org/folder/model.safetensors",
            "org/folder/extra.gguf",
            "org/files/a-q4.gguf",
            "org/files/mmproj-a.gguf",
            "parts/b-00001-of-00002.gguf",
            "parts/b-00002-of-00002.gguf",
            "config-only/config.json",
            "two/d.gguf",
            "two/e.gguf",
            "too/deep/for/this/c.gguf",
        ] {
            let path = home.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = find_models(home.path()).unwrap();
        let ids: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(ids, ["org/files", "org/folder", "parts", "small", "two/d", "two/e"]);
        assert_eq!(found["parts"], home.path().join("parts/b-00001-of-00002.gguf"));
        assert_eq!(found["org/folder"], home.path().join("org/folder"));
        assert!(find_models(&home.path().join("nowhere")).is_err());
    }
}
