//! Arrays in memory that is not MLX's own: weights where a mapped file has them, which a GPU that shares
//! the memory of its machine reads in place.
//!
//! MLX takes such memory in whole pages. A tensor that begins within a page is lent with all pages that
//! it lies in, and the array is a view of its part; tensors may lie in one page. Where MLX cannot take
//! memory (on a processor it never does) it copies, and lets go of it at once.

use std::ffi::c_void;

use super::{Array, Dtype, Fault, checked, ints, kernel, symbols};

/// Bytes of a page, where memory is lent at all: that of every Mac with a GPU of its own kind.
const PAGE: usize = 16384;
/// What takes less is copied.
const WORTHWHILE: usize = 1 << 20;

/// All pages that some bytes lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pages {
    /// Bytes before the first one.
    skip: usize,
    /// Bytes of all pages.
    len: usize,
}

impl Pages {
    fn of(address: usize, len: usize) -> Pages {
        let skip = address % PAGE;
        Pages { skip, len: (skip + len).next_multiple_of(PAGE) }
    }
}

/// The bytes of `owner` as an array, row major: in place where that is possible, else a copy. What is in
/// place is kept until MLX needs it no more.
pub(crate) fn lend<T>(owner: T, shape: &[usize], dtype: Dtype) -> Result<Array, Fault>
where
    T: AsRef<[u8]> + Send + 'static,
{
    let bytes = owner.as_ref();
    let (n, address) = (bytes.len(), bytes.as_ptr());
    let Pages { skip, len } = Pages::of(address as usize, n);
    let fits = skip.is_multiple_of(dtype.n_bytes()) && i32::try_from(len).is_ok();
    if n < WORTHWHILE || !fits || !kernel::are_possible() {
        return Array::new(bytes, shape, dtype);
    }
    // SAFETY: memory is mapped page by page, so whoever may read a byte may read its page, as long as the
    // byte is there; that of another owner in it is not looked at.
    let whole = unsafe { over(owner, address.wrapping_sub(skip), len) }?;
    part(&whole, skip, (n, shape, dtype))
}

/// `n` bytes of an array of bytes, from `first` on.
fn part(
    whole: &Array,
    first: usize,
    (n, shape, dtype): (usize, &[usize], Dtype),
) -> Result<Array, Fault> {
    whole.slice(0, first..first + n)?.view(dtype)?.reshape(shape)
}

/// `len` bytes from `first` on, which are read until `owner` is dropped.
///
/// # Safety
/// They may be read as long as `owner` lives.
unsafe fn over<T: Send + 'static>(owner: T, first: *const u8, len: usize) -> Result<Array, Fault> {
    let (shape, f) = (ints(&[len])?, symbols().mlx_array_new_data_managed_payload);
    // An owner that MLX fails to take over stays for ever, which is no error of memory.
    let payload = Box::into_raw(Box::new(owner)).cast::<c_void>();
    let data = first.cast_mut().cast::<c_void>();
    // SAFETY: this function's contract; MLX never writes to an array that is an input. The payload goes
    // to its own kind of `release`, once.
    let raw = unsafe { f(data, shape.as_ptr(), 1, Dtype::U8 as i32, payload, release::<T>) };
    if raw.0.is_null() { Err(checked(1).expect_err("a fault")) } else { Ok(Array(raw)) }
}

/// MLX calls it when it needs an array's memory no more, on any thread.
///
/// # Safety
/// `payload` is a box of `T` that nobody else has.
unsafe extern "C" fn release<T>(payload: *mut c_void) {
    // SAFETY: this function's contract.
    drop(unsafe { Box::from_raw(payload.cast::<T>()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_all_of_it() {
        let of = |address, len| {
            let Pages { skip, len } = Pages::of(address, len);
            (skip, len)
        };
        assert_eq!(of(0, 1), (0, PAGE));
        assert_eq!(of(3 * PAGE, PAGE), (0, PAGE));
        assert_eq!(of(3 * PAGE + 8, PAGE), (8, 2 * PAGE));
        assert_eq!(of(PAGE - 4, 4), (PAGE - 4, PAGE));
        assert_eq!(of(PAGE - 4, 5), (PAGE - 4, 2 * PAGE));
    }

    /// On a processor MLX copies what it is lent. Lending itself cannot be tried there.
    #[cfg(feature = "installed-mlx")]
    #[test]
    fn what_is_lent_is_given_back_and_reads_as_it_is() {
        use std::sync::Arc;

        let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
        super::super::open(Some(library.as_ref())).expect("the library that HEARTH_MLX names");
        let owner: Arc<Vec<u8>> = Arc::new((0..64u8).collect());
        let (first, len) = (owner.as_ptr(), owner.len());
        // SAFETY: a vector that is shared keeps its bytes.
        let whole = unsafe { over(Arc::clone(&owner), first, len) }.unwrap();
        let array = part(&whole, 8, (24, &[2, 3], Dtype::U32)).unwrap();
        assert_eq!(array.shape(), [2, 3]);
        array.read(|bytes| assert_eq!(bytes, &owner[8..32])).unwrap();
        drop((array, whole));
        assert_eq!(Arc::strong_count(&owner), 1, "it was given back");
        let copied = lend(owner.to_vec(), &[16], Dtype::F32).unwrap();
        copied.read(|bytes| assert_eq!(bytes, &owner[..])).unwrap();
    }
}
