//! Flags of `hearth serve` that say who may ask: keys, names, pages, and how often.

use std::net::IpAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use server::{Edge, Key};

#[derive(clap::Args)]
pub(crate) struct EdgeArgs {
    /// Key that requests must bring, as `Authorization: Bearer KEY` or `x-api-key` (may be repeated).
    /// Other users of the machine can see it in the list of processes: a file is better
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// File of such keys, one a line; empty lines and those with # at the beginning do not count
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Let other machines in without a key: anybody who reaches the port can use the models
    #[arg(long)]
    insecure_bind: bool,
    /// Name that requests may call this machine, beside localhost and addresses (may be repeated);
    /// servers with keys take any. `*` is any
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Origin of a website that may use the server from a browser, such as https://example.org (may
    /// be repeated); `*` is any [default: none]
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Requests in a minute of one key, or without keys of one address; 0 is no limit
    #[arg(long, default_value_t = 0, value_name = "N")]
    rate_limit: u32,
}

impl EdgeArgs {
    /// What the flags say, for a server at this address.
    pub(crate) fn edge(&self, host: IpAddr) -> Result<Edge> {
        let mut keys = Vec::new();
        for text in &self.api_key {
            keys.push(key(text).context("--api-key")?);
        }
        if let Some(file) = &self.api_key_file {
            keys.extend(keys_of(file)?);
        }
        if !host.is_loopback() && keys.is_empty() && !self.insecure_bind {
            bail!(
                "{host} is not an address of this machine alone. Add --api-key-file, or \
                 --insecure-bind if everybody who can reach it may use the models"
            );
        }
        Ok(Edge {
            keys: keys.into(),
            hosts: self.allow_host.clone(),
            origins: self.cors_origin.clone(),
            per_minute: NonZero::new(self.rate_limit),
        })
    }
}

fn key(text: &str) -> Result<Key> {
    Key::new(text).context("a key has from 1 to 512 visible ASCII characters and no spaces")
}

/// The keys of a file, at least one: a server that was to have keys must not be without.
fn keys_of(file: &Path) -> Result<Vec<Key>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(n, line)| key(line).with_context(|| format!("{shown}, line {}", n + 1));
    let keys: Vec<Key> = lines.map(read).collect::<Result<_>>()?;
    if keys.is_empty() {
        bail!("{shown} holds no key");
    }
    Ok(keys)
}
