//! Engines as data: how a server is launched, found ready, given its model, kept from caching, stopped.
//!
//! A recipe is a file in `bench/engines` and a line in the list below, or any file of that form.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// Recipes that come with the lab.
const BUILT_IN: &[(&str, &str)] = &[
    ("dflash-mlx", include_str!("../../../bench/engines/dflash-mlx.toml")),
    ("hearth", include_str!("../../../bench/engines/hearth.toml")),
    ("llama-server", include_str!("../../../bench/engines/llama-server.toml")),
    ("mistralrs", include_str!("../../../bench/engines/mistralrs.toml")),
    ("mlx-lm", include_str!("../../../bench/engines/mlx-lm.toml")),
    ("mlx-vlm", include_str!("../../../bench/engines/mlx-vlm.toml")),
    ("mtplx", include_str!("../../../bench/engines/mtplx.toml")),
    ("ollama", include_str!("../../../bench/engines/ollama.toml")),
    ("omlx", include_str!("../../../bench/engines/omlx.toml")),
    ("rapid-mlx", include_str!("../../../bench/engines/rapid-mlx.toml")),
    ("url", include_str!("../../../bench/engines/url.toml")),
    ("vllm-mlx", include_str!("../../../bench/engines/vllm-mlx.toml")),
];

/// How a server is used. Texts may have `{name}` in them; which names there are says [`Values`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Its name in plans.
    #[serde(skip)]
    pub name: String,
    /// Its name in charts.
    pub title: String,
    /// The program, as a shell would find it; a plan may say where it is.
    #[serde(default)]
    pub program: Option<String>,
    /// What is run. Nothing: somebody else runs the server.
    #[serde(default)]
    pub launch: Vec<String>,
    /// What tells its version.
    #[serde(default)]
    pub version: Vec<String>,
    /// Its environment, beside ours.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A page that is there when it is ready.
    #[serde(default = "health")]
    pub ready: String,
    /// Most seconds until it is ready.
    #[serde(default = "ready_limit")]
    pub ready_limit_s: u64,
    /// What requests call the model.
    #[serde(default = "model_name")]
    pub model: String,
    /// Forms of models that it reads, the best one first.
    pub formats: Vec<Format>,
    /// Fields of every request.
    #[serde(default)]
    pub fields: BTreeMap<String, Value>,
    /// Further fields of requests that no cache shall help.
    #[serde(default)]
    pub cold_fields: BTreeMap<String, Value>,
    /// An address that is posted to before such a request, to empty the cache.
    #[serde(default)]
    pub clear: Option<String>,
    /// What one has to know to judge its numbers.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Forms of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One file.
    Gguf,
    /// A folder with MLX's safetensors.
    Mlx,
    /// A folder with Hugging Face's.
    Hf,
    /// A name that the server knows.
    #[serde(rename = "served")]
    Name,
}

fn health() -> String {
    "/health".to_owned()
}

fn ready_limit() -> u64 {
    300
}

fn model_name() -> String {
    "{model_name}".to_owned()
}

impl Engine {
    /// The recipe called `name`, or in the file `name`.
    ///
    /// # Errors
    /// [`Error`] if there is none or it is not well formed.
    pub fn named(name: &str) -> Result<Engine, Error> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Engine::parse(Path::new(name), text);
        }
        if !name.ends_with(".toml") {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            return Err(Error::Plan(format!(
                "no engine `{name}`: a .toml file, or one of {known}"
            )));
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
        Engine::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Engine, Error> {
        let mut engine: Engine =
            toml::from_str(text).map_err(|error| Error::malformed(path, error))?;
        engine.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let texts = engine.launch.iter().chain(engine.env.values()).chain([&engine.model]);
        for text in texts {
            if let Some(unknown) = names(text).find(|name| !Values::NAMES.contains(name)) {
                return Err(Error::malformed(
                    path,
                    format!("`{{{unknown}}}` is no name of a value"),
                ));
            }
        }
        Ok(engine)
    }

    /// Names of all recipes that come with the lab.
    pub fn known() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }
}

/// What stands for the names in a recipe.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// Of each of [`Values::NAMES`].
    pub values: BTreeMap<&'static str, String>,
}

impl Values {
    /// `program`: where the engine is. `model`: path or name of the model. `model_folder`, `model_file`: its
    /// two parts. `model_name`: its name without folders and ending. `first`: what the server calls its first model, asked when it is ready. `port`: a free one. `threads`. `users`: most at once. `context`: tokens of
    /// each. `context_all`: of all together. `work`: a folder that outlives a restart.
    pub const NAMES: &[&str] = &[
        "program",
        "model",
        "model_folder",
        "model_file",
        "model_name",
        "first",
        "port",
        "threads",
        "users",
        "context",
        "context_all",
        "work",
    ];

    /// The text with values in it.
    pub fn fill(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.values {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        filled
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_that_comes_along_is_well_formed() {
        for name in Engine::known() {
            let engine = Engine::named(name).unwrap();
            assert!(!engine.title.is_empty() && !engine.formats.is_empty(), "{name}");
            assert_eq!(engine.launch.is_empty(), name == "url", "{name}");
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/engines");
        let files = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(files, BUILT_IN.len(), "a recipe without its line");
    }

    #[test]
    fn what_is_no_recipe_is_an_error() {
        assert!(Engine::named("nobody").unwrap_err().to_string().contains("llama-server"));
        let parse = |text: &str| Engine::parse(Path::new("x"), text).unwrap_err().to_string();
        assert!(parse("title = 1").contains("title"));
        let text = "title = \"x\"\nformats = [\"gguf\"]\nlaunch = [\"{programme}\"]";
        assert!(parse(text).contains("`{programme}`"));
    }

    #[test]
    fn names_are_filled_in() {
        let values = [("port", "81".to_owned()), ("model", "a b".to_owned())].into();
        assert_eq!(Values { values }.fill("-p={port} {model}{port}"), "-p=81 a b81");
    }
}
