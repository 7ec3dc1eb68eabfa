//! `hearth serve`: models over HTTP.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use server::{App, ChatService, DEFAULT_ADDRESS, ModelPool, Name, Rules};

use crate::disk_cache::DiskArgs;
use crate::edge::EdgeArgs;
use crate::env::Environment;
use crate::load::{self, Budget, Crowd, DEFAULT_SEQS, Device, FileLoader, LoadArgs};
#[cfg(with_mlx)]
use crate::ranks::{self, Role};
use crate::service::ServiceArgs;
use crate::signals;
use crate::size;
use crate::store::catalog::DEFAULT_ALIAS;
use crate::tuned::TunedArgs;

const EXAMPLES: &str = "\
Examples:
  hearth serve
  hearth serve ./model.gguf --port 8080 --alias gpt-4o
  hearth serve --host 0.0.0.0 --api-key-file ~/.hearth-keys
  hearth serve --model-dir ~/models --memory-limit 12GiB --idle-ttl 10m
  hearth serve smollm2-135m-4bit ./coder.gguf --alias code=coder --pin coder";

/// Serve models over HTTP to clients of OpenAI, Anthropic and Ollama
///
/// Answers on /v1/chat/completions, /v1/responses, /v1/completions, /v1/messages, /api/chat and more;
/// /openapi.json lists all routes. The first model is
/// loaded at once and also answers to the name `default`; the others are loaded when they are first
/// asked for. When memory is short, those that were not used for longest make room. /readyz, /metrics
/// and /v1/status show what it does. Stop with Ctrl-C or SIGTERM: running answers finish first, a
/// second one ends at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Models to serve [default: smollm2-135m-4bit, unless there is a --model-dir]
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    #[command(flatten)]
    pool: PoolArgs,
    /// Address to listen on; anything but this machine's own needs a key, or --insecure-bind
    #[arg(long, default_value_t = DEFAULT_ADDRESS.ip(), value_name = "IP")]
    host: IpAddr,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = DEFAULT_ADDRESS.port())]
    port: u16,
    #[command(flatten)]
    edge: EdgeArgs,
    /// Requests that are worked on at once, by each model
    #[arg(long, default_value_t = DEFAULT_SEQS, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    max_seqs: u16,
    /// Requests that may wait beyond those; more are refused with 429
    #[arg(long, default_value_t = 128, value_name = "N")]
    max_queue: u16,
    /// Milliseconds that a flowing answer may wait for its next token: long prompts come in chunks
    /// cut to that; 0 does not cut them
    #[arg(long, default_value_t = 200, value_name = "MS")]
    decode_stall_target_ms: u32,
    /// Share one model with other machines: each runs this very command under MLX's launcher,
    /// which numbers them, and the first one serves. It tells the others at this address what to do
    #[cfg(with_mlx)]
    #[arg(long, value_name = "IP:PORT")]
    ranks: Option<SocketAddr>,
    /// How machines share it
    #[cfg(with_mlx)]
    #[arg(long, value_enum, default_value_t, requires = "ranks")]
    split: ranks::Split,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    disk: DiskArgs,
    #[command(flatten)]
    tuned: TunedArgs,
    #[command(flatten)]
    load: LoadArgs,
}

/// Which models there are and how long they stay.
#[derive(clap::Args)]
struct PoolArgs {
    /// Serve every model below this folder too
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// Further name of the first model, or NAME=MODEL of any (may be repeated)
    #[arg(long, value_name = "NAME[=MODEL]")]
    alias: Vec<String>,
    /// Load this model at the start and never unload it for others (may be repeated)
    #[arg(long, value_name = "MODEL")]
    pin: Vec<String>,
    /// Unload models that nobody used for so long, such as 10m [default: never]
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    idle_ttl: Option<Duration>,
}

pub(super) fn run(args: Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    args.service.start_log();
    #[cfg(with_mlx)]
    if let Some(address) = args.ranks {
        return on_ranks(address, args, env, out);
    }
    let ready = Ready::new(args, env)?;
    serve(ready, out)
}

