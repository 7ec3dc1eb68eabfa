//! `hearth agents`: leads other programs to a server of ours, and back.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use server::DEFAULT_ADDRESS;

use crate::agents::probe::{self, DEFAULT, Found};
use crate::agents::setup::{self, Places, State};
use crate::agents::target::Target;
use crate::agents::{self, Agent};
use crate::env::Environment;

const EXAMPLES: &str = "\
Examples:
  hearth agents                         # what is here, and how it stands
  hearth agents codex --print           # what would be written, and where
  hearth agents codex --setup
  hearth agents codex --remove          # exactly as it was
  hearth agents claude --setup --url http://10.0.0.7:8000 --model coder";

/// Set up coding agents and other clients to use a server
///
/// Without a name it lists those it knows. Settings are put into the user's own file, which keeps its
/// comments, its order and everything else; the file as it was stays beside it, and `--remove` brings it
/// back. `hearth launch` starts an agent without touching its settings.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which one; all if none is named
    name: Option<String>,
    #[command(flatten)]
    action: Action,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args)]
#[group(multiple = false, requires = "name")]
struct Action {
    /// Write its settings
    #[arg(long)]
    setup: bool,
    /// Undo that; changes that you made since stay
    #[arg(long)]
    remove: bool,
    /// Show the settings and where they would go, and write nothing
    #[arg(long)]
    print: bool,
}

/// Which server, and what of it.
#[derive(clap::Args)]
pub(super) struct ServerArgs {
    /// Address of the server (also: HEARTH_URL) [default: http://127.0.0.1:8000]
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// Its key, if it wants one (also: HEARTH_API_KEY)
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Tokens that prompts and answers may have [default: what the server says, if it runs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) context: Option<u64>,
    /// Name of the model, as the server has it [default: default, which is its first one]
    #[arg(long, value_name = "MODEL")]
    pub(super) model: Option<String>,
}

impl ServerArgs {
    /// The address without `/v1`.
    pub(super) fn address(&self, env: &Environment) -> Result<String> {
        let url = match self.url.as_ref().or(env.url.as_ref()) {
            Some(url) => Target::plain_url(url),
            None => url_of(DEFAULT_ADDRESS),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            bail!("the address {url} does not begin with http:// or https://");
        }
        Ok(url)
    }

    /// The key; programs want one even where the server does not.
    pub(super) fn key(&self, env: &Environment) -> String {
        self.api_key.clone().or_else(|| env.api_key.clone()).unwrap_or_else(|| "none".to_owned())
    }

    /// The server as far as it is known; one that does not run is taken on trust.
    fn target(&self, env: &Environment) -> Result<Target> {
        let (url, key) = (self.address(env)?, self.key(env));
        let model = self.model.clone().unwrap_or_else(|| DEFAULT.to_owned());
        let said = match probe::ask(&url, &key)? {
            Found::Server(offers) => probe::context(&offers, &model)?,
            Found::Nothing => None,
        };
        Ok(Target { url, model, key, context: self.context.or(said), profile: String::new() })
    }
}

pub(super) fn url_of(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// The agent of this name.
pub(super) fn named(name: &str) -> Result<Agent> {
    agents::find(name).with_context(|| {
        let names: Vec<&str> = agents::all().iter().map(|agent| agent.name).collect();
        format!("there is no agent `{name}`; there are {}", names.join(", "))
    })
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let places = &env.places;
    let Some(name) = &args.name else { return list(&agents::all(), places, out) };
    let agent = named(name)?;
    let Action { setup, remove, print } = args.action;
    if remove {
        return undo(&agent, places, out);
    }
    if setup {
        return write(&agent, &args.server.target(env)?, places, out);
    }
    if print {
        return show(&agent, &args.server.target(env)?, places, out);
    }
    list(&[agent], places, out)
}

fn list(agents: &[Agent], places: &Places, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{:<13} {:<13} {:<10} STATE", "NAME", "PROGRAM", "INSTALLED")?;
    for agent in agents {
        let here = match (places.has(agent), agent.programs.is_empty()) {
            (true, _) => "yes",
            (false, false) => "no",
            // A library or what runs elsewhere: nobody can tell.
            (false, true) => "-",
        };
        let state = match setup::state(agent, places) {
            Ok(State::Untouched) => "not set up".to_owned(),
            Ok(State::Ready { url, model }) => format!("uses {model} at {url}"),
            Ok(State::Changed) => "set up, and changed since".to_owned(),
            Err(error) => error.to_string(),
        };
        writeln!(out, "{:<13} {:<13} {here:<10} {state}", agent.name, agent.title)?;
    }
    Ok(())
}

fn write(agent: &Agent, target: &Target, places: &Places, out: &mut dyn Write) -> Result<()> {
    let plans = setup::plan(agent, target, places)?;
    let told: Vec<(String, bool)> =
        plans.iter().map(|plan| (shown(plan.path(), places), plan.done)).collect();
    setup::write(plans, places)?;
    for (path, done) in told {
        let what = if done { "is so already" } else { "written" };
        writeln!(out, "{path}: {what}")?;
    }
    writeln!(out, "{} uses {} at {}", agent.title, target.model, target.url)?;
    if !agent.note.is_empty() {
        writeln!(out, "{}", agent.note)?;
    }
    Ok(())
}

fn undo(agent: &Agent, places: &Places, out: &mut dyn Write) -> Result<()> {
    let paths = setup::remove(agent, places)?;
    if paths.is_empty() {
        writeln!(out, "nothing of {} was set up here", agent.title)?;
    }
    for path in paths {
        writeln!(out, "{}: as it was", shown(&path, places))?;
    }
    Ok(())
}

fn show(agent: &Agent, target: &Target, places: &Places, out: &mut dyn Write) -> Result<()> {
    for (path, text) in setup::fragments(agent, target, places)? {
        let merged = if path.exists() { " (merged into what is there)" } else { "" };
        writeln!(out, "# {}{merged}", shown(&path, places))?;
        write!(out, "{text}")?;
        writeln!(out)?;
    }
    if let Some(snippet) = target.fill_text(&agent.snippet).filter(|text| !text.is_empty()) {
        writeln!(out, "# or, in Python")?;
        write!(out, "{}", snippet.trim_start())?;
    }
    Ok(())
}

/// A path as people write it.
fn shown(path: &Path, places: &Places) -> String {
    match (path.strip_prefix(&places.here), path.strip_prefix(&places.home)) {
        (Ok(below), _) => below.display().to_string(),
        (_, Ok(below)) => format!("~/{}", below.display()),
        _ => path.display().to_string(),
    }
}
