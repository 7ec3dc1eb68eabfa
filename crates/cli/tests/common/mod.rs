//! The built command in a home of its own, and a tiny model to give it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use weights::{ConvertOptions, Repacking};

const TOKENIZER: &[u8] = include_bytes!("../../../text/tests/fixtures/bytelevel.json");

/// Empty caches, and no variables but the necessary ones.
pub(crate) struct Home(TempDir, Vec<(&'static str, String)>);

impl Home {
    pub(crate) fn new() -> Home {
        Home(tempfile::tempdir().unwrap(), Vec::new())
    }

    /// With these variables for every command from now on.
    #[allow(dead_code, reason = "not all tests need some")]
    pub(crate) fn set(&mut self, vars: Vec<(&'static str, String)>) {
        self.1 = vars;
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// `hearth ARGS` with these further variables.
    pub(crate) fn command(&self, args: &[&str], vars: &[(&str, &str)]) -> Command {
        let mut command = hearth();
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .env("HF_HOME", self.path().join("hf"))
            .env("HEARTH_CACHE", self.path().join("hearth"))
            .envs(self.1.iter().map(|(name, value)| (name, value)))
            .envs(vars.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// What that printed and how it ended.
    pub(crate) fn run(&self, args: &[&str], vars: &[(&str, &str)]) -> Output {
        self.command(args, vars).output().unwrap()
    }
}

/// The built command. It gets nothing that whoever runs the tests has open, such as a lock.
#[cfg(unix)]
fn hearth() -> Command {
    let mut shell = Command::new("/bin/sh");
    let closing = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec "$0" "$@""#;
    shell.args(["-c", closing, env!("CARGO_BIN_EXE_hearth")]);
    shell
}

#[cfg(not(unix))]
fn hearth() -> Command {
    Command::new(env!("CARGO_BIN_EXE_hearth"))
}

/// A tiny model whose answers mean nothing, in several shards.
pub(crate) fn write_model(folder: &Path) {
    write_model_of(models::tiny::config("llama").unwrap(), folder);
}

/// The same with another config.
pub(crate) fn write_model_of(config: serde_json::Value, folder: &Path) {
    write_checkpoint(models::tiny::checkpoint(config, 7).unwrap(), folder);
}

/// Writes a model without a tokenizer, with one.
pub(crate) fn write_checkpoint(mut checkpoint: weights::Checkpoint, folder: &Path) {
    checkpoint.text.tokenizer = Some(weights::TokenizerFile::Json(TOKENIZER.into()));
    let options = ConvertOptions {
        packing: Repacking::Floats,
        dtype: None,
        threads: 1,
        shard_bytes: 100_000,
    };
    weights::convert(&checkpoint, folder, &options, &mut |_| ()).unwrap();
}

/// The one line that standard error holds.
#[track_caller]
pub(crate) fn only_line(out: &Output) -> String {
    let said = String::from_utf8(out.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end().to_owned()
}