/// One of several machines that share a model: serves, or follows the one that does.
#[cfg(with_mlx)]
fn on_ranks(
    address: SocketAddr,
    mut args: Args,
    env: &Environment,
    out: &mut dyn Write,
) -> Result<()> {
    let found = find(&args.models, args.pool.model_dir.as_ref(), env)?;
    let [model] = &found.paths.into_values().collect::<Vec<_>>()[..] else {
        bail!("--ranks: one model is served by all, and several are named");
    };
    match ranks::join(address, args.split, &args.load)? {
        Role::Follow(follower) => {
            writeln!(out, "rank {} follows rank 0", follower.rank())?;
            out.flush()?;
            follower.follow(model)
        }
        Role::Lead(lead) => {
            args.load.shared = Some(lead.shared());
            let device = Device::of_ranks(lead, &args.load);
            serve(Ready::on(device, args, env)?, out)
        }
    }
}

fn serve(ready: Ready, out: &mut dyn Write) -> Result<()> {
    let what = ready.what.clone();
    let (address, exposed) = (ready.address, ready.exposed);
    on_a_thread(async move {
        writeln!(out, "serving {what} on http://{address}/v1")?;
        if exposed {
            writeln!(out, "no key is needed: everybody who reaches the port can use the models")?;
        }
        out.flush()?;
        tokio::select! {
            served = ready.serve(signals::stop_requested()) => served,
            () = signals::stop_insisted() => bail!("stopped at once; running answers are cut off"),
        }
    })
}

/// Runs what serves until it is done. The engine has the processors; HTTP needs little, and of several
/// threads every token would wake two, the second to look for work that is not there. Whatever takes
/// long has threads of its own.
pub(super) fn on_a_thread<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // Whatever still runs there is not waited for.
    runtime.shutdown_background();
    done
}

/// A server whose port is taken and whose first model is loaded.
pub(super) struct Ready {
    listener: std::net::TcpListener,
    app: App,
    what: String,
    pub(super) address: SocketAddr,
    /// Whether other machines need no key.
    exposed: bool,
    /// Tokens that the first model's prompts and answers may have.
    pub(super) context: Option<u64>,
}

impl Ready {
    pub(super) fn new(args: Args, env: &Environment) -> Result<Ready> {
        Ready::make(args, env, |load| load.device())
    }

    /// The same on a device that is there already.
    #[cfg(with_mlx)]
    fn on(device: Device, args: Args, env: &Environment) -> Result<Ready> {
        Ready::make(args, env, |_| Ok(device))
    }

    fn make(
        args: Args,
        env: &Environment,
        device: impl FnOnce(&LoadArgs) -> Result<Device>,
    ) -> Result<Ready> {
        let edge = args.edge.edge(args.host)?;
        let exposed = !args.host.is_loopback() && edge.keys.is_empty();
        // The port is taken before the model is loaded: a clash shows at once, and clients that
        // connect early wait instead of failing.
        let address = SocketAddr::new(args.host, args.port);
        let listener = std::net::TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}; choose another --port"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let settings = args.service.settings();
        let (pool, what) = pool(args, env, device)?;
        let first = pool.list().into_iter().next();
        let context = first.and_then(|model| model.survey).map(|survey| survey.context as u64);
        let app = App::with_edge(ChatService::of(pool), settings, edge);
        Ok(Ready { listener, app, what, address, exposed, context })
    }

    /// Serves until `stop` is done and running answers are over.
    pub(super) async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        server::serve(listener, self.app, stop).await;
        Ok(())
    }
}

