//! One file per subcommand, one line here.

mod bench;
mod chat;
mod completions;
mod convert;
mod info;
mod models;
mod perplexity;
mod pull;
mod rm;
mod serve;

use std::path::PathBuf;

use anyhow::Result;

use crate::env::Environment;
use crate::store::Store;
use crate::store::hub::HttpHub;
use crate::store::index::Pip;

/// What the user wants.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Talk to a model in the terminal, or get one answer
    #[command(visible_alias = "run")]
    Chat(chat::Args),
    /// Serve a model over HTTP to OpenAI clients
    Serve(serve::Args),
    /// Download a model, or bring it up to date
    Pull(pull::Args),
    /// List the models on this machine, or the short names that can be pulled
    #[command(visible_alias = "ls")]
    Models(models::Args),
    /// Show what a model is made of and what it needs
    Info(info::Args),
    /// Remove a downloaded model
    Rm(rm::Args),
    /// Convert a model to the MLX format, quantising it
    Convert(convert::Args),
    /// Measure the speed of a model in this process
    Bench(bench::Args),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

/// Does it.
pub(crate) fn run(command: Command, env: &Environment) -> Result<()> {
    match command {
        Command::Chat(args) => chat::run(args, env),
        Command::Serve(args) => serve::run(args, env),
        Command::Pull(args) => pull::run(&args, env),
        Command::Models(args) => models::run(&args, env),
        Command::Info(args) => info::run(&args, env),
        Command::Rm(args) => rm::run(&args, env),
        Command::Convert(args) => convert::run(&args, env),
        Command::Bench(args) => bench::run(&args, env),
        Command::Perplexity(args) => perplexity::run(&args, env),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Has `work` use the store of this environment.
fn with_store<T>(env: &Environment, work: impl FnOnce(&Store<'_>) -> Result<T>) -> Result<T> {
    let hub = HttpHub::new(env);
    work(&Store::new(env, &hub, &Pip))
}

/// Where the model called `name` lies, downloaded first if it must be.
fn resolve(name: &str, env: &Environment) -> Result<PathBuf> {
    with_store(env, |store| store.resolve(name))
}
