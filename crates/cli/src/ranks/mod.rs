//! One model on several machines. Each runs the same command under MLX's launcher and has some of the
//! layers; the first one serves, and tells the others what to do (`lead.rs`), which follow
//! (`follow.rs`). Rows go from one to the next by MLX; what is to be done goes over a connection from
//! each to the first, because that also shows when somebody is gone, which MLX does not.
//!
//! A rank that is gone, or a fault on one, ends the group: what it remembers cannot be had again.

mod follow;
mod lead;
mod wire;

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};
use backend::{DeviceError, KvFormat};
use engine::{Executor, ExecutorShape, ModelExecutor};
use models::{ModelSpec, Part, PartDecoder};
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use weights::Checkpoint;

use crate::load::LoadArgs;
use crate::progress::Meter;

pub(crate) use follow::Follower;
pub(crate) use lead::Lead;
use wire::{Order, Pass};

/// What this process is in its group.
pub(crate) enum Role {
    /// The one that serves.
    Lead(Lead),
    /// One of the others.
    Follow(Follower),
}

/// What is to be the same everywhere, or the group computes nonsense: how a model is loaded.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    context: usize,
    kv_format: String,
    /// Of the model's config, so that nobody has another one.
    config: u64,
    n_blocks: usize,
    n_windowed: usize,
    n_slots: usize,
    max_rows: usize,
    max_want: usize,
}

impl Settings {
    fn shape(&self) -> ExecutorShape {
        let Settings { n_blocks, n_windowed, n_slots, max_rows, max_want, .. } = *self;
        ExecutorShape { n_blocks, n_windowed, n_slots, max_rows, max_want }
    }
}

/// A number for what a model is, the same in every process.
fn fingerprint(checkpoint: &Checkpoint) -> u64 {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(checkpoint.config.to_string());
    digest.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// What must be the same program with the same precision.
fn program(args: &LoadArgs) -> String {
    let arithmetic = env!("HEARTH_ARITHMETIC");
    format!("{} {arithmetic} {:?}", env!("CARGO_PKG_VERSION"), args.mlx_precision)
}

/// Joins the group that MLX's launcher has described, whose first rank is reached at `address`. Waits
/// until all are there.
pub(crate) fn join(address: SocketAddr, args: &LoadArgs) -> Result<Role> {
    let mut device = crate::load::open_mlx(args)?;
    let mlx::Rank { rank, ranks } = device.join().context("--ranks: no group was joined")?;
    if ranks < 2 {
        bail!("--ranks: the group has one process only; leave the flag out");
    }
    Ok(match rank {
        0 => Role::Lead(Lead::gather(address, (device, ranks), &program(args))?),
        rank => Role::Follow(Follower::find(address, device, (rank, ranks), &program(args))?),
    })
}

/// A connection that notices when the machine at its other end is gone, within half a minute.
fn watched(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, std::time::Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, std::time::Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(())
}

/// A rank's part of a model, on its device.
fn load_part(
    device: &engine::Device<mlx::Mlx>,
    (spec, part): (&ModelSpec, Part),
    checkpoint: &Checkpoint,
    shape: ExecutorShape,
) -> Result<Box<dyn Executor>> {
    let meter = Meter::steps("loading", part.layers.len() as u64);
    let layers = part.layers.clone();
    let progress = &mut |done, _| meter.set(done as u64);
    let decoder = PartDecoder::load((spec, part), checkpoint, device.backend(), progress)?;
    drop(meter);
    for note in checkpoint.warnings().iter().chain(decoder.notes()) {
        eprintln!("note: {note}");
    }
    eprintln!("layers {} to {} of {}", layers.start + 1, layers.end, spec.layers.len());
    let executor = ModelExecutor::of_part(device.clone(), decoder, shape);
    device.backend().check()?;
    Ok(Box::new(executor))
}

/// Does what is asked of a loaded model. What was asked for; logits are replaced by those of a pass.
fn obey(
    executor: &mut dyn Executor,
    order: &Order,
    logits: &mut Vec<f32>,
) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = Vec::new();
    match order {
        Order::Step(Pass(batch)) => executor.step(batch, logits)?,
        Order::ReadBlock(group, block) => {
            bytes.resize(executor.block_bytes(*group), 0);
            executor.read_block((*group, *block), &mut bytes)?;
        }
        Order::ReadState(slot) => {
            bytes.resize(executor.state_bytes(), 0);
            executor.read_state(*slot, &mut bytes)?;
        }
        Order::WriteBlock(group, block, bytes) if bytes.len() == executor.block_bytes(*group) => {
            executor.write_block((*group, *block), bytes)?;
        }
        Order::WriteState(slot, bytes) if bytes.len() == executor.state_bytes() => {
            executor.write_state(*slot, bytes)?;
        }
        Order::WriteBlock(..) | Order::WriteState(..) | Order::Load(_) | Order::Unload => {
            return Err(DeviceError("this cannot be done to a loaded model".to_owned()));
        }
    }
    Ok(bytes)
}

/// By its name, as ranks tell each other.
fn format_named(name: &str) -> Result<KvFormat> {
    KvFormat::named(name).with_context(|| format!("nobody knows keys and values in {name}"))
}
