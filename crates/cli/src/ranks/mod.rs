//! One model on several machines. Each runs the same command under MLX's launcher and has some of the
//! layers, or a share of every layer; the first one serves, and tells the others what to do (`lead.rs`),
//! which follow (`follow.rs`). Rows go between them by MLX; what is to be done goes over a connection from
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
use models::{Footprint, ModelSpec, Part, PartDecoder, Share, ShareDecoder};
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

/// How a model is split over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum Split {
    /// Each machine has some of the layers, and waits for the one before it
    #[default]
    Pipeline,
    /// Each machine has some heads and columns of every layer, and all work at once
    Tensor,
}

/// A group of ranks, and how they share a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) ranks: usize,
    pub(crate) split: Split,
}

/// What one rank has of a model.
pub(crate) enum Piece {
    Part(Part),
    Share(Share),
}

impl Shared {
    /// What `rank` has of a model.
    ///
    /// # Errors
    /// The model cannot be split so.
    pub(crate) fn piece(self, spec: &ModelSpec, rank: usize) -> Result<Piece, models::Error> {
        let Shared { ranks, split } = self;
        Ok(match split {
            Split::Pipeline => Piece::Part(Part::of(spec, rank, ranks)?),
            Split::Tensor => {
                spec.shared(ranks)?;
                Piece::Share(Share { rank, ranks })
            }
        })
    }
}

impl Piece {
    /// The model that this is by itself, for what memory it takes.
    pub(crate) fn spec(&self, whole: &ModelSpec) -> Result<ModelSpec, models::Error> {
        match self {
            Piece::Part(part) => Ok(whole.part(part)),
            Piece::Share(share) => whole.shared(share.ranks),
        }
    }

    /// What its weights take.
    pub(crate) fn footprint(
        &self,
        whole: &ModelSpec,
        checkpoint: &Checkpoint,
    ) -> Result<Footprint, models::Error> {
        match self {
            Piece::Part(part) => Footprint::of_part(whole, part, checkpoint),
            Piece::Share(share) => Footprint::of_share(whole, *share, checkpoint),
        }
    }
}

/// What is to be the same everywhere, or the group computes nonsense: how a model is loaded.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    split: Split,
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
pub(crate) fn join(address: SocketAddr, split: Split, args: &LoadArgs) -> Result<Role> {
    let mut device = crate::load::open_mlx(args)?;
    let mlx::Rank { rank, ranks } = device.join().context("--ranks: no group was joined")?;
    if ranks < 2 {
        bail!("--ranks: the group has one process only; leave the flag out");
    }
    Ok(match rank {
        0 => Role::Lead(Lead::gather(address, (device, Shared { ranks, split }), &program(args))?),
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

/// A rank's piece of a model, on its device.
fn load_piece(
    device: &engine::Device<mlx::Mlx>,
    (spec, piece): (&ModelSpec, Piece),
    checkpoint: &Checkpoint,
    shape: ExecutorShape,
) -> Result<Box<dyn Executor>> {
    let layers = match &piece {
        Piece::Part(part) => part.layers.clone(),
        Piece::Share(_) => 0..spec.layers.len(),
    };
    let meter = Meter::steps("loading", layers.len() as u64);
    let progress = &mut |done, _| meter.set(done as u64);
    let note = |notes: &[String]| {
        for note in checkpoint.warnings().iter().chain(notes) {
            eprintln!("note: {note}");
        }
    };
    let executor: Box<dyn Executor> = match piece {
        Piece::Part(part) => {
            let decoder = PartDecoder::load((spec, part), checkpoint, device.backend(), progress)?;
            note(decoder.notes());
            Box::new(ModelExecutor::of_part(device.clone(), decoder, shape))
        }
        Piece::Share(share) => {
            let b = device.backend();
            let decoder = ShareDecoder::load((spec, share), checkpoint, b, progress)?;
            note(decoder.notes());
            eprintln!("share {} of {} of all layers", share.rank + 1, share.ranks);
            Box::new(ModelExecutor::of_share(device.clone(), decoder, shape))
        }
    };
    drop(meter);
    if layers.len() < spec.layers.len() {
        eprintln!("layers {} to {} of {}", layers.start + 1, layers.end, spec.layers.len());
    }
    device.backend().check()?;
    Ok(executor)
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
