//! What MLX holds, may hold, and gives back: for the whole process, as MLX counts it.

use std::ffi::c_int;

use super::{Fault, Unit, checked, symbols};

/// A number of bytes from a function that reports one.
fn bytes_of(f: unsafe extern "C" fn(*mut usize) -> c_int) -> usize {
    let mut n = 0;
    // SAFETY: the functions passed here write one number.
    let status = unsafe { f(&mut n) };
    if status == 0 { n } else { 0 }
}

/// Bytes that MLX holds, in arrays.
pub(crate) fn active() -> usize {
    bytes_of(symbols().mlx_get_active_memory)
}

/// The most bytes that it ever held in arrays.
pub(crate) fn peak() -> usize {
    bytes_of(symbols().mlx_get_peak_memory)
}

/// Bytes that it keeps for arrays to come.
pub(crate) fn cached() -> usize {
    bytes_of(symbols().mlx_get_cache_memory)
}

/// Bytes that the system would have a GPU use at most. `None`: the device has no such number.
pub(crate) fn recommended(unit: Unit) -> Option<usize> {
    let (mut n, symbols) = (0, symbols());
    // SAFETY: the device and what is known of it are made, asked and freed once, in that order; the
    // key is a C string.
    let status = unsafe {
        let device = (symbols.mlx_device_new_type)(unit as c_int, 0);
        let mut info = (symbols.mlx_device_info_new)();
        let mut status = (symbols.mlx_device_info_get)(&mut info, device);
        if status == 0 {
            let key = c"max_recommended_working_set_size";
            status = (symbols.mlx_device_info_get_size)(&mut n, info, key.as_ptr());
        }
        (symbols.mlx_device_info_free)(info);
        (symbols.mlx_device_free)(device);
        status
    };
    (status == 0 && n > 0).then_some(n)
}

/// Bounds what it keeps for arrays to come.
pub(crate) fn limit_cache(bytes: usize) -> Result<(), Fault> {
    let mut before = 0;
    // SAFETY: a number goes in and a number comes out, here and below.
    checked(unsafe { (symbols().mlx_set_cache_limit)(&mut before, bytes) })
}

/// How much of what it holds is never moved out of memory. More than [`recommended`] is an error.
pub(crate) fn wire(bytes: usize) -> Result<(), Fault> {
    let mut before = 0;
    // SAFETY: as above.
    checked(unsafe { (symbols().mlx_set_wired_limit)(&mut before, bytes) })
}

/// Gives back what it keeps for arrays to come.
pub(crate) fn clear_cache() -> Result<(), Fault> {
    // SAFETY: no array's memory is in that cache.
    checked(unsafe { (symbols().mlx_clear_cache)() })
}
