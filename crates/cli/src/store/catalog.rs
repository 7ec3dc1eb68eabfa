//! The alias table, which is data (`data/models.toml`), and how a name on the command line is read.

use std::path::PathBuf;

use serde::Deserialize;

/// Alias of the model that commands use when none is named.
pub(crate) const DEFAULT_ALIAS: &str = "smollm2-135m-4bit";

/// One row of the alias table.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// What people type.
    pub(crate) alias: String,
    /// One sentence for people.
    pub(crate) about: String,
    /// Of the weights.
    pub(crate) license: String,
    /// Hub repository.
    pub(crate) repo: Option<String>,
    /// The one file of that repository, where it holds more than one model.
    pub(crate) file: Option<String>,
    /// Bytes to download, where the table knows.
    pub(crate) size: Option<u64>,
    /// The same file on the package index.
    pub(crate) index: Option<IndexSource>,
    /// What the makers recommend, for models whose files do not say.
    pub(crate) sampling: Option<Recommended>,
}

/// Sampling settings that a model's makers recommend.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recommended {
    /// 0 to 2.
    pub(crate) temperature: f32,
    /// Above 0, at most 1.
    pub(crate) top_p: f32,
}

/// A file that lies in the wheels of pinned packages.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct IndexSource {
    /// Of the joined file, in hexadecimal.
    pub(crate) sha256: String,
    /// Joined in this order.
    pub(crate) parts: Vec<IndexPart>,
}

/// One entry of one wheel.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct IndexPart {
    /// `name==version`.
    pub(crate) package: String,
    /// Path inside the wheel.
    pub(crate) path: String,
}

/// What a name on the command line means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelName {
    /// A folder or file of this machine.
    Local(PathBuf),
    /// A row of the alias table.
    Alias(Entry),
    /// A hub repository, `org/name`, with an optional file after a colon.
    Repo {
        /// `org/name`.
        repo: String,
        /// Which file of it, for repositories of GGUF files.
        file: Option<String>,
    },
}

/// The whole table, in file order.
pub(crate) fn entries() -> Vec<Entry> {
    #[derive(Deserialize)]
    struct Table {
        model: Vec<Entry>,
    }
    let table: Table = toml::from_str(include_str!("../../data/models.toml"))
        .expect("the alias table is part of the program and tested");
    table.model
}

impl ModelName {
    /// Reads `name`: a path that exists, else an alias, else a repository.
    pub(crate) fn parse(name: &str) -> Result<ModelName, UnknownModel> {
        let path = PathBuf::from(name);
        if path.exists() {
            return Ok(ModelName::Local(path));
        }
        let alias = if name == "default" { DEFAULT_ALIAS } else { name };
        let entries = entries();
        if let Some(entry) = entries.iter().find(|entry| entry.alias.eq_ignore_ascii_case(alias)) {
            return Ok(ModelName::Alias(entry.clone()));
        }
        if let Some((repo, file)) = parse_repo(name).filter(|_| !is_path(name)) {
            return Ok(ModelName::Repo { repo, file });
        }
        Err(UnknownModel { name: name.to_owned(), nearest: nearest(name, &entries) })
    }
}

/// `org/name` or `org/name:file`, in the characters that the hub allows.
fn parse_repo(name: &str) -> Option<(String, Option<String>)> {
    let (repo, file) = name.split_once(':').map_or((name, None), |(r, f)| (r, Some(f)));
    let (org, model) = repo.split_once('/')?;
    let legal = |part: &str| {
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let file_is_legal = file.is_none_or(|f| f.split('/').all(legal));
    (legal(org) && legal(model) && file_is_legal)
        .then(|| (repo.to_owned(), file.map(str::to_owned)))
}

/// Whether nothing but a path is written like this.
fn is_path(name: &str) -> bool {
    let is_file = name.ends_with(".gguf") && !name.contains(':');
    is_file || name.starts_with(['.', '/', '~']) || name.ends_with('/')
}

/// Nobody knows this name.
#[derive(Debug, PartialEq)]
pub(crate) struct UnknownModel {
    name: String,
    nearest: Vec<String>,
}

impl std::error::Error for UnknownModel {}

impl std::fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let UnknownModel { name, nearest } = self;
        if is_path(name) {
            return write!(
                f,
                "there is no file or folder `{name}`; `hearth ls` shows what is here"
            );
        }
        write!(f, "there is no model `{name}`: not a folder or file here, not a known short name")?;
        if !nearest.is_empty() {
            write!(f, " (did you mean {}?)", nearest.join(" or "))?;
        }
        write!(f, ". Name a folder, a .gguf file, a hub repository as `org/name`, ")?;
        write!(f, "or one of `hearth models --available`")
    }
}

