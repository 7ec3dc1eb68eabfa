//! Plans: which engines, which models, which workloads, how often. A file in TOML, or made of a few flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Engine, Format};
use crate::error::Error;
use crate::record::{Cell, Target};
use crate::workload::Workload;

/// Everything that is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// The text it was read from.
    pub text: String,
    /// Runs of every cell that count.
    pub runs: u32,
    /// Runs after every start that do not count.
    pub warm_up: u32,
    /// Seconds of rest before every run.
    pub cool_down_s: f64,
    /// Threads that engines get, where they can be told.
    pub threads: usize,
    /// Of prompts and orders.
    pub seed: u64,
    /// Most seconds of one request.
    pub limit_s: u64,
    /// Sent with every request.
    pub sampling: BTreeMap<String, Value>,
    /// What good answers keep.
    pub target: Target,
    /// The arms: engines with their settings.
    pub arms: Vec<Arm>,
    /// An arm and its twin, whose difference is noise.
    pub null: Option<[String; 2]>,
    /// The models.
    pub models: Vec<Model>,
    /// The workloads.
    pub workloads: Vec<Workload>,
}

/// An engine with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name in files and charts.
    pub label: String,
    /// The recipe.
    pub engine: Engine,
    /// Further arguments of its launch.
    pub arguments: Vec<String>,
    /// Where it runs, if somebody else runs it.
    pub url: Option<String>,
    /// The key it wants.
    pub key: Option<String>,
    /// The models it answers with; all if none is named.
    pub models: Vec<String>,
    /// All that is measured of it, where that is not everything.
    pub cells: Option<Cells>,
}

/// Some cells of a plan: values by workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Cells(BTreeMap<String, Vec<u64>>);

impl Cells {
    /// Whether a cell is one of them.
    pub fn has(&self, cell: &Cell) -> bool {
        self.0.get(&cell.workload).is_some_and(|values| values.contains(&cell.at))
    }

    /// A cell that shall be measured and that no workload has is a slip of the pen.
    fn check(&self, workloads: &[Workload]) -> Result<(), String> {
        let named = self.0.iter().flat_map(|(name, all)| all.iter().map(move |at| (name, at)));
        for (workload, at) in named {
            let mut all = workloads.iter().flat_map(Workload::cells);
            if !all.any(|cell| cell.workload == *workload && cell.at == *at) {
                return Err(format!("no workload has a cell `{workload}` {at}"));
            }
        }
        Ok(())
    }
}

/// A model, in every form in which it is at hand.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Model {
    /// Its name in files and charts.
    pub name: String,
    /// A path or a name, by form.
    #[serde(flatten)]
    pub forms: BTreeMap<Format, String>,
    /// All that is measured with it, where that is not everything.
    #[serde(default)]
    pub cells: Option<Cells>,
}

impl Model {
    /// What an engine gets of it: the first of its forms that there is.
    pub fn form(&self, engine: &Engine) -> Option<(Format, &str)> {
        engine
            .formats
            .iter()
            .find_map(|format| self.forms.get(format).map(|path| (*format, path.as_str())))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default = "five")]
    runs: u32,
    #[serde(default = "one")]
    warm_up: u32,
    #[serde(default = "two_seconds")]
    cool_down_s: f64,
    #[serde(default)]
    threads: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default = "ten_minutes")]
    limit_s: u64,
    sampling: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    target: Target,
    /// Label of the arm that is measured twice.
    null: Option<String>,
    models: Vec<Model>,
    arms: Vec<ArmFile>,
    workloads: Vec<WorkloadFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmFile {
    engine: String,
    label: Option<String>,
    program: Option<String>,
    #[serde(default)]
    arguments: Vec<String>,
    url: Option<String>,
    #[serde(default)]
    models: Vec<String>,
    cells: Option<Cells>,
}

#[derive(Deserialize)]
struct WorkloadFile {
    #[serde(rename = "use")]
    name: String,
    #[serde(flatten)]
    changes: toml::Table,
}

fn five() -> u32 {
    5
}

fn one() -> u32 {
    1
}

fn two_seconds() -> f64 {
    2.0
}

fn ten_minutes() -> u64 {
    600
}

/// What is sent unless a plan says otherwise: the likeliest token each time, and nothing left to a
/// server's own taste.
pub fn greedy() -> BTreeMap<String, Value> {
    let fields = [("temperature", json!(0)), ("top_p", json!(1)), ("seed", json!(1))];
    fields.map(|(name, value)| (name.to_owned(), value)).into()
}

