//! Kernels of our own, in Metal's language: compiled by MLX where it finds Metal, and part of its plans
//! like any other operation. What they compute is none of this file's business.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use super::symbols::Symbols;
use super::{
    Array, Dtype, Fault, RawArray, RawConfig, RawKernel, RawStrings, RawVector, checked, ints,
    made, stream, symbols, with_list,
};

/// Whether kernels can be used at all: MLX has Metal, and it is what computes.
pub(crate) fn are_possible() -> bool {
    let mut there = false;
    // SAFETY: the function writes one flag.
    let status = unsafe { (symbols().mlx_metal_is_available)(&mut there) };
    status == 0 && there && super::about().2 == super::Unit::Gpu
}

/// A kernel: inputs and outputs by name, and the body of a function that reads and writes them.
pub(crate) struct Kernel(RawKernel);

// SAFETY: the object behind the handle is a text and a few names, which nobody changes after it was made;
// each use of it makes a plan of the thread's own.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a kernel")
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is this kernel's own, and this is its end.
        unsafe { (symbols().mlx_fast_metal_kernel_free)(self.0) };
    }
}

/// A number that is known when a kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known {
    Int(usize),
    Bool(bool),
}

/// What a kernel is to do once.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// In the order of the names.
    pub(crate) inputs: &'a [&'a Array],
    /// Shapes of what is written, all of f32.
    pub(crate) outputs: &'a [&'a [usize]],
    pub(crate) known: &'a [(&'a str, Known)],
    /// Threads in all, along each of three axes.
    pub(crate) threads: [usize; 3],
    /// How many of them know of each other.
    pub(crate) group: [usize; 3],
}

fn c_string(text: &str) -> Result<CString, Fault> {
    CString::new(text).map_err(|_| Fault("a name of a kernel has a zero in it".to_owned()))
}

/// Names as MLX wants them, for as long as `f` runs.
fn with_names<T>(names: &[&str], f: impl FnOnce(RawStrings) -> T) -> Result<T, Fault> {
    let names = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>, Fault>>()?;
    let symbols = symbols();
    // SAFETY: the list is new, copies the names, and is freed once.
    unsafe {
        let list = (symbols.mlx_vector_string_new)();
        let mut status = 0;
        for name in &names {
            status |= (symbols.mlx_vector_string_append_value)(list, name.as_ptr());
        }
        let result = (status == 0).then(|| f(list));
        (symbols.mlx_vector_string_free)(list);
        checked(status)?;
        result.ok_or_else(|| Fault("a list of names was not made".to_owned()))
    }
}

impl Kernel {
    /// The kernel called `name`. Nothing is compiled yet: what is wrong with `body` is reported when what
    /// it makes is computed.
    pub(crate) fn new(
        name: &str,
        (inputs, outputs): (&[&str], &[&str]),
        body: &str,
    ) -> Result<Kernel, Fault> {
        let (name, body, header) = (c_string(name)?, c_string(body)?, c"");
        let raw = with_names(inputs, |inputs| {
            with_names(outputs, |outputs| {
                let (name, body, header) = (name.as_ptr(), body.as_ptr(), header.as_ptr());
                // Inputs come row major, and nothing that is written is counted by several threads.
                // SAFETY: all of this is alive during the call and copied.
                unsafe {
                    (symbols().mlx_fast_metal_kernel_new)(
                        name, inputs, outputs, body, header, true, false,
                    )
                }
            })
        })??;
        if raw.0.is_null() { Err(checked(1).expect_err("a fault")) } else { Ok(Kernel(raw)) }
    }

    /// What it writes, in the order of the outputs' names.
    pub(crate) fn launch(&self, launch: &Launch<'_>) -> Result<Vec<Array>, Fault> {
        let config = Config::of(launch)?;
        let stream = stream()?;
        let mut raw = RawVector(null_mut());
        let f = symbols().mlx_fast_metal_kernel_apply;
        let status = with_list(launch.inputs, |inputs| {
            // SAFETY: the kernel, the list and the config are alive during the call; `raw` is empty and
            // becomes a list.
            unsafe { f(&mut raw, self.0, inputs, config.0, stream) }
        })?;
        let outputs = Outputs(raw);
        checked(status)?;
        (0..launch.outputs.len()).map(|i| outputs.get(i)).collect()
    }
}

/// A list that MLX has made.
struct Outputs(RawVector);

impl Outputs {
    fn get(&self, i: usize) -> Result<Array, Fault> {
        let f = symbols().mlx_vector_array_get;
        // SAFETY: the list is alive; an index that it does not have is an error.
        made(|out: &mut RawArray, _| unsafe { f(out, self.0, i) })
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        if !self.0.0.is_null() {
            // SAFETY: the list is this one's own, and this is its end.
            unsafe { (symbols().mlx_vector_array_free)(self.0) };
        }
    }
}

/// A [`Launch`] as MLX wants it.
struct Config(RawConfig);

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's own, and this is its end.
        unsafe { (symbols().mlx_fast_metal_kernel_config_free)(self.0) };
    }
}

impl Config {
    fn of(launch: &Launch<'_>) -> Result<Config, Fault> {
        let symbols = symbols();
        // SAFETY: a new handle comes out.
        let config = Config(unsafe { (symbols.mlx_fast_metal_kernel_config_new)() });
        if config.0.0.is_null() {
            return Err(checked(1).expect_err("a fault"));
        }
        for shape in launch.outputs {
            config.output(symbols, shape)?;
        }
        for (name, known) in launch.known {
            config.know(symbols, name, *known)?;
        }
        let (threads, group) = (ints(&launch.threads)?, ints(&launch.group)?);
        // SAFETY: numbers go into a handle that is alive.
        let status = unsafe {
            let grid = symbols.mlx_fast_metal_kernel_config_set_grid;
            let status = grid(config.0, threads[0], threads[1], threads[2]);
            let set_group = symbols.mlx_fast_metal_kernel_config_set_thread_group;
            status | set_group(config.0, group[0], group[1], group[2])
        };
        checked(status)?;
        Ok(config)
    }

    fn output(&self, symbols: &Symbols, shape: &[usize]) -> Result<(), Fault> {
        let (shape, f) = (ints(shape)?, symbols.mlx_fast_metal_kernel_config_add_output_arg);
        // SAFETY: as many sizes are readable.
        checked(unsafe { f(self.0, shape.as_ptr(), shape.len(), Dtype::F32 as c_int) })
    }

    fn know(&self, symbols: &Symbols, name: &str, known: Known) -> Result<(), Fault> {
        let name = c_string(name)?;
        let (int, flag) = (
            symbols.mlx_fast_metal_kernel_config_add_template_arg_int,
            symbols.mlx_fast_metal_kernel_config_add_template_arg_bool,
        );
        let number = match known {
            Known::Int(n) => ints(&[n])?[0],
            Known::Bool(is) => c_int::from(is),
        };
        // SAFETY: the name is alive during the call and copied.
        checked(unsafe {
            match known {
                Known::Int(_) => int(self.0, name.as_ptr(), number),
                Known::Bool(is) => flag(self.0, name.as_ptr(), is),
            }
        })
    }
}