/// The two aliases that share most letter pairs with `name`, if any share enough.
fn nearest(name: &str, entries: &[Entry]) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let mut scored: Vec<(f64, &str)> =
        entries.iter().map(|entry| (likeness(&name, &entry.alias), entry.alias.as_str())).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let close = scored.into_iter().filter(|(score, _)| *score > 0.35).take(2);
    close.map(|(_, alias)| format!("`{alias}`")).collect()
}

/// Dice coefficient over pairs of neighbouring bytes, 0 to 1.
fn likeness(a: &str, b: &str) -> f64 {
    let pairs = |s: &str| s.as_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (pairs_a, mut rest) = (pairs(a), pairs(b));
    let total = pairs_a.len() + rest.len();
    let mut shared = 0;
    for pair in &pairs_a {
        if let Some(at) = rest.iter().position(|other| other == pair) {
            rest.swap_remove(at);
            shared += 1;
        }
    }
    if total == 0 { 0.0 } else { 2.0 * f64::from(shared) / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        let entries = entries();
        assert!(entries.iter().any(|entry| entry.alias == DEFAULT_ALIAS));
        for entry in &entries {
            let twins = entries.iter().filter(|other| other.alias == entry.alias).count();
            assert_eq!(twins, 1, "{} is there twice", entry.alias);
            assert!(entry.repo.is_some() || entry.index.is_some(), "{} has no source", entry.alias);
            if let Some(repo) = &entry.repo {
                assert!(parse_repo(repo).is_some(), "{repo}");
            }
            if let Some(sampling) = entry.sampling {
                assert!((0.0..=2.0).contains(&sampling.temperature));
                assert!(sampling.top_p > 0.0 && sampling.top_p <= 1.0);
            }
            if let Some(index) = &entry.index {
                assert_eq!(index.sha256.len(), 64);
                assert!(index.parts.iter().all(|part| part.package.contains("==")));
                assert!(entry.file.is_some() || entry.repo.is_none());
            }
        }
    }

    #[test]
    fn names_mean_what_people_expect() {
        let alias = |name| match ModelName::parse(name) {
            Ok(ModelName::Alias(entry)) => entry.alias,
            other => format!("{other:?}"),
        };
        assert_eq!(alias("default"), DEFAULT_ALIAS);
        assert_eq!(alias("SmolLM2-135M-4bit"), DEFAULT_ALIAS);
        assert!(matches!(ModelName::parse("."), Ok(ModelName::Local(_))));
        let repo = ModelName::parse("org/some.model-4bit").unwrap();
        assert_eq!(repo, ModelName::Repo { repo: "org/some.model-4bit".to_owned(), file: None });
        let file = ModelName::parse("org/name:sub/x.gguf").unwrap();
        let expected = Some("sub/x.gguf".to_owned());
        assert_eq!(file, ModelName::Repo { repo: "org/name".to_owned(), file: expected });
    }

    #[test]
    fn bad_names_are_refused_and_near_ones_named() {
        for name in [
            "../../secret",
            "/no/such/place",
            "folder/model.gguf",
            "org/..",
            "a/b/c",
            "a%2f..%2fb",
            "",
            "org/x:../y",
        ] {
            assert!(ModelName::parse(name).is_err(), "{name}");
        }
        let error = ModelName::parse("smollm-135m").unwrap_err().to_string();
        assert!(error.contains("`smollm2-135m-4bit`"), "{error}");
    }
}
