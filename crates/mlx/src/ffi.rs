//! The part of MLX's C API (mlx-c 0.7) that we use, behind safe types: the only room of this crate that
//! says `unsafe`. Here is how the library is found, and handles; its functions are listed in
//! `ffi/symbols.rs`, the operations are in `ffi/ops.rs`. Nothing here knows what a model is.
//!
//! MLX is one per process and is never unloaded: its streams and caches outlive every handle.
//!
//! **Threads.** An array that has been computed is plain data. One that has not is a plan which the
//! thread that made it must carry out, because streams belong to threads; elsewhere MLX reports an
//! error. [`Array`] may therefore go to another thread but not be shared between two, and what is shared
//! ([`Constant`]) has been computed.

#![allow(unsafe_code, reason = "the fence around a C library")]

pub(crate) mod kernel;
mod lent;
pub(crate) mod memory;
mod ops;
mod ranks;
mod symbols;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

pub(crate) use lent::lend;
pub(crate) use ops::{Attended, Packed, Seen, concatenate};
pub(crate) use ranks::Group;
use symbols::Symbols;

/// The MLX that mlx-c 0.7 goes with. Another one may take its arguments in other places.
const MLX_SERIES: &str = "0.32.";

/// An error of MLX, in its own words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("MLX: {0}")]
pub struct Fault(pub String);

/// Why there is no MLX.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Missing {
    /// No such library.
    #[error(
        "MLX's C library ({LIBRARY}) was not found in {}: install it (on a Mac: `brew install mlx-c`)",
        list(.0)
    )]
    NotFound(Vec<PathBuf>),
    /// It is there and cannot be used.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// The library.
        path: PathBuf,
        /// The loader's words, or ours.
        why: String,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(target_os = "macos")]
const LIBRARY: &str = "libmlxc.dylib";
#[cfg(not(target_os = "macos"))]
const LIBRARY: &str = "libmlxc.so";

/// What numbers an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Dtype {
    Bool = 0,
    U8 = 1,
    U16 = 2,
    U32 = 3,
    I8 = 5,
    I16 = 6,
    I32 = 7,
    F16 = 9,
    F32 = 10,
    Bf16 = 12,
}

impl Dtype {
    const ALL: [Dtype; 10] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::U16,
        Dtype::U32,
        Dtype::I8,
        Dtype::I16,
        Dtype::I32,
        Dtype::F16,
        Dtype::F32,
        Dtype::Bf16,
    ];

    pub(crate) fn n_bytes(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
        }
    }
}

/// `mlx_array` and its like: a pointer to an object of C++.
macro_rules! handles {
    ($($name:ident),*) => {$(
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        struct $name(*mut c_void);
    )*};
}

handles!(RawArray, RawVector, RawStream, RawDevice, RawString, RawGroup, RawInfo);
handles!(RawStrings, RawKernel, RawConfig);

/// `mlx_optional_int` and `mlx_optional_dtype`.
#[derive(Clone, Copy)]
#[repr(C)]
struct OptionalInt {
    value: c_int,
    has_value: bool,
}

/// Which of MLX's devices computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The processor. For checking.
    Cpu,
    /// The GPU.
    Gpu,
}

/// MLX, loaded.
struct Loaded {
    symbols: Symbols,
    path: PathBuf,
    version: String,
    unit: Unit,
}

static LOADED: OnceLock<Loaded> = OnceLock::new();

/// Where to look for the library, besides the loader's own places.
fn places() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(LIBRARY)));
    let usual =
        ["/opt/homebrew/lib", "/usr/local/lib"].map(|folder| Path::new(folder).join(LIBRARY));
    beside.into_iter().chain(usual).filter(|path| path.exists()).collect()
}

/// Loads MLX once: from `path`, or from where such libraries are. Later calls change nothing.
pub(crate) fn open(path: Option<&Path>) -> Result<(), Missing> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if LOADED.get().is_none() {
        let loaded = load(path)?;
        LOADED.get_or_init(|| loaded);
    }
    Ok(())
}

