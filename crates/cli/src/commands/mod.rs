//! One file per subcommand, one line here.

mod agents;
mod bench;
mod chat;
mod completions;
mod convert;
mod doctor;
mod eval;
mod info;
mod lab;
mod launch;
mod models;
mod perplexity;
mod pull;
mod rm;
mod serve;
mod tune;
mod verify;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::env::Environment;
use crate::store::Store;
use crate::store::hub::{HttpHub, Patience};
use crate::store::index::Pip;

/// What the user wants. Every command describes itself, in its own file.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    #[command(visible_alias = "run")]
    Chat(chat::Args),
    Serve(serve::Args),
    Pull(pull::Args),
    #[command(visible_alias = "ls")]
    Models(models::Args),
    Info(info::Args),
    Rm(rm::Args),
    Convert(convert::Args),
    Bench(bench::Args),
    Lab(lab::Args),
    Tune(tune::Args),
    Eval(eval::Args),
    Perplexity(perplexity::Args),
    Verify(verify::Args),
    Doctor(doctor::Args),
    Agents(agents::Args),
    Launch(launch::Args),
    Completions(completions::Args),
}

/// Does it; what it answers goes to `out`, what else is to be said to standard error.
pub(crate) fn run(command: Command, env: &Environment, out: &mut dyn Write) -> Result<ExitCode> {
    match command {
        Command::Chat(args) => chat::run(args, env, out),
        Command::Serve(args) => serve::run(args, env, out),
        Command::Pull(args) => pull::run(&args, env, out),
        Command::Models(args) => models::run(&args, env, out),
        Command::Info(args) => info::run(&args, env, out),
        Command::Rm(args) => rm::run(&args, env, out),
        Command::Convert(args) => convert::run(&args, env, out),
        Command::Bench(args) => bench::run(&args, env, out),
        Command::Lab(args) => lab::run(args, env, out),
        Command::Tune(args) => tune::run(&args, env, out),
        Command::Eval(args) => eval::run(&args, env, out),
        Command::Perplexity(args) => perplexity::run(&args, env, out),
        Command::Verify(args) => verify::run(&args, env, out),
        Command::Doctor(args) => doctor::run(&args, env, out),
        Command::Agents(args) => agents::run(&args, env, out),
        // What it starts has a status of its own.
        Command::Launch(args) => return launch::run(&args, env),
        Command::Completions(args) => completions::run(&args, out),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Has `work` use the store of this environment.
fn with_store<T>(env: &Environment, work: impl FnOnce(&Store<'_>) -> Result<T>) -> Result<T> {
    let hub = HttpHub::new(&env.hub_endpoint, env.hub_token.as_deref(), Patience::default());
    work(&Store::new(env, &hub, &Pip))
}

/// Where the model called `name` lies, downloaded first if it must be.
fn resolve(name: &str, env: &Environment) -> Result<PathBuf> {
    with_store(env, |store| store.resolve(name))
}
