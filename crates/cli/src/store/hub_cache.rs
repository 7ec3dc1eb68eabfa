//! The standard hub cache on disk, in the layout that other programs share:
//! `models--org--name/{blobs/DIGEST, refs/main, snapshots/COMMIT/PATH -> blob}`.
//!
//! Knows nothing of HTTP.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::hub::{Digest, FileAt, Hub, Listing, RemoteFile};
use crate::progress::Meter;

/// The cache of one repository.
pub(crate) struct RepoCache {
    repo: String,
    root: PathBuf,
}

/// What stands in the way of using what is there.
#[derive(Debug, PartialEq)]
pub(crate) enum Missing {
    /// Nothing of this repository was ever downloaded.
    Everything,
    /// A file that belongs to the model is not there.
    File(String),
}

impl RepoCache {
    /// The folder of `repo` in `cache`; it need not exist.
    pub(crate) fn new(cache: &Path, repo: &str) -> RepoCache {
        let root = cache.join(format!("models--{}", repo.replace('/', "--")));
        RepoCache { repo: repo.to_owned(), root }
    }

    /// Where everything of this repository lies.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The model as it lies here, if it is complete: a folder, or a file where `file` names one.
    pub(crate) fn find(&self, file: Option<&str>) -> Result<PathBuf, Missing> {
        let commit = fs::read_to_string(self.root.join("refs/main")).ok();
        let commit = commit.map(|c| c.trim().to_owned()).filter(|c| !c.is_empty());
        let Some(commit) = commit.filter(|c| c.bytes().all(|b| b.is_ascii_hexdigit())) else {
            return Err(Missing::Everything);
        };
        let snapshot = self.root.join("snapshots").join(commit);
        if let Some(file) = file {
            let path = snapshot.join(file);
            return if path.is_file() { Ok(path) } else { Err(Missing::File(file.to_owned())) };
        }
        if !snapshot.is_dir() {
            return Err(Missing::Everything);
        }
        match missing_file(&snapshot) {
            Some(file) => Err(Missing::File(file)),
            None => Ok(snapshot),
        }
    }

    /// Downloads `wanted` files of `listing` that are not there yet, and points `refs/main` at the
    /// commit once all of them are.
    pub(crate) fn fill(
        &self,
        hub: &dyn Hub,
        listing: &Listing,
        wanted: &[RemoteFile],
    ) -> Result<()> {
        let snapshot = self.root.join("snapshots").join(&listing.commit);
        fs::create_dir_all(self.root.join("blobs"))?;
        for file in wanted {
            self.fetch_blob(hub, &listing.commit, file)
                .with_context(|| format!("downloading {} of {}", file.path, self.repo))?;
            link(&self.root, &snapshot, file)?;
        }
        fs::create_dir_all(self.root.join("refs"))?;
        replace(&self.root.join("refs/main"), listing.commit.as_bytes())
    }

    /// One file under its digest, resumed from `DIGEST.incomplete` if there is one. A lock keeps two
    /// processes from writing the same blob.
    fn fetch_blob(&self, hub: &dyn Hub, commit: &str, file: &RemoteFile) -> Result<()> {
        let blob = self.root.join("blobs").join(file.digest.hex());
        let lock = File::create(self.root.join(format!(".{}.lock", file.digest.hex())))?;
        lock.lock().context("cannot lock the hub cache")?;
        if blob.is_file() {
            return Ok(());
        }
        let partial = blob.with_extension("incomplete");
        let mut out = File::options().create(true).append(true).open(&partial)?;
        let mut offset = out.metadata()?.len();
        if offset > file.size {
            out.set_len(0)?;
            offset = 0;
        }
        let meter = Meter::bytes(&file.path, file.size);
        meter.set(offset);
        if offset < file.size || file.size == 0 {
            let at = FileAt { repo: &self.repo, commit, file };
            hub.fetch(at, offset, &mut out, &meter)?;
        }
        out.sync_all()?;
        if let Err(error) = verify(&partial, file) {
            fs::remove_file(&partial)?;
            return Err(error);
        }
        fs::rename(&partial, &blob)?;
        Ok(())
    }
}

