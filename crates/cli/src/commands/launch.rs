//! `hearth launch`: starts an agent with a profile of its own. The user's settings are not touched.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::oneshot;

use super::agents::{ServerArgs, named, url_of};
use super::serve::{self, Ready};
use crate::agents::edit::{self, Format};
use crate::agents::probe::{self, DEFAULT, Found};
use crate::agents::target::Target;
use crate::agents::{Agent, Launch, file};
use crate::env::Environment;
use crate::signals;

const EXAMPLES: &str = "\
Examples:
  hearth launch claude
  hearth launch codex --model qwen2.5-0.5b-coder-q4_k_m
  hearth launch aider -- --message \"Add a test\" src/lib.rs";

/// Start a coding agent that uses a server, without touching its settings
///
/// The agent gets variables and a folder of settings of its own, in which its history of these sessions
/// stays too. If no server runs, one is started for it with MODEL, and ends with it. Its exit status is
/// that of the agent.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which agent; `hearth agents` lists them
    name: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Arguments for the agent
    #[arg(last = true)]
    args: Vec<String>,
}

/// The flags of `hearth serve`, for a server that is started along.
#[derive(Parser)]
struct Serve {
    #[command(flatten)]
    args: serve::Args,
}

pub(super) fn run(args: &Args, env: &Environment) -> Result<ExitCode> {
    let agent = named(&args.name)?;
    let (Some(launch), Some(program)) = (&agent.launch, agent.programs.first()) else {
        bail!(
            "{} is no program to start here; see `hearth agents {} --print`",
            agent.title,
            agent.name
        )
    };
    let path = env.places.program(program);
    let path = path.with_context(|| {
        format!("`{program}` is not on the PATH; install {} first", agent.title)
    })?;
    let (target, server) = server(args, env, &agent)?;
    let profile = write_profile(&agent, &target)?;
    let mut command = Command::new(path);
    let filled = |text: &String| target.fill_text(text);
    command.args(launch.args.iter().filter_map(filled)).args(&args.args);
    command.envs(variables(&agent, launch, &target, &profile));
    let status = serve::on_a_thread(beside(command, server))?;
    Ok(exit_code(status))
}

/// The server that the agent is to use: the one that runs, or one that is started along.
fn server(args: &Args, env: &Environment, agent: &Agent) -> Result<(Target, Option<Ready>)> {
    let (url, key) = (args.server.address(env)?, args.server.key(env));
    let profile = env.places.data.join("profiles").join(agent.name);
    let target = |url, model: &str, context| Target {
        url,
        model: model.to_owned(),
        key: key.clone(),
        context: args.server.context.or(context),
        profile: profile.display().to_string(),
    };
    let model = args.server.model.as_deref();
    if let Found::Server(offers) = probe::ask(&url, &key)? {
        let model = model.unwrap_or(DEFAULT);
        let context = probe::context(&offers, model)?;
        return Ok((target(url, model, context), None));
    }
    if args.server.url.is_some() {
        bail!("nobody listens at {url}; leave out --url to have a server started");
    }
    let context = args.server.context.map(|n| n.to_string());
    let context = context.iter().flat_map(|n| ["--context", n]);
    let flags = ["serve", "--port", "0"].into_iter().chain(context).chain(model);
    eprintln!("no server runs at {url}: starting one for {}, until it ends", agent.title);
    let ready = Ready::new(Serve::try_parse_from(flags)?.args, env)?;
    let target = target(url_of(ready.address), DEFAULT, ready.context);
    Ok((target, Some(ready)))
}

/// Puts the agent's files into its private folder, with what it has written there itself.
fn write_profile(agent: &Agent, target: &Target) -> Result<PathBuf> {
    let profile = PathBuf::from(&target.profile);
    for part in agent.files.iter().filter(|part| part.format != Format::Env) {
        let path = profile.join(&part.path);
        let shown = path.display();
        let before = file::read(&path).with_context(|| format!("cannot read {shown}"))?;
        let settings = [part.defaults(target), part.settings(target)].concat();
        let text = edit::apply(part.format, &before.unwrap_or_default(), &settings);
        let text = text.with_context(|| shown.to_string())?;
        let folder = path.parent().unwrap_or(&profile);
        file::make_folders(folder)
            .and_then(|_| file::write(&path, &text))
            .with_context(|| format!("cannot write {shown}"))?;
    }
    file::make_folders(&profile).with_context(|| format!("cannot make {}", profile.display()))?;
    Ok(profile)
}

/// What the agent finds in its environment beside what is there.
fn variables(
    agent: &Agent,
    launch: &Launch,
    target: &Target,
    profile: &Path,
) -> Vec<(String, String)> {
    let text = |(name, value): (&String, &Value)| {
        let value = target.fill(value)?;
        Some((name.clone(), value.as_str()?.to_owned()))
    };
    let mut variables: Vec<_> = launch.env.iter().filter_map(text).collect();
    for part in agent.files.iter().filter(|part| part.format == Format::Env) {
        variables.extend(part.set.iter().filter_map(text));
    }
    // Folders that several programs share are not to be moved for one.
    let own = agent.folder.var.iter().filter(|var| !var.starts_with("XDG_"));
    variables.extend(own.map(|var| (var.clone(), profile.display().to_string())));
    variables
}

/// Runs the agent, and the server for as long.
async fn beside(mut command: Command, server: Option<Ready>) -> Result<ExitStatus> {
    let (ended, stop) = oneshot::channel::<()>();
    let serving = async {
        match server {
            Some(server) => {
                let stop = async {
                    // Told or forgotten: the agent is gone.
                    let _ = stop.await;
                };
                server.serve(stop).await
            }
            None => Ok(()),
        }
    };
    let running = async {
        let status = attend(&mut command).await;
        let _ = ended.send(());
        status
    };
    let (status, served) = tokio::join!(running, serving);
    served?;
    status
}

/// Waits for the agent. Ctrl-C in a terminal reaches it by itself, and what it means is its business; what
/// is sent to this process alone is passed on.
async fn attend(command: &mut Command) -> Result<ExitStatus> {
    // Before the agent runs, so that no signal finds its own meaning.
    let mut signals = signals::Passed::new()?;
    let mut child = command.kill_on_drop(true).spawn().context("cannot start it")?;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(status?),
            signal = signals.next() => signal.send(child.id())?,
        }
    }
}

/// As a shell tells it: the status, or 128 and the signal.
#[cfg(unix)]
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let signal = || 128 + status.signal().unwrap_or_default();
    ExitCode::from(status.code().unwrap_or_else(signal) as u8)
}

#[cfg(not(unix))]
fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().unwrap_or(1) as u8)
}
