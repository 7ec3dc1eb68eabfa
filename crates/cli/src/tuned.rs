//! What `hearth tune` found for a model on this machine: where it is kept, and who uses it. Only settings
//! that change the speed of an answer and none of its bytes are ever used without being asked for.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use backend::KvFormat;
use serde::{Deserialize, Serialize};

use crate::env::Environment;
use crate::load::{self, LoadArgs};

/// Version of the form.
const SCHEMA: u32 = 2;

/// Whether to use it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TunedArgs {
    /// Ignore what `hearth tune` found for this model on this machine
    #[arg(long)]
    no_tuned: bool,
}

/// Settings that were compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Threads that compute.
    pub(crate) threads: usize,
    /// Rows of one pass.
    pub(crate) pass_rows: usize,
    /// How keys and values are kept. Changes answers.
    pub(crate) kv_format: String,
}

impl Settings {
    /// The choices with these in place of what they say.
    pub(crate) fn applied(&self, args: &LoadArgs) -> LoadArgs {
        LoadArgs {
            threads: Some(self.threads),
            pass_rows: Some(self.pass_rows),
            kv_format: KvFormat::named(&self.kv_format),
            ..args.clone()
        }
    }
}

/// One of the settings and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tried {
    /// The settings.
    pub(crate) settings: Settings,
    /// Seconds of one request, middle of all rounds.
    pub(crate) seconds: f64,
    /// In the order of the rounds.
    pub(crate) seconds_rounds: Vec<f64>,
}

/// What was found, and what was measured for it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tuning {
    /// Version of the form.
    pub(crate) schema: u32,
    /// The model's id.
    pub(crate) model: String,
    /// The processor.
    pub(crate) cpu: String,
    /// How many of them.
    pub(crate) processors: usize,
    /// What was asked to compute.
    pub(crate) device: String,
    /// Tokens of the prompt.
    pub(crate) n_prompt: u32,
    /// Tokens of the answer.
    pub(crate) n_gen: u32,
    /// What is used from now on.
    pub(crate) best: Settings,
    /// The evidence.
    pub(crate) tried: Vec<Tried>,
}

impl Tuning {
    /// Of this machine, with nothing tried yet.
    pub(crate) fn new(model: &str, args: &LoadArgs, best: Settings) -> Tuning {
        let machine = lab::run::machine();
        Tuning {
            schema: SCHEMA,
            model: load::model_id(model),
            cpu: machine.cpu,
            processors: machine.processors,
            device: device(args),
            n_prompt: 0,
            n_gen: 0,
            best,
            tried: Vec::new(),
        }
    }

    /// Puts it beside the models, one file for each of them.
    pub(crate) fn save(&self, env: &Environment) -> Result<PathBuf> {
        let path = path(&self.model, env);
        let write = || -> std::io::Result<()> {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, serde_json::to_string_pretty(self)?)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// What was found for a model, if that was here. `None` also where the file is of another machine or
    /// version: then nothing is known.
    fn read(model: &str, args: &LoadArgs, env: &Environment) -> Option<Tuning> {
        let text = fs::read_to_string(path(&load::model_id(model), env)).ok()?;
        let tuning: Tuning = serde_json::from_str(&text).ok()?;
        let machine = lab::run::machine();
        let is_here = tuning.cpu == machine.cpu && tuning.processors == machine.processors;
        let is_usable = load::threads_range().contains(&tuning.best.threads)
            && load::PASS_ROWS.contains(&tuning.best.pass_rows);
        let is_ours = tuning.schema == SCHEMA && tuning.device == device(args);
        (is_ours && is_here && is_usable).then_some(tuning)
    }
}

/// What was asked to compute: what is best on one device is not on another.
fn device(args: &LoadArgs) -> String {
    format!("{:?}", args.device).to_lowercase()
}

fn path(id: &str, env: &Environment) -> PathBuf {
    let name: String =
        id.chars().map(|c| if c.is_alphanumeric() || ".-".contains(c) { c } else { '_' }).collect();
    env.cache.join("tune").join(format!("{name}.json"))
}

impl TunedArgs {
    /// Fills in what nobody has chosen with what was found for a model, and gives what to say about it.
    pub(crate) fn fill(
        &self,
        model: &str,
        load: &mut LoadArgs,
        env: &Environment,
    ) -> Option<String> {
        let is_chosen = load.threads.is_some() && load.pass_rows.is_some();
        // Ranks were told what to expect before; they are not what was measured either.
        if self.no_tuned || is_chosen || load.is_shared() {
            return None;
        }
        let best = Tuning::read(model, load, env)?.best;
        let mut said = Vec::new();
        if load.threads.is_none() {
            load.threads = Some(best.threads);
            said.push(format!("--threads {}", best.threads));
        }
        if load.pass_rows.is_none() {
            load.pass_rows = Some(best.pass_rows);
            said.push(format!("--pass-rows {}", best.pass_rows));
        }
        let id = load::model_id(model);
        Some(format!("{id}: {}, as `hearth tune` found; --no-tuned ignores it", said.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { threads: 1, pass_rows: 512, kv_format: "q8".to_owned() }
    }

    #[test]
    fn what_was_found_is_used_where_nobody_chose() {
        let folder = tempfile::tempdir().unwrap();
        let env = Environment { cache: folder.path().to_owned(), ..Environment::read() };
        let args = TunedArgs::default();
        let filled = |args: &TunedArgs, load: LoadArgs| {
            let mut load = load;
            let said = args.fill("org/model", &mut load, &env);
            (load.threads, load.pass_rows, load.kv_format, said)
        };
        assert_eq!(filled(&args, LoadArgs::default()), (None, None, None, None));
        let mut tuning = Tuning::new("org/model", &LoadArgs::default(), settings());
        tuning.save(&env).unwrap();
        // Never the format of keys and values: answers depend on it.
        let (threads, rows, format, said) = filled(&args, LoadArgs::default());
        assert_eq!((threads, rows, format), (Some(1), Some(512), None));
        assert!(said.unwrap().contains("--threads 1 --pass-rows 512"));
        let chosen = LoadArgs { threads: Some(2), ..LoadArgs::default() };
        let (threads, rows, _, said) = filled(&args, chosen);
        assert_eq!((threads, rows), (Some(2), Some(512)));
        assert!(!said.unwrap().contains("--threads"));
        let none = filled(&TunedArgs { no_tuned: true }, LoadArgs::default());
        assert_eq!(none, (None, None, None, None));
        // What cannot be right is no news.
        for wrong in [
            Tuning { cpu: "another".to_owned(), ..read(&env) },
            Tuning { schema: 1, ..read(&env) },
            Tuning { device: "another".to_owned(), ..read(&env) },
            Tuning { best: Settings { threads: 0, ..settings() }, ..read(&env) },
            Tuning { best: Settings { pass_rows: 1 << 30, ..settings() }, ..read(&env) },
        ] {
            wrong.save(&env).unwrap();
            assert_eq!(filled(&args, LoadArgs::default()).3, None, "{wrong:?}");
            tuning.n_gen += 1;
            tuning.save(&env).unwrap();
        }
        fs::write(path("org/model", &env), "{").unwrap();
        assert_eq!(filled(&args, LoadArgs::default()).3, None);
    }

    fn read(env: &Environment) -> Tuning {
        Tuning::read("org/model", &LoadArgs::default(), env).unwrap()
    }
}
