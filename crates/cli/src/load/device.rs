//! Which device computes: the one place where devices are named. `with_mlx` is set by the build script
//! where the program may use MLX.

use anyhow::Result;
use backend::{Backend, KvFormat};
use engine::{Executor, ExecutorShape, ModelExecutor};
use models::Decoder;

use super::{LoadArgs, Opened};
#[cfg(with_mlx)]
use crate::machine::human_bytes;
use crate::progress::Meter;
#[cfg(with_mlx)]
use crate::ranks::{Lead, Shared, Split};

/// What can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// The GPU if there is one that this program can use, else the processor
    #[default]
    Auto,
    /// The processor
    Cpu,
    /// MLX: the GPU of a Mac
    #[cfg(with_mlx)]
    Mlx,
}

/// What activations are computed in on MLX.
#[cfg(with_mlx)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Precision {
    /// As exact as on the processor
    #[default]
    F32,
    /// Less memory traffic; not every model stays in its range
    F16,
    /// Less memory traffic, fewer digits: answers may differ
    Bf16,
}

/// The device that all models of this process share.
pub(crate) enum Device {
    Cpu(engine::Device<cpu::Cpu>, cpu::Activations),
    #[cfg(with_mlx)]
    Mlx(engine::Device<mlx::Mlx>, mlx::Precision),
    /// MLX on several machines.
    #[cfg(with_mlx)]
    Ranks(Lead, mlx::Precision),
}

impl Device {
    /// The one that was asked for, with so many threads where that means anything.
    pub(crate) fn new(args: &LoadArgs, threads: Option<usize>) -> Result<Device> {
        #[cfg(with_mlx)]
        if let Some(device) = mlx_device(args)? {
            let precision = mlx_options(args).precision;
            return Ok(Device::Mlx(device.into(), precision));
        }
        let options = args.options();
        let options = cpu::Options { threads: threads.unwrap_or(options.threads), ..options };
        Ok(Device::Cpu(cpu::Cpu::new(&options).into(), options.activations))
    }

    /// MLX on this machine and others, of which this is the first.
    #[cfg(with_mlx)]
    pub(crate) fn of_ranks(lead: Lead, args: &LoadArgs) -> Device {
        Device::Ranks(lead, mlx_options(args).precision)
    }

    /// All of the device that decides a bit of what it computes, for the names of what is kept.
    pub(crate) fn arithmetic(&self) -> String {
        match self {
            Device::Cpu(_, activations) => format!("{activations:?}\0cpu"),
            #[cfg(with_mlx)]
            Device::Mlx(device, precision) => arithmetic_of_mlx(device.backend(), *precision),
            #[cfg(with_mlx)]
            Device::Ranks(lead, precision) => {
                let alone = arithmetic_of_mlx(lead.mlx(), *precision);
                match lead.shared() {
                    // Layers compute what they compute on one machine.
                    Shared { split: Split::Pipeline, .. } => alone,
                    // Sums are put together in other places, and keys lie rank by rank.
                    Shared { split: Split::Tensor, ranks } => format!("{alone}\0{ranks} shares"),
                }
            }
        }
    }

    /// How far logarithms of probabilities of the same request may be apart; `None` says that bits are
    /// the same.
    pub(crate) fn nearness(&self) -> Option<f32> {
        match self {
            Device::Cpu(..) => None,
            #[cfg(with_mlx)]
            Device::Mlx(_, precision) | Device::Ranks(_, precision) => Some(match precision {
                mlx::Precision::F32 => 1e-3,
                mlx::Precision::F16 => 0.05,
                mlx::Precision::Bf16 => 0.3,
            }),
        }
    }

    /// In a few words, for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Device::Cpu(device, _) => format!("the processor ({})", device.backend().isa()),
            #[cfg(with_mlx)]
            Device::Mlx(device, _) => describe_mlx(device.backend()),
            #[cfg(with_mlx)]
            Device::Ranks(lead, _) => {
                format!("{}, {} times", describe_mlx(lead.mlx()), lead.shared().ranks)
            }
        }
    }

    /// What it holds, where it keeps books of its own.
    pub(crate) fn memory(&self) -> Option<server::DeviceMemory> {
        match self {
            Device::Cpu(..) => None,
            #[cfg(with_mlx)]
            Device::Mlx(device, _) => Some(memory_of_mlx(device.backend())),
            #[cfg(with_mlx)]
            Device::Ranks(lead, _) => Some(memory_of_mlx(lead.mlx())),
        }
    }

    /// Gives a model's weights to it.
    pub(crate) fn executor(
        &self,
        opened: &Opened,
        shape: ExecutorShape,
    ) -> Result<Box<dyn Executor>> {
        match self {
            Device::Cpu(device, _) => load_on(device, opened, shape),
            #[cfg(with_mlx)]
            Device::Mlx(device, _) => {
                let executor = load_on(device, opened, shape)?;
                // What is not there was noted, and is told now, before anything is computed.
                device.backend().check()?;
                Ok(executor)
            }
            #[cfg(with_mlx)]
            Device::Ranks(lead, _) => lead.executor(opened, shape),
        }
    }
}

