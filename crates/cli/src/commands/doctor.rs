//! `hearth doctor`: what this machine has, and what stands in the way of using it.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::env::Environment;
use crate::load::{self, LoadArgs};
use crate::machine::{self, Memory, human_bytes};
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth doctor
  hearth doctor --device cpu";

/// Say what this machine has, and what stands in the way
///
/// Looks at the processor, other devices, memory, disk, models, and whether a server is running.
/// Ends with status 1 if something must be mended before a model can run. Nothing is downloaded.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    /// Worth knowing, in nobody's way.
    Note,
    /// Must be mended.
    Bad,
}

/// One line.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    health: Health,
    text: String,
}

/// Less than this is too little for the smallest models.
const LEAST_MEMORY: u64 = 512 << 20;
/// Less than this is too little to download the default model.
const LEAST_DISK: u64 = 1 << 30;
/// How long a server on this machine may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let mut findings = vec![version(), device(&args.load)];
    findings.extend(mlx(&args.load));
    findings.extend([memory(Memory::now()), cache(env), models(env)?, network(env), server()]);
    for Finding { what, health, text } in &findings {
        let mark = match health {
            Health::Good => "ok  ",
            Health::Note => "note",
            Health::Bad => "BAD ",
        };
        writeln!(out, "{mark}  {what:<10} {text}")?;
    }
    out.flush()?;
    let bad = findings.iter().filter(|finding| finding.health == Health::Bad).count();
    if bad > 0 {
        bail!("{bad} of these must be mended");
    }
    Ok(())
}

fn finding(what: &'static str, health: Health, text: impl Into<String>) -> Finding {
    Finding { what, health, text: text.into() }
}

fn version() -> Finding {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    finding("hearth", Health::Good, format!("{} on {os} {arch}", env!("CARGO_PKG_VERSION")))
}

fn device(args: &LoadArgs) -> Finding {
    match args.device() {
        Ok(device) => {
            let (text, threads) = (device.describe(), args.options().n_threads());
            finding("device", Health::Good, format!("{text}, {threads} threads on the host"))
        }
        Err(error) => finding("device", Health::Bad, crate::one_line(&error)),
    }
}

/// MLX is good to have; a Mac without it runs on its processor.
fn mlx(args: &LoadArgs) -> Option<Finding> {
    Some(match load::about_mlx(args)? {
        Ok(text) => finding("mlx", Health::Good, text),
        Err(why) => finding("mlx", Health::Note, why),
    })
}

fn memory(memory: Memory) -> Finding {
    let Memory { total, available } = memory;
    let health = if available < LEAST_MEMORY { Health::Bad } else { Health::Good };
    let (free, all) = (human_bytes(available), human_bytes(total));
    finding("memory", health, format!("{free} of {all} can be used now"))
}

fn cache(env: &Environment) -> Finding {
    let folder = &env.cache;
    let shown = folder.display();
    if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| try_to_write(folder)) {
        let text = format!("{shown}: {error}; set HEARTH_CACHE to a folder that can be written");
        return finding("cache", Health::Bad, text);
    }
    let Some(free) = machine::free_disk(folder) else {
        return finding("cache", Health::Note, format!("{shown}: how much is free is not known"));
    };
    let health = if free < LEAST_DISK { Health::Note } else { Health::Good };
    finding("cache", health, format!("{shown}, {} are free on its disk", human_bytes(free)))
}

fn try_to_write(folder: &std::path::Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".doctor-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

fn models(env: &Environment) -> Result<Finding> {
    let installed = super::with_store(env, |store| Ok(store.list()))?;
    let bytes: u64 = installed.iter().map(|model| model.bytes).sum();
    Ok(match installed.len() {
        0 => {
            let text = format!("none yet: `hearth pull {DEFAULT_ALIAS}` gets a small one");
            finding("models", Health::Note, text)
        }
        n => finding("models", Health::Good, format!("{n}, {} in all", human_bytes(bytes))),
    })
}

fn network(env: &Environment) -> Finding {
    if env.offline {
        return finding("network", Health::Note, "not used: --offline or HF_HUB_OFFLINE is set");
    }
    let token = if env.hub_token.is_some() { "with a token" } else { "without a token" };
    finding("network", Health::Good, format!("models come from {}, {token}", env.hub_endpoint))
}

fn server() -> Finding {
    let address: SocketAddr = server::DEFAULT_ADDRESS;
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(_) => finding("server", Health::Note, format!("something listens on {address} already")),
        Err(_) => finding("server", Health::Good, format!("{address} is free for `hearth serve`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(cache: &std::path::Path) -> Environment {
        let mut env = Environment::read();
        env.cache = cache.to_owned();
        env.hub_cache = cache.join("hub");
        env.offline = true;
        env
    }

    #[test]
    fn a_sound_machine_has_nothing_to_mend() {
        let cache = tempfile::tempdir().unwrap();
        let mut out = Vec::new();
        let args = Args { load: LoadArgs::default() };
        run(&args, &environment(cache.path()), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for what in ["hearth", "device", "memory", "cache", "hearth pull", "not used"] {
            assert!(text.contains(what), "{what} is not in: {text}");
        }
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn what_stands_in_the_way_is_said_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let mut out = Vec::new();
        let args = Args { load: LoadArgs::default() };
        let error = run(&args, &environment(&file.join("cache")), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "1 of these must be mended");
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("BAD   cache") && text.contains("HEARTH_CACHE"), "{text}");
        let little = Memory { total: 1 << 30, available: 1 << 20 };
        assert_eq!(memory(little).health, Health::Bad);
    }
}
