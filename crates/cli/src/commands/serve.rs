//! `hearth serve`: a model over HTTP.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use server::{App, ChatService, DEFAULT_ADDRESS};

use crate::disk_cache::DiskArgs;
use crate::env::Environment;
use crate::load::{self, Crowd, LoadArgs, Opened};
use crate::machine::human_bytes;
use crate::service::ServiceArgs;
use crate::signals;
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth serve
  hearth serve ./model.gguf --port 8080 --alias gpt-4o";

/// Serve a model over HTTP to OpenAI clients
///
/// Answers on /v1/chat/completions, /v1/completions, /v1/models and /health. The model also answers
/// to the name `default`. /readyz, /metrics and /v1/status show what it does. Stop with Ctrl-C or
/// SIGTERM: running answers finish first, a second one ends at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to serve
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Address to listen on; anything but this machine's own needs --allow-remote
    #[arg(long, default_value_t = DEFAULT_ADDRESS.ip(), value_name = "IP")]
    host: IpAddr,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = DEFAULT_ADDRESS.port())]
    port: u16,
    /// Let other machines in. There are no keys yet: anybody who reaches the port can use the model
    #[arg(long)]
    allow_remote: bool,
    /// Further name that the model answers to (may be repeated)
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Requests that are worked on at once
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    max_seqs: u16,
    /// Requests that may wait beyond those; more are refused with 429
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_queue: u16,
    /// Milliseconds that a pass may take while answers are flowing: long prompts come in chunks cut
    /// to that; 0 does not cut them
    #[arg(long, default_value_t = 200, value_name = "MS")]
    decode_stall_target_ms: u32,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    disk: DiskArgs,
    #[command(flatten)]
    load: LoadArgs,
}

pub(super) fn run(args: Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    if !args.host.is_loopback() && !args.allow_remote {
        bail!(
            "{} is not an address of this machine alone. Add --allow-remote if everybody who can \
             reach it may use the model",
            args.host
        );
    }
    args.service.start_log();
    // The port is taken before the model is loaded: a clash shows at once, and clients that
    // connect early wait instead of failing.
    let address = SocketAddr::new(args.host, args.port);
    let listener = std::net::TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose another --port"))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;

    let path = super::resolve(&args.model, env)?;
    let mut opened = Opened::new(&path, &args.load)?;
    opened.disk = args.disk.cache(env);
    let crowd = Crowd {
        seqs: args.max_seqs.into(),
        queue: args.max_queue.into(),
        stall_target: NonZero::new(args.decode_stall_target_ms)
            .map(|ms| Duration::from_millis(u64::from(ms.get()))),
    };
    let id = load::model_id(&args.model);
    let model = opened.serve(id.clone(), args.alias, &args.load, crowd)?;
    let kept = opened.disk.as_ref().map(|disk| format!(", {} on disk", disk.describe()));
    eprintln!(
        "{id}: context {} tokens, {} for keys and values{}",
        opened.context,
        human_bytes(opened.kv_bytes()),
        kept.unwrap_or_default()
    );
    let app = App::new(ChatService::new(vec![model]), args.service.settings());
    // The engine has the processors; HTTP needs little, and of several threads every token would wake
    // two, the second to look for work that is not there. Whatever takes long has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        writeln!(out, "serving {id} on http://{address}/v1")?;
        out.flush()?;
        tokio::select! {
            () = server::serve(listener, app, signals::stop_requested()) => Ok(()),
            () = signals::stop_insisted() => bail!("stopped at once; running answers are cut off"),
        }
    });
    // Whatever still runs there is not waited for.
    runtime.shutdown_background();
    served
}
