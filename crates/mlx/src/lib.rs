//! The GPU device of a Mac: MLX, through its C API, found when the program runs.
//!
//! An op of [`backend::ops`] adds to a plan; MLX begins with it a few times on the way (`ahead.rs`), and
//! who reads a result waits for it.
//! Activations, keys and values are MLX arrays whose shapes MLX knows; a [`Buf`] holds one. A fault
//! (of shapes, of memory, of the GPU) is kept, and comes out of the next read.
//!
//! **Not promised here**, unlike on the CPU device: that a row has the same bits alone and in a crowd.
//! MLX chooses among kernels by the number of rows. Answers are compared within tolerances.
//!
//! **Invariant:** `unsafe` in `ffi.rs` and `ffi/` alone; no knowledge of any model family.

mod ahead;
mod attention;
mod dense;
mod ffi;
mod latent;
mod layer_inputs;
mod moe;
mod pages;
mod peers;
mod recurrent;
mod repack;
mod rhythm;
mod staged;
mod steps;
mod streams;
mod weight;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use backend::Batch;
use backend::ops::{DeviceError, Memory};
use weights::Matrix;

use ahead::Ahead;
pub use ahead::Begin;
use ffi::{Array, Constant, Dtype, Group, memory};
pub use ffi::{Fault, Missing, Unit};
pub use pages::Pages;
pub use peers::Rank;
pub use recurrent::States;
use rhythm::Rhythm;
pub use staged::Staged;
pub use steps::StepsBy;
use weight::Portion;
pub use weight::Weight;

/// What activations are computed in. Sums inside MLX's kernels are f32 on a GPU in any case; on a processor
/// those of products with packed weights have this type too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As exact as the other devices.
    #[default]
    F32,
    /// Half the memory traffic; numbers beyond 65,504 are lost.
    F16,
    /// Likewise, with the range of f32 and fewer digits: scales of 16-bit floats with more lose some.
    Bf16,
}

/// What is kept for arrays to come takes at most one part in so many of what a GPU is to use.
const CACHE_PART: usize = 8;

/// What a [`Mlx`] is to be like.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// MLX's C library, if it is not where such libraries are.
    pub library: Option<PathBuf>,
    /// What activations are computed in.
    pub precision: Precision,
    /// Most bytes that MLX keeps for arrays to come; if nobody says, a part of what a GPU is to use at
    /// most. What it would keep by itself is nearly all of the memory.
    pub cache_bytes: Option<usize>,
    /// When what is planned is begun.
    pub begin: Begin,
}

/// The device.
#[derive(Debug)]
pub struct Mlx {
    dtype: Dtype,
    /// What went wrong first since somebody read.
    fault: Mutex<Option<Fault>>,
    /// What this pass leaves behind for the next ones, and nobody may read.
    left: Mutex<Vec<Array>>,
    /// Those that share the work, once they were joined.
    group: Option<Group>,
    /// When what MLX keeps is given back.
    rhythm: Mutex<Rhythm>,
    /// When it begins with what is planned.
    ahead: Mutex<Ahead>,
    /// What takes states through rows.
    kernel: steps::Proven,
}

/// Activations.
#[derive(Debug)]
pub struct Buf {
    /// `[rows, cols]`, once it is written.
    array: Option<Array>,
    max_len: usize,
}

/// A few f32.
#[derive(Debug)]
pub struct Vector {
    exact: Constant,
    /// In the type of the activations.
    native: Constant,
    /// As a gain: over the columns of how many ranks its norm goes.
    over: usize,
}

/// What [`Mlx::memory`] says, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// In arrays.
    pub active: usize,
    /// In arrays, at most so far.
    pub peak: usize,
    /// Kept for arrays to come.
    pub cached: usize,
}

impl Mlx {
    /// Loads MLX, and makes it the device. Another library than the first one that this process has
    /// loaded is not loaded any more.
    pub fn open(options: &Options) -> Result<Mlx, Missing> {
        ffi::open(options.library.as_deref())?;
        let dtype = match options.precision {
            Precision::F32 => Dtype::F32,
            Precision::F16 => Dtype::F16,
            Precision::Bf16 => Dtype::Bf16,
        };
        let device = Mlx {
            dtype,
            fault: Mutex::default(),
            left: Mutex::default(),
            group: None,
            rhythm: Mutex::default(),
            ahead: Mutex::new(Ahead::new(options.begin)),
            kernel: steps::Proven::new(),
        };
        let recommended = memory::recommended(device.unit());
        if let Some(bytes) = recommended {
            device.kept(memory::wire(bytes));
        }
        if let Some(bytes) = options.cache_bytes.or(recommended.map(|bytes| bytes / CACHE_PART)) {
            device.kept(memory::limit_cache(bytes));
        }
        Ok(device)
    }