fn load(path: Option<&Path>) -> Result<Loaded, Missing> {
    let candidates = match path {
        Some(path) => vec![path.to_owned()],
        None => places().into_iter().chain([PathBuf::from(LIBRARY)]).collect(),
    };
    let mut why = None;
    for path in &candidates {
        // SAFETY: the library is MLX's; what it does when it is loaded is set up its own tables.
        match unsafe { Library::new(path) } {
            Ok(library) => return prepare(library, path),
            Err(error) if path.exists() => {
                why = Some(Missing::Unusable { path: path.clone(), why: error.to_string() });
            }
            Err(_) => {}
        }
    }
    Err(why.unwrap_or(Missing::NotFound(candidates)))
}

fn prepare(library: Library, path: &Path) -> Result<Loaded, Missing> {
    let unusable = |why: String| Missing::Unusable { path: path.to_owned(), why };
    let symbols = Symbols::find(&library)
        .map_err(|error| unusable(format!("it is not mlx-c 0.7 ({error})")))?;
    // Never unloaded: its threads go on, and handles may live as long as the process.
    std::mem::forget(library);
    // SAFETY: the handler keeps the message before it returns, needs no data, and does not unwind.
    unsafe { (symbols.mlx_set_error_handler)(keep_message, null_mut(), None) };
    let version = version(&symbols);
    if !version.starts_with(MLX_SERIES) {
        let wanted = format!("{MLX_SERIES}x");
        return Err(unusable(format!("it goes with MLX {version}; {wanted} is needed")));
    }
    let gpu = has_gpu(&symbols);
    let unit = if gpu { Unit::Gpu } else { Unit::Cpu };
    Ok(Loaded { symbols, path: path.to_owned(), version, unit })
}

fn version(symbols: &Symbols) -> String {
    // SAFETY: a new string is filled, read while it lives, and freed once.
    unsafe {
        let mut raw = (symbols.mlx_string_new)();
        let status = (symbols.mlx_version)(&mut raw);
        let data = (symbols.mlx_string_data)(raw);
        let known = status == 0 && !data.is_null();
        let text = known.then(|| CStr::from_ptr(data).to_string_lossy().into_owned());
        (symbols.mlx_string_free)(raw);
        text.unwrap_or_else(|| "unknown".to_owned())
    }
}

fn has_gpu(symbols: &Symbols) -> bool {
    let mut there = false;
    // SAFETY: a device of MLX's own kind 1, the GPU, is asked about and freed once.
    let status = unsafe {
        let device = (symbols.mlx_device_new_type)(Unit::Gpu as c_int, 0);
        let status = (symbols.mlx_device_is_available)(&mut there, device);
        (symbols.mlx_device_free)(device);
        status
    };
    status == 0 && there
}

fn loaded() -> &'static Loaded {
    LOADED.get().expect("MLX is loaded before anything is made with it")
}

fn symbols() -> &'static Symbols {
    &loaded().symbols
}

/// Which library was loaded, the version of MLX, and what computes.
pub(crate) fn about() -> (&'static Path, &'static str, Unit) {
    let Loaded { path, version, unit, .. } = loaded();
    (path, version, *unit)
}

thread_local! {
    /// What MLX said last on this thread.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
    /// This thread's stream. A few bytes that live as long as the thread's own streams.
    static STREAM: Cell<Option<RawStream>> = const { Cell::new(None) };
}

/// MLX calls it on the thread that made the mistake, before that call returns.
///
/// # Safety
/// `message` is a C string or null.
unsafe extern "C" fn keep_message(message: *const c_char, _data: *mut c_void) {
    if !message.is_null() {
        // SAFETY: this function's contract.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        // Fails only while a thread ends, when nobody reads it any more.
        let _ = MESSAGE.try_with(|kept| *kept.borrow_mut() = text);
    }
}

