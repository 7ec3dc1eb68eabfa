//! What setup did to a file, kept in the user's data folder, so that it can be undone to the byte: the
//! text before, and each setting with the value that it replaced.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::edit::{self, EditError, Format, Setting};
use super::file;

/// What was done to one file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Record {
    /// Name of the program.
    pub(crate) agent: String,
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    /// Server and model that it was set to.
    pub(crate) url: String,
    pub(crate) model: String,
    /// The file's text before; `None` if there was none.
    pub(crate) before: Option<String>,
    /// SHA-256 of the text that was written.
    pub(crate) written: String,
    pub(crate) changes: Vec<Change>,
    /// Folders that were made for it, the outermost first.
    pub(crate) folders: Vec<PathBuf>,
}

/// A setting and what it replaced.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) setting: Setting,
    /// `None` if nothing was there.
    pub(crate) before: Option<Value>,
    /// Steps of its way that led somewhere before.
    pub(crate) existed: usize,
}

impl Change {
    /// What this setting is going to change in a text.
    pub(crate) fn of(setting: &Setting, tree: &dyn edit::Tree) -> Change {
        let there = |n: &usize| tree.get(&setting.at[..*n]).is_some();
        Change {
            before: tree.get(&setting.at),
            existed: (1..=setting.at.len()).take_while(there).count(),
            setting: setting.clone(),
        }
    }

    /// Undoes it where its value is still there; another value is the user's.
    fn undo(&self, tree: &mut dyn edit::Tree) -> Result<(), EditError> {
        let at = &self.setting.at;
        if tree.get(at).as_ref() != Some(&self.setting.value) {
            return Ok(());
        }
        if let Some(before) = &self.before {
            return tree.set(at, before);
        }
        tree.remove(at);
        // Tables that were made for it, as far as nobody else uses them.
        for n in (self.existed + 1..at.len()).rev() {
            let empty = |value: &Value| match value {
                Value::Object(table) => table.is_empty(),
                Value::Array(items) => items.is_empty(),
                value => value.is_null(),
            };
            if !tree.get(&at[..n]).as_ref().is_some_and(empty) {
                break;
            }
            tree.remove(&at[..n]);
        }
        Ok(())
    }
}

impl Record {
    /// The file's text without what was set up: the text before, or where somebody has edited it since,
    /// the present one without the values of ours that are still there. `None` is no file.
    pub(crate) fn undone(&self, now: Option<&str>) -> Result<Option<String>, EditError> {
        let Some(now) = now else { return Ok(None) };
        if digest(now) == self.written {
            return Ok(self.before.clone());
        }
        let mut tree = edit::open(self.format, now)?;
        for change in self.changes.iter().rev() {
            change.undo(tree.as_mut())?;
        }
        let text = tree.text();
        let blank = text.trim().is_empty() || text.trim() == "{}";
        Ok((self.before.is_some() || !blank).then_some(text))
    }

    /// Whether the file still says all of it.
    pub(crate) fn holds(&self, now: Option<&str>) -> bool {
        let Some(tree) = now.and_then(|now| edit::open(self.format, now).ok()) else {
            return false;
        };
        let same =
            |change: &Change| tree.get(&change.setting.at).as_ref() == Some(&change.setting.value);
        self.changes.iter().all(same)
    }
}

/// Where records are kept.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(crate) fn new(data: &Path) -> Records {
        Records { folder: data.join("agents") }
    }

    /// One file per file and program: two programs may share one.
    fn place(&self, agent: &str, path: &Path) -> PathBuf {
        let name = digest(&path.to_string_lossy());
        self.folder.join(format!("{agent}-{}.json", &name[..16]))
    }

    /// What was done to this file for this program.
    pub(crate) fn load(&self, agent: &str, path: &Path) -> io::Result<Option<Record>> {
        let place = self.place(agent, path);
        let Some(text) = file::read(&place)? else { return Ok(None) };
        let bad = |error| io::Error::other(format!("{}: {error}", place.display()));
        serde_json::from_str(&text).map(Some).map_err(bad)
    }

    pub(crate) fn save(&self, record: &Record) -> io::Result<()> {
        file::make_folders(&self.folder)?;
        let text = serde_json::to_string_pretty(record).map_err(io::Error::other)?;
        file::write(&self.place(&record.agent, &record.path), &text)
    }

    pub(crate) fn forget(&self, record: &Record) -> io::Result<()> {
        fs::remove_file(self.place(&record.agent, &record.path))
    }
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
