//! Settings in a file that is somebody else's: read, set and removed one by one, everything around them
//! kept as it is, comments and order included. Which settings is not known here, and no file is touched.

mod env;
mod json;
mod toml;
mod yaml;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a file is written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// With comments and trailing commas, as most programs that read such files allow.
    Json,
    Toml,
    Yaml,
    /// Lines of `NAME=value`.
    Env,
}

/// One step on the way to a setting.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Step {
    /// Into a table, by name.
    Key(String),
    /// Into a list, to the table that has this value at this key.
    Item { key: String, is: String },
}

/// A setting: where it is and what it is. Its way leads through tables and lists that are made where
/// there are none.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Setting {
    pub(crate) at: Vec<Step>,
    pub(crate) value: Value,
}

/// Why a file cannot be edited. It is left alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    #[error("is not valid {format}: {reason}")]
    Invalid { format: &'static str, reason: String },
    /// Where a table or list was to be, there is something else.
    #[error("has something else than a {wanted} at `{at}`")]
    Shape { at: String, wanted: &'static str },
    /// The edited text does not say what it was to say, or lost something.
    #[error("cannot be edited without changing more than {0}; please edit it by hand")]
    Unsafe(String),
}

/// The contents of a file.
pub(crate) trait Tree {
    /// The value there, if there is one.
    fn get(&self, at: &[Step]) -> Option<Value>;
    /// Puts a value there, in place of what was there.
    fn set(&mut self, at: &[Step], value: &Value) -> Result<(), EditError>;
    /// Takes it away. Tables that become empty stay.
    fn remove(&mut self, at: &[Step]);
    fn text(&self) -> String;
}

/// Reads a file's text; an empty one is an empty table.
pub(crate) fn open(format: Format, text: &str) -> Result<Box<dyn Tree>, EditError> {
    Ok(match format {
        Format::Json => Box::new(json::Json::open(text)?),
        Format::Toml => Box::new(toml::Toml::open(text)?),
        Format::Yaml => Box::new(yaml::Yaml::open(text)?),
        Format::Env => Box::new(env::Env::open(text)?),
    })
}

/// The text with these settings. What comes out is read again: it must hold all of them, and where
/// lines are what is edited, every line but theirs.
pub(crate) fn apply(format: Format, text: &str, settings: &[Setting]) -> Result<String, EditError> {
    let mut tree = open(format, text)?;
    for setting in settings {
        if tree.get(&setting.at).as_ref() != Some(&setting.value) {
            tree.set(&setting.at, &setting.value)?;
        }
    }
    let edited = tree.text();
    let again = open(format, &edited)?;
    for setting in settings {
        if again.get(&setting.at).as_ref() != Some(&setting.value) {
            return Err(EditError::Unsafe(shown(&setting.at)));
        }
    }
    if matches!(format, Format::Yaml | Format::Env) {
        let most = settings.iter().map(|setting| lines_of(&setting.value)).sum();
        if lines_lost(text, &edited) > most {
            return Err(EditError::Unsafe("these settings".to_owned()));
        }
    }
    Ok(edited)
}

/// How many lines a value may stand on.
fn lines_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(lines_of).sum::<usize>() + 1,
        Value::Object(table) => table.values().map(lines_of).sum::<usize>() + 1,
        _ => 1,
    }
}

/// Lines of `before` that are not in `after`, in their order.
fn lines_lost(before: &str, after: &str) -> usize {
    let mut rest = after.lines();
    let mut lost = 0;
    for line in before.lines().filter(|line| !line.trim().is_empty()) {
        let mut ahead = rest.clone();
        if ahead.any(|other| other == line) {
            rest = ahead;
        } else {
            lost += 1;
        }
    }
    lost
}

/// A way as people write it.
pub(crate) fn shown(at: &[Step]) -> String {
    let step = |step: &Step| match step {
        Step::Key(key) => key.clone(),
        Step::Item { key, is } => format!("[{key}={is}]"),
    };
    at.iter().map(step).collect::<Vec<_>>().join(".")
}

/// The error for a way that ends `n` steps in, where it needs a `wanted`.
fn blocked(at: &[Step], n: usize, wanted: &'static str) -> EditError {
    EditError::Shape { at: shown(&at[..n]), wanted }
}

/// What a step leads into.
fn wanted(step: &Step) -> &'static str {
    match step {
        Step::Key(_) => "table",
        Step::Item { .. } => "list",
    }
}

#[cfg(test)]
mod tests;
