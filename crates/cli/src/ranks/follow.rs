//! A rank that is not the first: has its part of the model, and does what it is told until the first
//! one ends.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use backend::KvGroup;
use engine::Executor;
use weights::Checkpoint;

use super::wire::{Answer, Frame, Order};
use super::{Settings, Shared, fingerprint, format_named, load_piece, obey, watched};

/// How often it is tried to reach the first rank, which may not be ready yet.
const ATTEMPTS: usize = 100;
/// How long between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a pass that is being computed may take to end when the first rank has ended.
const FAREWELL: Duration = Duration::from_secs(3);

/// One of the others.
pub(crate) struct Follower {
    device: engine::Device<mlx::Mlx>,
    rank: usize,
    ranks: usize,
    stream: TcpStream,
}

impl Follower {
    /// Reaches the first rank at `address`.
    pub(super) fn find(
        address: SocketAddr,
        device: mlx::Mlx,
        (rank, ranks): (usize, usize),
        program: &str,
    ) -> Result<Follower> {
        let mut attempts = 0;
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if attempts == ATTEMPTS => {
                    return Err(error)
                        .with_context(|| format!("--ranks: rank 0 is not at {address}"));
                }
                Err(_) => thread::sleep(PAUSE),
            }
            attempts += 1;
        };
        watched(&stream)?;
        let (of, program) = (ranks as u64, program.to_owned());
        Answer::Here { rank: rank as u64, ranks: of, program }.frame().write(&mut stream)?;
        Ok(Follower { device: device.into(), rank, ranks, stream })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Does what the first rank says with the model at `path`, until that one ends. Returns although
    /// MLX may still wait for somebody who is gone.
    pub(crate) fn follow(self, path: &Path) -> Result<()> {
        let Follower { device, rank, ranks, mut stream } = self;
        let (jobs, orders) = channel();
        let (path, failed) = (path.to_owned(), Arc::new(AtomicBool::new(false)));
        // When it ends, also by a panic, whoever reads there hears of it.
        let answers = Closing(stream.try_clone()?, Arc::clone(&failed));
        let (over, ended) = channel::<()>();
        thread::spawn(move || {
            // Goes last, when nothing of MLX is held any more.
            let _over = over;
            let part = Own { device, rank, ranks, path: &path };
            if let Err(why) = part.work(&orders, answers) {
                eprintln!("rank {rank} failed: {}", crate::one_line(&why));
            }
        });
        let last = loop {
            match Frame::read(&mut stream) {
                Ok(Some(frame)) => {
                    // Where nobody computes any more, the next read ends this.
                    let _ = jobs.send(Order::of(frame)?);
                }
                Ok(None) if failed.load(Ordering::SeqCst) => bail!("rank {rank} has failed"),
                Ok(None) => break Ok(()),
                Err(garbled) => break Err(garbled).context("rank 0 is gone"),
            }
        };
        // MLX must not be in use when the process takes it down, unless it waits for somebody for ever.
        drop(jobs);
        let _ = ended.recv_timeout(FAREWELL);
        last
    }
}

/// Closes a connection when it is dropped, whatever the reason is, and says so.
struct Closing(TcpStream, Arc<AtomicBool>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// What the computing thread of a rank has.
struct Own<'a> {
    device: engine::Device<mlx::Mlx>,
    rank: usize,
    ranks: usize,
    path: &'a Path,
}

impl Own<'_> {
    /// Does what it is told, and says what came of it.
    fn work(&self, orders: &Receiver<Order>, mut answers: Closing) -> Result<()> {
        let mut model: Option<Box<dyn Executor>> = None;
        while let Ok(order) = orders.recv() {
            let answer = match order {
                Order::Unload => {
                    model = None;
                    continue;
                }
                Order::Load(settings) => self.load(&settings).map(|loaded| {
                    let groups = [KvGroup::Full, KvGroup::Windowed];
                    let [full, windowed] = groups.map(|group| loaded.block_bytes(group) as u64);
                    let state = loaded.state_bytes() as u64;
                    model = Some(loaded);
                    Answer::Loaded([full, windowed, state])
                }),
                order => match &mut model {
                    Some(model) => obey(&mut **model, &order, &mut Vec::new()).map_err(Into::into),
                    None => Err(anyhow!("no model is loaded")),
                }
                .map(Answer::Done),
            };
            let answer = answer.unwrap_or_else(|why| Answer::Failed(crate::one_line(&why)));
            answer.frame().write(&mut answers.0)?;
            if let Answer::Failed(why) = answer {
                bail!(why);
            }
        }
        Ok(())
    }

    fn load(&self, settings: &[u8]) -> Result<Box<dyn Executor>> {
        let settings: Settings = serde_json::from_slice(settings)?;
        let checkpoint = Checkpoint::open(self.path)?;
        if fingerprint(&checkpoint) != settings.config {
            bail!("{} is not the model that rank 0 has", self.path.display());
        }
        let spec = models::recipe_for_context(&checkpoint.config, settings.context)?
            .with_kv_format(format_named(&settings.kv_format)?);
        let shared = Shared { ranks: self.ranks, split: settings.split };
        let piece = shared.piece(&spec, self.rank)?;
        load_piece(&self.device, (&spec, piece), &checkpoint, settings.shape())
    }
}