    /// The library that was loaded.
    pub fn library(&self) -> &'static Path {
        ffi::about().0
    }

    /// The version of MLX.
    pub fn version(&self) -> &'static str {
        ffi::about().1
    }

    /// What computes.
    pub fn unit(&self) -> Unit {
        ffi::about().2
    }

    /// What MLX holds, for the whole process.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse { active: memory::active(), peak: memory::peak(), cached: memory::cached() }
    }

    /// Bytes that the system would have this device use at most; a processor has no such number.
    pub fn recommended_memory(&self) -> Option<usize> {
        memory::recommended(self.unit())
    }

    /// Gives back what MLX keeps for arrays to come.
    pub fn clear_cache(&self) {
        self.kept(memory::clear_cache());
    }

    /// Tells what went wrong since somebody asked, such as in taking over weights or making room, of
    /// which there is nothing to read.
    ///
    /// # Errors
    /// It did.
    pub fn check(&self) -> Result<(), DeviceError> {
        let fault = self.fault().take();
        fault.map_or(Ok(()), |fault| Err(DeviceError(fault.to_string())))
    }

    fn fault(&self) -> MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result, or nothing and a fault that is kept.
    fn kept<T>(&self, result: Result<T, Fault>) -> Option<T> {
        result
            .map_err(|fault| {
                self.fault().get_or_insert(fault);
            })
            .ok()
    }

    /// [`Mlx::kept`] of what takes so many bytes, and whose fault says so.
    fn roomy<T>(&self, made: Result<T, Fault>, (what, bytes): (&str, usize)) -> Option<T> {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        self.kept(made.map_err(|Fault(why)| {
            let (wanted, active) = (mib(bytes), mib(self.memory().active));
            Fault(format!("no room for {what} of {wanted} MiB beside {active} MiB in use: {why}"))
        }))
    }

    /// Writes `out`.
    fn fill(&self, out: &mut Buf, make: impl FnOnce() -> Result<Array, Fault>) {
        out.array = self.kept(make()).inspect(|array| {
            let (len, most) = (array.shape().iter().product::<usize>(), out.max_len);
            assert!(len <= most, "{:?} does not fit a buffer of {most}", array.shape());
        });
    }

    /// Changes `x`.
    fn update(&self, x: &mut Buf, change: impl FnOnce(&Array) -> Result<Array, Fault>) {
        let changed = x.get().and_then(change);
        self.fill(x, || changed);
    }

    /// Adds to `x` as [`Mlx::update`] does, and has what is planned so far begun if it is time.
    fn sum(&self, x: &mut Buf, change: impl FnOnce(&Array) -> Result<Array, Fault>) {
        self.update(x, change);
        let is_due = self.ahead().begins_after_sum();
        if let (true, Some(sum)) = (is_due, &x.array) {
            self.kept(ffi::begin(&[sum]));
        }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what later passes read, so that it is computed even if nobody asks for this one's
    /// result: plans that only grow would hold all memory at last.
    fn leave(&self, array: &Array) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(array.clone());
    }

    /// Has everything computed that passes so far have left.
    fn settle(&self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        if !left.is_empty() {
            self.kept(ffi::begin(&left.iter().collect::<Vec<_>>()));
        }
    }
}

impl Buf {
    fn get(&self) -> Result<&Array, Fault> {
        self.array.as_ref().ok_or_else(|| Fault("what was to be read was not written".to_owned()))
    }
}

/// The bytes of numbers, as MLX wants them.
fn bytes_of<const N: usize, T: Copy>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|x| bytes(*x)).collect()
}

fn floats(x: &[f32], shape: &[usize]) -> Result<Array, Fault> {
    Array::new(&bytes_of(x, f32::to_le_bytes), shape, Dtype::F32)
}

fn indices(x: &[u32]) -> Result<Array, Fault> {
    Array::new(&bytes_of(x, u32::to_le_bytes), &[x.len()], Dtype::U32)
}

impl Memory for Mlx {
    type Buf = Buf;
    type Weight = Weight;
    type Vector = Vector;
    type Staged = Staged;

    fn buf(&self, max_len: usize) -> Buf {
        Buf { array: None, max_len }
    }

    fn weight(&self, parts: &[Matrix]) -> Weight {
        self.take_over(parts, Portion::Whole)
    }

    fn summed_weight(&self, parts: &[Matrix]) -> Weight {
        self.take_over(parts, Portion::Columns)
    }

    fn joined_weight(&self, parts: &[Matrix]) -> Weight {
        self.take_over(parts, Portion::Rows)
    }

    fn vector(&self, values: &[f32]) -> Vector {
        self.gain(values, 1)
    }

    fn gain(&self, values: &[f32], over: usize) -> Vector {
        let of = |values: &[f32], dtype| floats(values, &[values.len()])?.astype(dtype)?.constant();
        let made = |dtype| {
            let made = self.roomy(of(values, dtype), ("a vector", size_of_val(values)));
            made.unwrap_or_else(|| of(&[], dtype).expect("an array of nothing takes no memory"))
        };
        Vector { exact: made(Dtype::F32), native: made(self.dtype), over }
    }

    fn staged(&self, _max_rows: usize) -> Staged {
        Staged::default()
    }

    fn stage(&self, batch: &Batch, staged: &mut Staged) {
        self.settle();
        self.ahead().restart();
        let has_prompts = batch.spans.iter().any(|span| span.rows.len() > 1);
        if self.rhythm.lock().unwrap_or_else(PoisonError::into_inner).clears_before(has_prompts) {
            self.clear_cache();
        }
        *staged = self.kept(Staged::new(batch)).unwrap_or_default();
    }

    fn read(&self, buf: &Buf, len: usize, out: &mut Vec<f32>) -> Result<(), DeviceError> {
        let result = buf.get().and_then(|array| {
            array.astype(Dtype::F32)?.read(|bytes| {
                out.clear();
                out.extend(bytes.as_chunks().0[..len].iter().map(|x| f32::from_le_bytes(*x)));
            })
        });
        // The first fault says more than what followed from it.
        self.check()?;
        result.map_err(|fault| DeviceError(fault.to_string()))
    }
}