fn checked(status: c_int) -> Result<(), Fault> {
    if status == 0 {
        return Ok(());
    }
    Err(Fault(MESSAGE.with(|kept| std::mem::take(&mut *kept.borrow_mut()))))
}

/// The stream of this thread. Also makes its device the default one: MLX puts operations of its own
/// there.
fn stream() -> Result<RawStream, Fault> {
    if let Some(stream) = STREAM.get() {
        return Ok(stream);
    }
    let Loaded { symbols, unit, .. } = loaded();
    // SAFETY: the device is freed once.
    let status = unsafe {
        let device = (symbols.mlx_device_new_type)(*unit as c_int, 0);
        let status = (symbols.mlx_set_default_device)(device);
        (symbols.mlx_device_free)(device);
        status
    };
    checked(status)?;
    let stream = stream_of(*unit)?;
    STREAM.set(Some(stream));
    Ok(stream)
}

/// A new handle of this thread's stream on a device.
fn stream_of(unit: Unit) -> Result<RawStream, Fault> {
    let (mut stream, symbols) = (RawStream(null_mut()), symbols());
    // SAFETY: the device is freed once; the stream is a handle that the caller keeps.
    let status = unsafe {
        let device = (symbols.mlx_device_new_type)(unit as c_int, 0);
        let status = (symbols.mlx_get_default_stream)(&mut stream, device);
        (symbols.mlx_device_free)(device);
        status
    };
    checked(status).map(|()| stream)
}

/// Numbers, or the plan to compute them.
pub(crate) struct Array(RawArray);

// SAFETY: the object behind the handle is counted with atomic numbers, and a handle is used by one
// thread at a time. A plan that another thread carries out is an error of MLX, not of memory.
unsafe impl Send for Array {}

/// Numbers that have been computed: any thread may read them at any time.
pub(crate) struct Constant(Array);

// SAFETY: of a computed array, MLX changes nothing but the atomic count of its owners; its memory is
// given to another array only when this handle is the last owner, which it is not while it is lent.
unsafe impl Sync for Constant {}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.dtype(), self.shape())
    }
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::ops::Deref for Constant {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.0
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the handle is this array's own, and this is its end.
        unsafe { (symbols().mlx_array_free)(self.0) };
    }
}

impl Clone for Array {
    fn clone(&self) -> Array {
        let mut raw = RawArray(null_mut());
        // SAFETY: `raw` is empty, and becomes one more owner.
        let status = unsafe { (symbols().mlx_array_set)(&mut raw, self.0) };
        assert!(status == 0 && !raw.0.is_null(), "a handle is copied");
        Array(raw)
    }
}

/// What an operation leaves in the handle it is given.
fn made(f: impl FnOnce(&mut RawArray, RawStream) -> c_int) -> Result<Array, Fault> {
    made_on(stream()?, f)
}

/// The same on another stream of this thread.
fn made_on(
    stream: RawStream,
    f: impl FnOnce(&mut RawArray, RawStream) -> c_int,
) -> Result<Array, Fault> {
    let mut raw = RawArray(null_mut());
    let status = f(&mut raw, stream);
    let array = (!raw.0.is_null()).then_some(Array(raw));
    checked(status)?;
    array.ok_or_else(|| Fault("an operation gave nothing".to_owned()))
}

/// A list of arrays, for the calls that want one.
fn with_list<T>(arrays: &[&Array], f: impl FnOnce(RawVector) -> T) -> Result<T, Fault> {
    let symbols = symbols();
    // SAFETY: the list is new, holds owners of its own, and is freed once.
    unsafe {
        let list = (symbols.mlx_vector_array_new)();
        let mut status = 0;
        for array in arrays {
            status |= (symbols.mlx_vector_array_append_value)(list, array.0);
        }
        let result = (status == 0).then(|| f(list));
        (symbols.mlx_vector_array_free)(list);
        checked(status)?;
        result.ok_or_else(|| Fault("a list was not made".to_owned()))
    }
}

