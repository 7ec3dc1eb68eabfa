//! Programs that use a server, as data: where each keeps its settings and which ones lead it here. One
//! file per program in `data/agents`, one line here. What is written where is `setup`'s business.

pub(crate) mod edit;
pub(crate) mod file;
pub(crate) mod probe;
pub(crate) mod record;
pub(crate) mod setup;
pub(crate) mod target;

use serde::Deserialize;
use serde_json::{Map, Value};

use edit::{Format, Setting, Step};
use target::Target;

/// Every program by the name it has on the command line.
const FILES: &[(&str, &str)] = &[
    ("claude", include_str!("../../data/agents/claude.toml")),
    ("codex", include_str!("../../data/agents/codex.toml")),
    ("opencode", include_str!("../../data/agents/opencode.toml")),
    ("aider", include_str!("../../data/agents/aider.toml")),
    ("goose", include_str!("../../data/agents/goose.toml")),
    ("continue", include_str!("../../data/agents/continue.toml")),
    ("cline", include_str!("../../data/agents/cline.toml")),
    ("open-webui", include_str!("../../data/agents/open-webui.toml")),
    ("librechat", include_str!("../../data/agents/librechat.toml")),
    ("langchain", include_str!("../../data/agents/langchain.toml")),
    ("pydantic-ai", include_str!("../../data/agents/pydantic-ai.toml")),
    ("smolagents", include_str!("../../data/agents/smolagents.toml")),
];

/// A program and its settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// Its name on the command line.
    #[serde(skip)]
    pub(crate) name: &'static str,
    /// Its name on its website.
    pub(crate) title: String,
    /// What one has to know, in a sentence.
    #[serde(default)]
    pub(crate) note: String,
    /// Commands that show that it is installed, the first the one to start.
    #[serde(default)]
    pub(crate) programs: Vec<String>,
    /// Where its files lie.
    pub(crate) folder: Folder,
    #[serde(default)]
    pub(crate) files: Vec<File>,
    /// For libraries: a program that asks something.
    #[serde(default)]
    pub(crate) snippet: String,
    /// How to start it with settings of its own; `None` for what is no program.
    #[serde(default)]
    pub(crate) launch: Option<Launch>,
}

/// A folder: what the variable says, else the default. `~` is the home, `.` where one is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Folder {
    #[serde(default)]
    pub(crate) var: Option<String>,
    pub(crate) default: String,
}

/// A file with settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Below the folder.
    pub(crate) path: String,
    pub(crate) format: Format,
    /// Who gets it.
    #[serde(default)]
    pub(crate) part_of: PartOf,
    /// Set whatever was there.
    #[serde(default)]
    pub(crate) set: Map<String, Value>,
    /// Set where nothing was there.
    #[serde(default)]
    pub(crate) default: Map<String, Value>,
}

/// Which profiles a file belongs to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PartOf {
    /// The user's and private ones.
    #[default]
    All,
    /// Private ones: it says what the user has said once.
    Private,
}

/// How a program is started with a profile of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Launch {
    /// In front of the user's arguments.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Variables, beside those of the files that are lines of `NAME=value`.
    #[serde(default)]
    pub(crate) env: Map<String, Value>,
}

/// All programs, in the order of the list.
pub(crate) fn all() -> Vec<Agent> {
    // They are part of this program: a mistake in one is ours, and a test reads all.
    let read = |&(name, text): &(&'static str, &str)| {
        let agent: Agent = toml::from_str(text).expect("its own file can be read");
        Agent { name, ..agent }
    };
    FILES.iter().map(read).collect()
}

/// The program of this name; other spellings of it are those of its title.
pub(crate) fn find(name: &str) -> Option<Agent> {
    let plain = |text: &str| {
        let letters = text.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    let wanted = plain(name);
    all().into_iter().find(|agent| plain(agent.name) == wanted || plain(&agent.title) == wanted)
}

/// Variables that name folders of some program.
pub(crate) fn folder_variables() -> Vec<String> {
    let mut names: Vec<String> = all().into_iter().filter_map(|agent| agent.folder.var).collect();
    names.sort();
    names.dedup();
    names
}

impl File {
    /// Its settings for this server. Those that need what is not known are left out.
    pub(crate) fn settings(&self, target: &Target) -> Vec<Setting> {
        flat(&self.set, target)
    }

    /// The same of those that only fill gaps.
    pub(crate) fn defaults(&self, target: &Target) -> Vec<Setting> {
        flat(&self.default, target)
    }
}

fn flat(table: &Map<String, Value>, target: &Target) -> Vec<Setting> {
    let mut settings = Vec::new();
    if let Some(filled) = target.fill(&Value::Object(table.clone())) {
        flatten(filled, &mut Vec::new(), &mut settings);
    }
    settings
}

/// Takes a table apart into its leaves. A list of tables is one setting per table, found again by its
/// name or id; any other list is a leaf.
fn flatten(value: Value, way: &mut Vec<Step>, out: &mut Vec<Setting>) {
    match value {
        Value::Object(table) if !way.is_empty() && table.is_empty() => {
            out.push(Setting { at: way.clone(), value: Value::Object(table) });
        }
        Value::Object(table) => {
            for (key, value) in table {
                way.push(Step::Key(key));
                flatten(value, way, out);
                way.pop();
            }
        }
        Value::Array(items) if items.iter().all(|item| identity(item).is_some()) => {
            for item in items {
                way.extend(identity(&item));
                out.push(Setting { at: way.clone(), value: item });
                way.pop();
            }
        }
        value => out.push(Setting { at: way.clone(), value }),
    }
}

/// What tells an item of a list from the others.
fn identity(item: &Value) -> Option<Step> {
    ["name", "id"].into_iter().find_map(|key| {
        let is = item.get(key)?.as_str()?.to_owned();
        Some(Step::Item { key: key.to_owned(), is })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_can_be_read_and_applied() {
        let target = Target::example();
        for agent in all() {
            for file in &agent.files {
                let settings = [file.defaults(&target), file.settings(&target)].concat();
                assert!(!settings.is_empty(), "{}: {}", agent.name, file.path);
                edit::apply(file.format, "", &settings).unwrap();
            }
            assert!(!agent.files.is_empty(), "{}", agent.name);
            assert!(agent.launch.is_none() || !agent.programs.is_empty(), "{}", agent.name);
        }
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for (name, found) in
            [("Claude Code", "claude"), ("open_webui", "open-webui"), ("PydanticAI", "pydantic-ai")]
        {
            assert_eq!(find(name).unwrap().name, found);
        }
        assert!(find("emacs").is_none());
    }

    #[test]
    fn a_list_of_named_tables_is_one_setting_per_table() {
        let table = serde_json::json!({"a": {"b": [1]}, "m": [{"name": "H", "n": 1}]});
        let Value::Object(table) = table else { unreachable!() };
        let settings = flat(&table, &Target::example());
        let shown: Vec<String> = settings.iter().map(|s| edit::shown(&s.at)).collect();
        assert_eq!(shown, ["a.b", "m.[name=H]"]);
    }
}