/// The models, those loaded that are to be there from the start, and what to call all of them.
fn pool(
    mut args: Args,
    env: &Environment,
    device: impl FnOnce(&LoadArgs) -> Result<Device>,
) -> Result<(ModelPool, String)> {
    // All models share the device, so the first one's settings are everybody's.
    let default = args.pool.model_dir.is_none().then_some(DEFAULT_ALIAS);
    if let Some(first) = args.models.first().map(String::as_str).or(default)
        && let Some(said) = args.tuned.fill(first, &mut args.load, env)
    {
        eprintln!("{said}");
    }
    let budget = Budget::of(&args.load);
    let crowd = Crowd {
        seqs: args.max_seqs.into(),
        queue: args.max_queue.into(),
        stall_target: NonZero::new(args.decode_stall_target_ms)
            .map(|ms| Duration::from_millis(u64::from(ms.get()))),
    };
    let Found { ids, paths } = find(&args.models, args.pool.model_dir.as_ref(), env)?;
    let names = named(&ids, &args.pool.alias)?;
    let what = match &ids[..] {
        [id] => id.clone(),
        ids => format!("{} models, first {}", ids.len(), ids[0]),
    };
    let rules = Rules {
        memory: budget.limit,
        baseline: budget.baseline,
        idle_ttl: args.pool.idle_ttl,
        waiting: args.max_queue.into(),
        ..Rules::default()
    };
    let origin = Instant::now();
    let device = device(&args.load)?;
    let loader = FileLoader::new(paths, (args.load, device), crowd, budget, args.disk.cache(env));
    let clock = Box::new(move || origin.elapsed());
    let pool = ModelPool::start(names, Box::new(loader), rules, clock);
    for pin in &args.pool.pin {
        pool.pin(pin, true)?;
    }
    let first = ids.first().filter(|_| !args.models.is_empty() || args.pool.model_dir.is_none());
    for name in first.into_iter().chain(&args.pool.pin) {
        pool.access(name)?.wait()?;
    }
    Ok((pool, what))
}

/// Models by id, and the ids in order.
struct Found {
    ids: Vec<String>,
    paths: BTreeMap<String, PathBuf>,
}

fn find(models: &[String], folder: Option<&PathBuf>, env: &Environment) -> Result<Found> {
    let default = [DEFAULT_ALIAS.to_owned()];
    let models = if models.is_empty() && folder.is_none() { &default[..] } else { models };
    let mut found = Found { ids: Vec::new(), paths: BTreeMap::new() };
    for model in models {
        let id = load::model_id(model);
        if found.paths.insert(id.clone(), super::resolve(model, env)?).is_some() {
            bail!("two models would be called `{id}`: name one of them in another way");
        }
        found.ids.push(id);
    }
    for (id, path) in
        folder.map(|folder| load::find_models(folder)).transpose()?.unwrap_or_default()
    {
        // A model that was named as well is the same one under two names, and stays where it is.
        if !found.paths.contains_key(&id) {
            found.ids.push(id.clone());
            found.paths.insert(id, path);
        }
    }
    if let (true, Some(folder)) = (found.ids.is_empty(), folder) {
        bail!("there is no model below {}", folder.display());
    }
    Ok(found)
}

/// Names with their aliases: `NAME` is the first model's, `NAME=MODEL` that model's.
fn named(ids: &[String], aliases: &[String]) -> Result<Vec<Name>> {
    let new = |id: &String| Name { id: id.clone(), aliases: Vec::new() };
    let mut names: Vec<Name> = ids.iter().map(new).collect();
    for alias in aliases {
        let (alias, at) = match alias.split_once('=') {
            None => (alias.as_str(), Some(0)),
            Some((alias, model)) => {
                (alias, names.iter().position(|name| name.id == load::model_id(model)))
            }
        };
        let Some(name) = at.and_then(|at| names.get_mut(at)) else {
            bail!("--alias {alias}: no such model; there are {}", ids.join(", "));
        };
        if alias.is_empty() {
            bail!("--alias needs a name");
        }
        name.aliases.push(alias.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_belong_to_the_first_model_or_the_one_they_name() {
        let ids = ["a".to_owned(), "org/b".to_owned()];
        let alias = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            named(&ids, &texts)
                .map(|names| names.into_iter().map(|n| n.aliases).collect::<Vec<_>>())
        };
        assert_eq!(alias(&["x", "y=org/b", "z=a"]).unwrap(), [vec!["x", "z"], vec!["y"]]);
        assert!(alias(&["x=nobody"]).unwrap_err().to_string().contains("a, org/b"));
        assert!(alias(&["=a"]).is_err());
    }
}