/// The files of a repository that make up one model.
pub(crate) fn wanted_files(
    repo: &str,
    listing: &Listing,
    file: Option<&str>,
) -> Result<Vec<RemoteFile>> {
    if let Some(name) = file {
        let found = listing.files.iter().find(|f| f.path == name);
        let Some(found) = found else {
            bail!("`{repo}` has no file `{name}`; it has: {}", names_of(listing, ".gguf"));
        };
        return Ok(split_siblings(listing, found));
    }
    let has = |end: &str| listing.files.iter().any(|f| f.path.ends_with(end));
    if !has(".safetensors") {
        if has(".gguf") {
            let names = names_of(listing, ".gguf");
            bail!(
                "`{repo}` holds several models; name one as `{repo}:FILE`, FILE being one of: {names}"
            );
        }
        bail!("`{repo}` holds no safetensors and no GGUF file");
    }
    let ends = [".safetensors", ".json", ".jinja", "tokenizer.model", "merges.txt", "vocab.txt"];
    let belongs = |f: &&RemoteFile| {
        !f.path.contains('/')
            && ends.iter().any(|end| f.path.ends_with(end))
            && !f.path.starts_with("consolidated")
    };
    Ok(listing.files.iter().filter(belongs).cloned().collect())
}

/// All parts of a GGUF file that is split as `-00001-of-00003.gguf`; otherwise the file alone.
fn split_siblings(listing: &Listing, file: &RemoteFile) -> Vec<RemoteFile> {
    let marker = file.path.rfind("-00001-of-");
    let Some(stem) = marker.map(|at| &file.path[..=at]) else { return vec![file.clone()] };
    let tail = &file.path[stem.len() + "00001".len()..];
    let is_part = |f: &&RemoteFile| f.path.starts_with(stem) && f.path.ends_with(tail);
    listing.files.iter().filter(is_part).cloned().collect()
}

fn names_of(listing: &Listing, end: &str) -> String {
    let names: Vec<&str> =
        listing.files.iter().map(|f| f.path.as_str()).filter(|p| p.ends_with(end)).collect();
    names.join(", ")
}

/// A file that the snapshot needs and lacks.
fn missing_file(snapshot: &Path) -> Option<String> {
    if !snapshot.join("config.json").is_file() {
        return Some("config.json".to_owned());
    }
    let Ok(index) = fs::read(snapshot.join("model.safetensors.index.json")) else {
        let entries = fs::read_dir(snapshot).ok()?;
        let any = entries.flatten().any(|e| {
            e.file_name().to_string_lossy().ends_with(".safetensors") && e.path().is_file()
        });
        return (!any).then(|| "model.safetensors".to_owned());
    };
    let index: serde_json::Value = serde_json::from_slice(&index).ok()?;
    let shards = index.get("weight_map")?.as_object()?.values().filter_map(|v| v.as_str());
    shards.filter(|shard| !snapshot.join(shard).is_file()).min().map(str::to_owned)
}

/// Compares the bytes of `path` with the digest of `file`.
fn verify(path: &Path, file: &RemoteFile) -> Result<()> {
    let found = match &file.digest {
        Digest::Sha256(_) => hash(path, Sha256::new())?,
        Digest::GitSha1(_) => {
            let size = fs::metadata(path)?.len();
            hash(path, Sha1::new_with_prefix(format!("blob {size}\0")))?
        }
    };
    if found != file.digest.hex() {
        bail!("{} arrived damaged (checksum {found}); try again", file.path);
    }
    Ok(())
}

/// Hexadecimal digest of a file.
pub(crate) fn hash<D: sha2::Digest>(path: &Path, mut hasher: D) -> Result<String> {
    let mut input = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match input.read(&mut buffer)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `snapshots/COMMIT/PATH` as a relative link to the blob, or a copy where links are not allowed.
fn link(root: &Path, snapshot: &Path, file: &RemoteFile) -> Result<()> {
    let path = snapshot.join(&file.path);
    if path.exists() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let up = "../".repeat(2 + file.path.matches('/').count());
    let target = format!("{up}blobs/{}", file.digest.hex());
    #[cfg(unix)]
    if std::os::unix::fs::symlink(&target, &path).is_ok() {
        return Ok(());
    }
    let copy = path.with_extension("copying");
    fs::copy(root.join("blobs").join(file.digest.hex()), &copy)?;
    fs::rename(copy, &path).with_context(|| format!("cannot write {target}"))
}

/// Writes a small file all at once.
fn replace(path: &Path, contents: &[u8]) -> Result<()> {
    let temporary = path.with_extension("new");
    let mut out = File::create(&temporary)?;
    out.write_all(contents)?;
    out.sync_all()?;
    fs::rename(temporary, path)?;
    Ok(())
}