/// How keys and values are kept where nobody says: as the device is fastest.
pub(super) fn default_kv_format(args: &LoadArgs) -> KvFormat {
    #[cfg(with_mlx)]
    // Whether it can be used is said when it is used.
    if matches!(mlx_device(args), Ok(Some(_))) {
        return KvFormat::F16;
    }
    let _ = args;
    KvFormat::default()
}

fn load_on<B: Backend>(
    device: &engine::Device<B>,
    opened: &Opened,
    shape: ExecutorShape,
) -> Result<Box<dyn Executor>> {
    let meter = Meter::steps("loading", opened.spec.layers.len() as u64);
    let decoder = Decoder::load_with_progress(
        &opened.spec,
        &opened.checkpoint,
        device.backend(),
        &mut |done, _| meter.set(done as u64),
    )?;
    drop(meter);
    for note in opened.checkpoint.warnings().iter().chain(decoder.notes()) {
        eprintln!("note: {note}");
    }
    Ok(Box::new(ModelExecutor::new(device.clone(), decoder, shape)))
}

#[cfg(with_mlx)]
fn memory_of_mlx(mlx: &mlx::Mlx) -> server::DeviceMemory {
    let mlx::MemoryUse { active, peak, cached } = mlx.memory();
    server::DeviceMemory { active: active as u64, cached: cached as u64, peak: peak as u64 }
}

#[cfg(with_mlx)]
fn arithmetic_of_mlx(mlx: &mlx::Mlx, precision: mlx::Precision) -> String {
    format!("{precision:?}\0mlx {} {:?}", mlx.version(), mlx.unit())
}

/// MLX as it was asked for, for whoever does more with it than compute.
#[cfg(with_mlx)]
pub(crate) fn open_mlx(args: &LoadArgs) -> Result<mlx::Mlx> {
    Ok(mlx::Mlx::open(&mlx_options(args))?)
}

#[cfg(with_mlx)]
fn mlx_options(args: &LoadArgs) -> mlx::Options {
    let precision = match args.mlx_precision {
        Precision::F32 => mlx::Precision::F32,
        Precision::F16 => mlx::Precision::F16,
        Precision::Bf16 => mlx::Precision::Bf16,
    };
    mlx::Options { library: args.mlx_library.clone(), precision, ..mlx::Options::default() }
}

/// MLX, if it is to be used: where it was asked for, or where it has a GPU and nothing was asked for.
#[cfg(with_mlx)]
fn mlx_device(args: &LoadArgs) -> Result<Option<mlx::Mlx>> {
    match args.device {
        Choice::Cpu => Ok(None),
        Choice::Mlx => open_mlx(args).map(Some),
        Choice::Auto => {
            let found = mlx::Mlx::open(&mlx_options(args)).ok();
            Ok(found.filter(|mlx| mlx.unit() == mlx::Unit::Gpu))
        }
    }
}

#[cfg(with_mlx)]
fn describe_mlx(mlx: &mlx::Mlx) -> String {
    let unit = match mlx.unit() {
        mlx::Unit::Gpu => "the GPU",
        mlx::Unit::Cpu => "the processor, for checking: it is slow",
    };
    let most = mlx.recommended_memory().map(|bytes| human_bytes(bytes as u64));
    let most = most.map(|most| format!(", {most} of memory at most")).unwrap_or_default();
    let steps = match (mlx.unit(), mlx.steps_by()) {
        (mlx::Unit::Gpu, mlx::StepsBy::Plan(why)) => {
            format!(", layers with a state slower than they could be: {why}")
        }
        _ => String::new(),
    };
    format!("MLX {} on {unit}{most}{steps} ({})", mlx.version(), mlx.library().display())
}

/// What is to be known of MLX on this machine: what it is, or why there is none. Nothing where the
/// program is built without it.
pub(crate) fn about_mlx(args: &LoadArgs) -> Option<Result<String, String>> {
    #[cfg(with_mlx)]
    return Some(match mlx::Mlx::open(&mlx_options(args)) {
        Ok(mlx) => Ok(describe_mlx(&mlx)),
        Err(missing) => Err(missing.to_string()),
    });
    #[cfg(not(with_mlx))]
    {
        let _ = args;
        None
    }
}