impl Plan {
    /// Of a file.
    ///
    /// # Errors
    /// [`Error`] that says what is wrong with it.
    pub fn read(path: &Path) -> Result<Plan, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
        Plan::parse(&text, path)
    }

    /// Of the text of a file; `path` is for errors.
    ///
    /// # Errors
    /// [`Error`] that says what is wrong with it.
    pub fn parse(text: &str, path: &Path) -> Result<Plan, Error> {
        let file: File = toml::from_str(text).map_err(|error| Error::malformed(path, error))?;
        let arms = file.arms.into_iter().map(arm).collect::<Result<Vec<_>, _>>()?;
        let workloads = file
            .workloads
            .into_iter()
            .map(|workload| Workload::named(&workload.name, workload.changes));
        let mut plan = Plan {
            name: file.name,
            text: text.to_owned(),
            runs: file.runs,
            warm_up: file.warm_up,
            cool_down_s: file.cool_down_s,
            threads: file.threads,
            seed: file.seed,
            limit_s: file.limit_s,
            sampling: file.sampling.unwrap_or_else(greedy),
            target: file.target,
            arms,
            null: None,
            models: file.models,
            workloads: workloads.collect::<Result<_, _>>()?,
        };
        if let Some(label) = file.null {
            plan.add_null(&label)?;
        }
        plan.check().map_err(|why| Error::malformed(path, why))?;
        Ok(plan)
    }

    /// Measures an arm once more, as if it were another one.
    ///
    /// # Errors
    /// [`Error::Plan`] if there is no such arm.
    pub fn add_null(&mut self, label: &str) -> Result<(), Error> {
        let Some(arm) = self.arms.iter().find(|arm| arm.label == label) else {
            return Err(Error::Plan(format!("`null` names no arm: {label}")));
        };
        let twin = Arm { label: format!("{label} again"), ..arm.clone() };
        self.null = Some([label.to_owned(), twin.label.clone()]);
        self.arms.push(twin);
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let unique = |what: &str, mut names: Vec<&str>| {
            names.sort_unstable();
            let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
            twice.map_or(Ok(()), |pair| Err(format!("{what} `{}` is there twice", pair[0])))
        };
        unique("arm", self.arms.iter().map(|arm| arm.label.as_str()).collect())?;
        unique("model", self.models.iter().map(|model| model.name.as_str()).collect())?;
        unique("workload", self.workloads.iter().map(|w| w.name.as_str()).collect())?;
        if self.runs == 0 || self.arms.is_empty() || self.models.is_empty() {
            return Err("there is nothing to measure".to_owned());
        }
        if !(0.0..=3600.0).contains(&self.cool_down_s) {
            return Err("cool_down_s must be 0 to 3600".to_owned());
        }
        for model in &self.models {
            let cells = model.cells.as_ref().map_or(Ok(()), |cells| cells.check(&self.workloads));
            cells.map_err(|why| format!("model `{}`: {why}", model.name))?;
        }
        for arm in &self.arms {
            let cells = arm.cells.as_ref().map_or(Ok(()), |cells| cells.check(&self.workloads));
            cells.map_err(|why| format!("arm `{}`: {why}", arm.label))?;
            for name in &arm.models {
                if self.models.iter().all(|model| model.name != *name) {
                    return Err(format!(
                        "arm `{}` wants a model `{name}`, which is not there",
                        arm.label
                    ));
                }
            }
            if arm.url.is_none() && arm.engine.launch.is_empty() {
                return Err(format!(
                    "arm `{}` has no `url`, and its engine no `launch`",
                    arm.label
                ));
            }
        }
        Ok(())
    }

    /// The pairs of model and arm that go together.
    pub fn pairs(&self) -> Vec<(&Model, &Arm)> {
        let all =
            self.models.iter().flat_map(|model| self.arms.iter().map(move |arm| (model, arm)));
        all.filter(|(model, arm)| {
            (arm.models.is_empty() || arm.models.contains(&model.name))
                && model.form(&arm.engine).is_some()
        })
        .collect()
    }

    /// What is the same for two runs that may go on each other.
    pub fn fingerprint(&self) -> String {
        let text = format!("{:?}", (&self.arms, &self.models, &self.workloads, &self.sampling));
        format!("{:016x}", crate::rng::Rng::of(self.seed, &text).bits())
    }

    /// Says where the program of an engine is, by label, title or name of its recipe. Whether there is one.
    pub fn set_program(&mut self, engine: &str, program: &Path) -> bool {
        let meant = |arm: &&mut Arm| {
            [&arm.label, &arm.engine.title, &arm.engine.name].into_iter().any(|name| name == engine)
        };
        let mut found = false;
        for arm in self.arms.iter_mut().filter(meant) {
            arm.engine.program = Some(program.display().to_string());
            found = true;
        }
        found
    }

    /// Says where a program is that would otherwise be looked for by its name alone.
    pub fn find_program(&mut self, name: &str, program: &Path) {
        for arm in &mut self.arms {
            if arm.engine.program.as_deref() == Some(name) {
                arm.engine.program = Some(program.display().to_string());
            }
        }
    }

    /// Resolves names of models, such as the short ones of `hearth pull`, by whoever knows them.
    ///
    /// # Errors
    /// What `resolve` says.
    pub fn resolve<E>(
        &mut self,
        resolve: impl Fn(&str) -> Result<Option<PathBuf>, E>,
    ) -> Result<(), E> {
        for model in &mut self.models {
            for (format, path) in &mut model.forms {
                if *format != Format::Name
                    && let Some(found) = resolve(path)?
                {
                    *path = found.display().to_string();
                }
            }
        }
        Ok(())
    }
}

