//! One engine with one model: launched, asked, stopped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::perform::Request;
use super::process::{Group, Launch, Process, free_port};
use crate::client::{Http, HttpOptions, Session, Transport};
use crate::clock::Clock;
use crate::engine::{Format, Values};
use crate::plan::{Arm, Model, Plan};
use crate::prompt::CountTokens;

/// An engine with a model, running or not.
pub(super) struct Served<'a> {
    pub(super) model: &'a Model,
    pub(super) arm: &'a Arm,
    /// What it was last launched with.
    pub(super) command: Vec<String>,
    /// What it says its version is.
    pub(super) version: Option<String>,
    /// What requests to it have in common.
    pub(super) request: Request,
    plan: &'a Plan,
    values: Values,
    log: PathBuf,
    base: String,
    process: Option<Process>,
}

impl<'a> Served<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        model: &'a Model,
        arm: &'a Arm,
        folder: &Path,
        block: u32,
    ) -> Served<'a> {
        let name: String = format!("{} {}", arm.label, model.name)
            .chars()
            .map(|c| if c.is_alphanumeric() || ".-".contains(c) { c } else { '_' })
            .collect();
        let (format, path) = model.form(&arm.engine).unwrap_or((Format::Name, ""));
        let model_name = match format {
            Format::Name => path.to_owned(),
            Format::Gguf | Format::Mlx | Format::Hf => model_name(path),
        };
        let (users, context) = (plan.users(model), plan.context());
        let threads = match plan.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let work = folder.join("scratch").join(&name);
        let program = arm.engine.program.clone().unwrap_or_default();
        let values = [
            ("program", program),
            ("model", path.to_owned()),
            ("model_folder", folder_of(path)),
            ("model_file", file_of(path)),
            ("model_name", model_name),
            ("threads", threads.to_string()),
            ("users", users.to_string()),
            ("context", context.to_string()),
            ("context_all", (users * context).to_string()),
            ("work", work.display().to_string()),
        ];
        Served {
            model,
            arm,
            command: Vec::new(),
            version: None,
            request: Request::default(),
            plan,
            values: Values { values: values.into() },
            log: folder.join("logs").join(format!("{name}-{block}.log")),
            base: String::new(),
            process: None,
        }
    }

    /// Launches it and waits until it is ready: so many seconds, where it was launched by us.
    pub(super) fn start(&mut self, stopped: &dyn Fn() -> bool) -> Result<Option<f64>, String> {
        let engine = &self.arm.engine;
        let limit = Duration::from_secs(engine.ready_limit_s);
        let ready = if let Some(url) = &self.arm.url {
            self.base = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
            match self.http().get(&engine.ready) {
                Some(_) => None,
                None => return Err(format!("nobody answers at {}{}", self.base, engine.ready)),
            }
        } else {
            let port = free_port()?;
            self.base = format!("http://127.0.0.1:{port}");
            self.values.values.insert("port", port.to_string());
            let work = Path::new(&self.values.values["work"]);
            std::fs::create_dir_all(work)
                .map_err(|error| format!("{}: {error}", work.display()))?;
            let fill = |text: &String| self.values.fill(text);
            let launch = engine.launch.iter().chain(&self.arm.arguments);
            self.command = launch.map(fill).collect();
            let version: Vec<String> = engine.version.iter().map(fill).collect();
            if self.version.is_none() {
                self.version = version_of(&version);
            }
            let env: Vec<(String, String)> =
                engine.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
            let launch = Launch { command: &self.command, env: &env, log: &self.log };
            let start = Instant::now();
            let http = self.http();
            let process = self.process.insert(Process::start(&launch)?);
            let is_ready = || http.get(&engine.ready).is_some();
            match process.wait_ready(start, limit, stopped, &is_ready) {
                Ok(seconds) => Some(seconds),
                Err(why) => {
                    self.process = None;
                    return Err(why);
                }
            }
        };
        if engine.model.contains("{first}") {
            let first = self.first_model().ok_or("it does not say which models it has")?;
            self.values.values.insert("first", first);
        }
        let mut fields = self.plan.sampling.clone();
        fields.extend(engine.fields.clone());
        let model = self.values.fill(&engine.model);
        self.request = Request { model, fields, cold_fields: engine.cold_fields.clone() };
        Ok(ready)
    }

    fn first_model(&self) -> Option<String> {
        let models: serde_json::Value =
            serde_json::from_str(&self.http().get("/v1/models")?).ok()?;
        models["data"][0]["id"].as_str().map(str::to_owned)
    }

    /// Ends it; most bytes of memory that it had.
    pub(super) fn stop(&mut self) -> Option<(u64, u64)> {
        let process = self.process.take()?;
        process.memory()
    }

    /// Removes what it kept on disk; the next block begins with nothing.
    pub(super) fn clean(&self) {
        // What cannot be removed is in nobody's way: prompts never begin alike twice.
        let _ = std::fs::remove_dir_all(&self.values.values["work"]);
    }

    /// Empties its cache, where its recipe says how. Whether that worked shows in cached tokens.
    pub(super) fn clear(&self) {
        if let Some(path) = &self.arm.engine.clear {
            // An answer of any kind, or none, is no measurement.
            let _ = self.http().post(path, "{}");
        }
    }

    /// Processor seconds it has used.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.process.as_ref().map_or(0.0, Process::cpu_seconds)
    }

    /// What ends its processes at once, whoever waits for them.
    pub(super) fn group(&self) -> Option<Group> {
        self.process.as_ref().map(Process::group)
    }

    fn http(&self) -> Http {
        Http::new(HttpOptions {
            base: self.base.clone(),
            key: self.arm.key.clone(),
            limit: Duration::from_secs(self.plan.limit_s),
        })
    }

    /// A connection of one user.
    pub(super) fn session<'s>(
        &self,
        clock: &'s dyn Clock,
        tokens: &'s dyn CountTokens,
        stopped: &'s (dyn Fn() -> bool + Sync),
    ) -> Session<'s> {
        Session {
            transport: Box::new(self.http()),
            clock,
            tokens: tokens.is_exact().then_some(tokens),
            stopped,
        }
    }
}

/// A name without folders and without the ending of a file.
fn folder_of(path: &str) -> String {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() }
}

fn file_of(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn model_name(path: &str) -> String {
    let path = Path::new(path);
    let name = match path.extension() {
        Some(ending) if ending == "gguf" => path.file_stem(),
        _ => path.file_name(),
    };
    name.unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The first line with a number that a program says about itself.
fn version_of(command: &[String]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()))?;
    Some(line.trim().chars().take(120).collect())
}