/// Sizes as MLX counts them: no axis has 2^31 numbers.
fn ints(sizes: &[usize]) -> Result<Vec<c_int>, Fault> {
    let int = |n: &usize| {
        c_int::try_from(*n).map_err(|_| Fault(format!("an axis of {n} numbers is too long")))
    };
    sizes.iter().map(int).collect()
}

/// Computes these arrays, and waits.
pub(crate) fn compute(arrays: &[&Array]) -> Result<(), Fault> {
    // SAFETY: the list is alive during the call.
    checked(with_list(arrays, |list| unsafe { (symbols().mlx_eval)(list) })?)
}

/// Has these arrays computed, and does not wait.
pub(crate) fn begin(arrays: &[&Array]) -> Result<(), Fault> {
    // SAFETY: as above.
    checked(with_list(arrays, |list| unsafe { (symbols().mlx_async_eval)(list) })?)
}

impl Array {
    /// A copy of `data`, row major.
    pub(crate) fn new(data: &[u8], shape: &[usize], dtype: Dtype) -> Result<Array, Fault> {
        let n = shape.iter().product::<usize>() * dtype.n_bytes();
        assert_eq!(data.len(), n, "as many bytes as {shape:?} of {dtype:?} has");
        let shape = ints(shape)?;
        let data = if data.is_empty() { null() } else { data.as_ptr().cast() };
        // SAFETY: `data` has as many bytes as the shape says, and is copied.
        let raw = unsafe {
            let n_axes = shape.len() as c_int;
            (symbols().mlx_array_new_data)(data, shape.as_ptr(), n_axes, dtype as c_int)
        };
        if raw.0.is_null() { Err(checked(1).expect_err("a fault")) } else { Ok(Array(raw)) }
    }

    /// One number, which every other array can be combined with.
    pub(crate) fn number(x: f32, dtype: Dtype) -> Result<Array, Fault> {
        // SAFETY: a number goes in and a handle comes out.
        let raw = unsafe { (symbols().mlx_array_new_float32)(x) };
        if raw.0.is_null() {
            Err(checked(1).expect_err("a fault"))
        } else {
            Array(raw).astype(dtype)
        }
    }

    pub(crate) fn dtype(&self) -> Dtype {
        // SAFETY: the handle is alive.
        let dtype = unsafe { (symbols().mlx_array_dtype)(self.0) };
        *Dtype::ALL.iter().find(|d| **d as c_int == dtype).expect("a type that we ask for")
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        // SAFETY: the handle is alive, and has as many sizes as axes.
        unsafe {
            let n = (symbols().mlx_array_ndim)(self.0);
            let sizes = (symbols().mlx_array_shape)(self.0);
            (0..n).map(|i| *sizes.add(i) as usize).collect()
        }
    }

    /// Size of an axis.
    pub(crate) fn dim(&self, axis: usize) -> usize {
        self.shape()[axis]
    }

    /// Computes it, and makes it readable for everybody, row major.
    pub(crate) fn constant(self) -> Result<Constant, Fault> {
        self.contiguous()?.row_major()
    }

    /// [`Array::constant`] of what is row major already: memory that is lent stays where it is.
    pub(crate) fn row_major(self) -> Result<Constant, Fault> {
        compute(&[&self])?;
        Ok(Constant(self))
    }

    /// Computes it, and copies its bytes, row major, into what `out` returns for their number.
    pub(crate) fn read(&self, out: impl FnOnce(&[u8])) -> Result<(), Fault> {
        let array = self.contiguous()?;
        compute(&[&array])?;
        // SAFETY: the array is computed, and its numbers lie one after the other from there on.
        unsafe {
            let n = (symbols().mlx_array_size)(array.0) * array.dtype().n_bytes();
            let data = (symbols().mlx_array_data_uint8)(array.0);
            out(if n == 0 || data.is_null() { &[] } else { std::slice::from_raw_parts(data, n) });
        }
        Ok(())
    }
}
