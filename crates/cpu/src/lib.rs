//! The CPU device: a thread pool, kernels per instruction set, and the ops built on them.
//!
//! **Invariants:** a row's arithmetic depends neither on the other rows, nor on how many there are,
//! nor on the threads, nor on the instruction set; every fast kernel gives the bits of its scalar
//! twin. `unsafe` lives in `simd/` and `pool.rs`; everything else works on slices.

mod attention;
mod float;
mod latent;
mod layer_inputs;
mod linear;
mod math;
mod memory;
mod moe;
mod pack;
mod pool;
mod recurrent;
mod rounded;
mod rows;
mod simd;
mod streams;
mod zeros;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use attention::Pages;
pub use memory::{Buf, Staged, StagedSpan, Vector, Weight};
pub(crate) use pack::row_f32;
pub use pool::{Block, BlockMut, Pool};
pub use recurrent::States;
pub(crate) use simd::Kernels;
pub use simd::{Isa, multiply_adds_int8};

/// How a [`Cpu`] works.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that take part in every op, the caller included; 0 means one per physical core.
    pub threads: usize,
    /// What linear layers multiply packed weights with.
    pub activations: Activations,
    /// An instruction set to use instead of the best one this machine has.
    pub isa: Option<Isa>,
}

/// What a linear layer multiplies packed weights with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// Groups of 32 rounded to 8-bit integers with an f32 scale.
    #[default]
    Int8,
    /// The f32 numbers as they are, against weights widened to f32: slow, for checking.
    Exact,
}

impl Options {
    /// Threads that a device with these options uses.
    pub fn n_threads(&self) -> usize {
        pool::n_threads(self.threads)
    }
}

/// The CPU as a device.
pub struct Cpu {
    pool: Pool,
    kernels: &'static Kernels,
    activations: Activations,
    /// Locked for the length of one linear layer, by its caller alone.
    scratch: Mutex<linear::Scratch>,
    /// The same for attention.
    plan: Mutex<attention::Plan>,
    /// Outputs of the tasks of a recurrent layer; the same again.
    heads: Mutex<Vec<Block>>,
}

impl Cpu {
    /// Starts the threads and picks the kernels. An instruction set this machine lacks is replaced
    /// by the best one it has.
    pub fn new(options: &Options) -> Cpu {
        let forced = options.isa.and_then(Kernels::of);
        Cpu {
            pool: Pool::new(options.threads),
            kernels: forced.unwrap_or_else(Kernels::detect),
            activations: options.activations,
            scratch: Mutex::default(),
            plan: Mutex::default(),
            heads: Mutex::default(),
        }
    }

    /// Name of the instruction set in use.
    pub fn isa(&self) -> &'static str {
        self.kernels.isa.name()
    }

    /// Threads in use, the caller included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// What a panic left in it is overwritten by the next user.
    fn scratch(&self) -> MutexGuard<'_, linear::Scratch> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As above.
    fn plan(&self) -> MutexGuard<'_, attention::Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As above.
    fn heads(&self) -> MutexGuard<'_, Vec<Block>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