fn arm(file: ArmFile) -> Result<Arm, Error> {
    let mut engine = Engine::named(&file.engine)?;
    if file.program.is_some() {
        engine.program = file.program;
    }
    Ok(Arm {
        label: file.label.unwrap_or_else(|| engine.title.clone()),
        engine,
        arguments: file.arguments,
        url: file.url,
        key: None,
        models: file.models,
        cells: file.cells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        name = "small"
        null = "Hearth"
        [[models]]
        name = "tiny"
        gguf = "tiny.gguf"
        [[arms]]
        engine = "hearth"
        [[arms]]
        engine = "llama-server"
        arguments = ["-fa", "on"]
        [[arms]]
        engine = "mlx-lm"
        [[workloads]]
        use = "context"
        sizes = [64]
    "#;

    fn error(text: &str) -> String {
        Plan::parse(text, Path::new("plan.toml")).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_says_what_goes_together() {
        let plan = Plan::parse(PLAN, Path::new("plan.toml")).unwrap();
        // There is no form of the model that mlx-lm reads.
        let pairs: Vec<&str> = plan.pairs().iter().map(|(_, arm)| arm.label.as_str()).collect();
        assert_eq!(pairs, ["Hearth", "llama.cpp", "Hearth again"]);
        assert_eq!(plan.null, Some(["Hearth".to_owned(), "Hearth again".to_owned()]));
        assert_eq!((plan.runs, plan.sampling["temperature"].clone()), (5, json!(0)));
        assert_eq!(plan.fingerprint(), Plan::parse(PLAN, Path::new("x")).unwrap().fingerprint());
        let other = Plan::parse(&PLAN.replace("[64]", "[128]"), Path::new("x")).unwrap();
        assert_ne!(plan.fingerprint(), other.fingerprint());
    }

    #[test]
    fn a_program_is_found_by_every_name_of_its_engine() {
        for name in ["llama-server", "llama.cpp"] {
            let mut plan = Plan::parse(PLAN, Path::new("plan.toml")).unwrap();
            assert!(plan.set_program(name, Path::new("/opt/server")));
            let programs = plan.arms.iter().map(|arm| arm.engine.program.clone().unwrap());
            let all: Vec<String> = programs.collect();
            assert_eq!(all, ["hearth", "/opt/server", "mlx_lm.server", "hearth"], "{name}");
            assert!(!plan.set_program("llama-serve", Path::new("/opt/server")));
        }
    }

    #[test]
    fn a_model_may_have_few_cells() {
        let few = PLAN.replace("gguf = ", "cells = { context = [64] }\n        gguf = ");
        let plan = Plan::parse(&few.replace("[64]\n    ", "[64, 512]\n    "), Path::new("x"));
        let plan = plan.unwrap();
        let measured = |plan: &Plan| -> Vec<u64> {
            plan.cells(&plan.models[0], &plan.arms[0]).iter().map(|(_, cell)| cell.at).collect()
        };
        assert_eq!(measured(&plan), [64]);
        assert!(error(&few.replace("{ context = [64]", "{ context = [65]")).contains("65"));
        assert!(error(&few.replace("{ context", "{ contexts")).contains("contexts"));
    }

    #[test]
    fn an_arm_may_have_few_cells() {
        let few = PLAN
            .replace("\"-fa\", \"on\"]", "\"-fa\", \"on\"]\n        cells = { context = [512] }");
        let few = few.replace("[64]", "[64, 512]");
        let plan = Plan::parse(&few, Path::new("x")).unwrap();
        let measured = |arm: usize| -> Vec<u64> {
            plan.cells(&plan.models[0], &plan.arms[arm]).iter().map(|(_, cell)| cell.at).collect()
        };
        assert_eq!((measured(0), measured(1)), (vec![64, 512], vec![512]));
        // One arm once, the other and its twin twice.
        assert_eq!(plan.n_runs(), 5 * (2 + 1 + 2));
        assert!(error(&few.replace("[512]", "[513]")).contains("llama.cpp"));
    }

    #[test]
    fn every_plan_that_comes_along_measures_something() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/plans");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<PathBuf> = files.collect();
        assert!(files.len() >= 2);
        for file in files {
            let plan = Plan::read(&file).unwrap();
            assert!(plan.n_runs() > 0, "{}", file.display());
            for model in &plan.models {
                let read = plan.pairs().iter().any(|(pair, _)| *pair == model);
                assert!(read, "{}: nobody reads {}", file.display(), model.name);
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        assert!(error(&PLAN.replace("\"Hearth\"", "\"nobody\"")).contains("nobody"));
        assert!(error(&PLAN.replace("[64]", "[64]\nturns = 2")).contains("turns"));
        assert!(
            error(&PLAN.replace("engine = \"mlx-lm\"", "engine = \"hearth\"")).contains("twice")
        );
        assert!(error(&PLAN.replace("engine = \"mlx-lm\"", "engine = \"url\"")).contains("`url`"));
        assert!(error(&PLAN.replace("gguf", "ggml")).contains("ggml"));
    }
}
