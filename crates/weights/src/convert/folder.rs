//! The files of a converted model, built beside the target and moved there when all of them are on
//! disk. What becomes of tensors is not its business.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use crate::{Checkpoint, Error, safetensors};

use super::plan::Item;

/// Bytes that are written at once. The system keeps a new file in memory in pieces as large as they
/// came, up to two MiB, and the larger they are the faster a mapped model is read.
const LARGE_WRITE: usize = 16 << 20;

/// Tokenizer files that belong to a Hugging Face model besides those every model has.
const OTHER_TOKENIZER_FILES: [&str; 5] =
    ["tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", "vocab.txt"];

/// The folder being built. Dropped before [`Staging::finish`], it disappears.
pub(super) struct Staging {
    target: PathBuf,
    dir: tempfile::TempDir,
}

/// One safetensors file being written.
pub(super) struct Shard {
    path: PathBuf,
    file: BufWriter<File>,
}

/// The names of `n` files that together are a model.
pub(super) fn shard_names(n: usize) -> Vec<String> {
    match n {
        1 => vec!["model.safetensors".into()],
        n => (1..=n).map(|i| format!("model-{i:05}-of-{n:05}.safetensors")).collect(),
    }
}

impl Staging {
    /// Begins a folder that will become `target`, which must not exist or be empty.
    pub(super) fn new(target: &Path) -> Result<Staging, Error> {
        match fs::read_dir(target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(Error::TargetNotEmpty { path: target.to_owned() });
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(target)(e)),
        }
        // A relative name of one part has the empty path as its parent.
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(Error::io(parent))?;
        let dir = tempfile::Builder::new()
            .prefix(".hearth-convert-")
            .tempdir_in(parent)
            .map_err(Error::io(parent))?;
        Ok(Staging { target: target.to_owned(), dir })
    }

    /// Begins the safetensors file `name`; the bytes of `items` are to follow.
    pub(super) fn shard(&self, name: &str, items: &[Item]) -> Result<Shard, Error> {
        let slots: Vec<_> = items.iter().flat_map(Item::slots).collect();
        let path = self.dir.path().join(name);
        let file = File::create(&path).map_err(Error::io(&path))?;
        let mut shard = Shard { path, file: BufWriter::with_capacity(LARGE_WRITE, file) };
        shard.write(&safetensors::header(&slots))?;
        Ok(shard)
    }

    /// Writes the index, also for a single file, as mlx-lm does.
    pub(super) fn index(
        &self,
        shards: &[&[Item]],
        names: &[String],
        n_bytes: u64,
    ) -> Result<(), Error> {
        let mut map = Map::new();
        for (items, name) in shards.iter().zip(names) {
            for slot in items.iter().flat_map(Item::slots) {
                map.insert(slot.name, name.as_str().into());
            }
        }
        let index = json!({"metadata": {"total_size": n_bytes}, "weight_map": map});
        self.json("model.safetensors.index.json", &index)
    }

    /// Writes tokenizer, chat template and generation config.
    pub(super) fn text(&self, src: &Checkpoint) -> Result<(), Error> {
        let text = &src.text;
        if let Some(tokenizer) = &text.tokenizer {
            self.file("tokenizer.json", &tokenizer.to_json()?)?;
        }
        if let Some(config) = &text.tokenizer_config {
            let mut config = config.clone();
            if let (Some(template), Value::Object(map)) = (&text.chat_template, &mut config) {
                map.insert("chat_template".into(), template.as_str().into());
            }
            self.json("tokenizer_config.json", &config)?;
        }
        if let Some(template) = &text.chat_template {
            self.file("chat_template.jinja", template.as_bytes())?;
        }
        if let Some(template) = &text.tool_template {
            let dir = self.dir.path().join("additional_chat_templates");
            fs::create_dir(&dir).map_err(Error::io(&dir))?;
            self.file("additional_chat_templates/tool_use.jinja", template.as_bytes())?;
        }
        if let Some(map) = &text.special_tokens_map {
            self.json("special_tokens_map.json", map)?;
        }
        if let Some(config) = &src.generation_config {
            self.json("generation_config.json", config)?;
        }
        for name in OTHER_TOKENIZER_FILES {
            let path = src.path().join(name);
            if src.path().is_dir() && path.is_file() {
                self.file(name, &fs::read(&path).map_err(Error::io(&path))?)?;
            }
        }
        Ok(())
    }

    /// Writes `value` as the file `name`.
    pub(super) fn json(&self, name: &str, value: &Value) -> Result<(), Error> {
        self.file(name, format!("{value:#}\n").as_bytes())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.dir.path().join(name);
        let file = File::create(&path).map_err(Error::io(&path))?;
        let mut file = Shard { path, file: BufWriter::with_capacity(LARGE_WRITE, file) };
        file.write(bytes)?;
        file.finish()
    }

    /// Makes the folder appear under its name.
    pub(super) fn finish(self) -> Result<(), Error> {
        let dir = self.dir.path();
        sync(dir)?;
        // A temporary folder is its owner's alone; a model is as readable as any other folder.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(Error::io(dir))?;
        }
        if self.target.exists() {
            // Fails where somebody put something in since it was found to be empty.
            fs::remove_dir(&self.target).map_err(Error::io(&self.target))?;
        }
        fs::rename(dir, &self.target).map_err(Error::io(&self.target))?;
        let parent = self.dir.path().parent().unwrap_or(Path::new(".")).to_owned();
        // The folder has its new name now; there is nothing left to remove.
        let _ = self.dir.keep();
        sync(&parent)
    }
}

impl Shard {
    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(Error::io(&self.path))
    }

    /// Waits until the file is on disk.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.file.flush().map_err(Error::io(&self.path))?;
        self.file.get_ref().sync_all().map_err(Error::io(&self.path))
    }
}

/// Waits until the entries of `dir` are on disk.
fn sync(dir: &Path) -> Result<(), Error> {
    // Only Unix can open a folder as a file.
    if cfg!(unix) {
        File::open(dir).and_then(|file| file.sync_all()).map_err(Error::io(dir))?;
    }
    Ok(())
}
