//! What MLX computes, as methods of [`Array`]. Every one of them only adds to a plan; what is wrong with
//! shapes is reported at once, what goes wrong in computing when the result is asked for.

use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::ptr::null_mut;

use super::symbols::{Binary, Reduce, Unary};
use super::{Array, Dtype, Fault, OptionalInt, RawArray, ints, made, symbols, with_list};

/// No array, where one may be left out.
const NONE: RawArray = RawArray(null_mut());
/// No number, likewise.
const NO_NUMBER: OptionalInt = OptionalInt { value: 0, has_value: false };

fn raw(array: Option<&Array>) -> RawArray {
    array.map_or(NONE, |array| array.0)
}

fn some(value: usize) -> OptionalInt {
    OptionalInt { value: value as c_int, has_value: true }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(&self) -> Result<Array, Fault> {
            self.unary(symbols().$symbol)
        }
    )*};
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(&self, other: &Array) -> Result<Array, Fault> {
            self.binary(symbols().$symbol, other)
        }
    )*};
}

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(&self, axis: usize) -> Result<Array, Fault> {
            self.reduce(symbols().$symbol, axis, true)
        }
    )*};
}

/// A matrix, or a stack of them, in groups of columns that share a scale.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    pub(crate) data: &'a Array,
    pub(crate) scales: &'a Array,
    /// Of affine groups.
    pub(crate) biases: Option<&'a Array>,
    /// Columns of a group.
    pub(crate) group: usize,
    pub(crate) bits: usize,
    /// What MLX calls the format.
    pub(crate) mode: &'static CStr,
}

/// Queries, keys and values, each `[1, heads, rows, columns]`.
pub(crate) struct Attended<'a> {
    pub(crate) queries: &'a Array,
    pub(crate) keys: &'a Array,
    pub(crate) values: &'a Array,
    /// A logit for each query head.
    pub(crate) sinks: Option<&'a Array>,
    pub(crate) scale: f32,
}

/// What a query sees.
#[derive(Clone, Copy)]
pub(crate) enum Seen<'a> {
    Everything,
    /// The last query sees all keys, each before it one less.
    Causal,
    /// Where this says so.
    Where(&'a Array),
}

impl Array {
    fn unary(&self, f: Unary) -> Result<Array, Fault> {
        // SAFETY: handles are alive during the call, here and below; what comes out is a new one.
        made(|out, s| unsafe { f(out, self.0, s) })
    }

    fn binary(&self, f: Binary, other: &Array) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, other.0, s) })
    }

    fn reduce(&self, f: Reduce, axis: usize, flag: bool) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, axis as c_int, flag, s) })
    }

    unary! {
        abs = mlx_abs;
        negative = mlx_negative;
        exp = mlx_exp;
        erf = mlx_erf;
        tanh = mlx_tanh;
        sigmoid = mlx_sigmoid;
        sqrt = mlx_sqrt;
        rsqrt = mlx_rsqrt;
        square = mlx_square;
    }

    binary! {
        add = mlx_add;
        subtract = mlx_subtract;
        multiply = mlx_multiply;
        divide = mlx_divide;
        maximum = mlx_maximum;
        minimum = mlx_minimum;
        /// `ln(e^a + e^b)`.
        log_add_exp = mlx_logaddexp;
        less = mlx_less;
        right_shift = mlx_right_shift;
        matmul = mlx_matmul;
    }

    reduce! {
        /// The axis stays, with one number.
        sum = mlx_sum_axis;
        /// The axis stays, with one number.
        max = mlx_max_axis;
        /// In f32 whatever the numbers are.
        softmax = mlx_softmax_axis;
    }

    /// Times a number.
    pub(crate) fn times(&self, by: f32) -> Result<Array, Fault> {
        self.multiply(&Array::number(by, self.dtype())?)
    }

    /// Plus a number.
    pub(crate) fn plus(&self, by: f32) -> Result<Array, Fault> {
        self.add(&Array::number(by, self.dtype())?)
    }

    /// To the nearest whole number, ties to even.
    pub(crate) fn round(&self) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { (symbols().mlx_round)(out, self.0, 0, s) })
    }

    /// `a` where this says so, `b` elsewhere.
    pub(crate) fn choose(&self, a: &Array, b: &Array) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { (symbols().mlx_where)(out, self.0, a.0, b.0, s) })
    }

    pub(crate) fn astype(&self, dtype: Dtype) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { (symbols().mlx_astype)(out, self.0, dtype as c_int, s) })
    }

    /// The same bits as numbers of another type.
    pub(crate) fn view(&self, dtype: Dtype) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { (symbols().mlx_view)(out, self.0, dtype as c_int, s) })
    }

    /// Row major.
    pub(crate) fn contiguous(&self) -> Result<Array, Fault> {
        // SAFETY: as above.
        made(|out, s| unsafe { (symbols().mlx_contiguous)(out, self.0, false, s) })
    }

    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Array, Fault> {
        let (shape, f) = (ints(shape)?, symbols().mlx_reshape);
        // SAFETY: as above; as many sizes are readable.
        made(|out, s| unsafe { f(out, self.0, shape.as_ptr(), shape.len(), s) })
    }

    pub(crate) fn broadcast(&self, shape: &[usize]) -> Result<Array, Fault> {
        let (shape, f) = (ints(shape)?, symbols().mlx_broadcast_to);
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, shape.as_ptr(), shape.len(), s) })
    }

    /// Axis `i` of the result is axis `axes[i]`.
    pub(crate) fn transpose(&self, axes: &[usize]) -> Result<Array, Fault> {
        let (axes, f) = (ints(axes)?, symbols().mlx_transpose_axes);
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, axes.as_ptr(), axes.len(), s) })
    }

    pub(crate) fn zeros(shape: &[usize], dtype: Dtype) -> Result<Array, Fault> {
        let shape = ints(shape)?;
        // SAFETY: as above.
        made(|out, s| unsafe {
            (symbols().mlx_zeros)(out, shape.as_ptr(), shape.len(), dtype as c_int, s)
        })
    }

    /// A range of an axis.
    pub(crate) fn slice(&self, axis: usize, range: Range<usize>) -> Result<Array, Fault> {
        let mut stop = self.shape();
        if range == (0..stop[axis]) {
            return Ok(self.clone());
        }
        let mut start = vec![0; stop.len()];
        (start[axis], stop[axis]) = (range.start, range.end);
        let (start, stop, steps) = (ints(&start)?, ints(&stop)?, vec![1; start.len()]);
        let (n, f) = (start.len(), symbols().mlx_slice);
        // SAFETY: as above.
        made(|out, s| unsafe {
            f(out, self.0, start.as_ptr(), n, stop.as_ptr(), n, steps.as_ptr(), n, s)
        })
    }

    /// This, with `rows` from row `first` on.
    pub(crate) fn with_rows(&self, first: usize, rows: &Array) -> Result<Array, Fault> {
        let mut stop = self.shape();
        let mut start = vec![0; stop.len()];
        (start[0], stop[0]) = (first, first + rows.dim(0));
        let (start, stop, steps) = (ints(&start)?, ints(&stop)?, vec![1; start.len()]);
        let (n, f) = (start.len(), symbols().mlx_slice_update);
        // SAFETY: as above.
        made(|out, s| unsafe {
            f(out, self.0, rows.0, start.as_ptr(), n, stop.as_ptr(), n, steps.as_ptr(), n, s)
        })
    }

    /// This, with row `i` of `rows` as row `places[i]`. No place is named twice.
    pub(crate) fn with_rows_at(&self, places: &Array, rows: &Array) -> Result<Array, Fault> {
        // MLX wants updates with the axis that is written to behind the places' own, one long.
        let mut shape = rows.shape();
        shape.insert(1, 1);
        let (rows, f) = (rows.reshape(&shape)?, symbols().mlx_scatter_single);
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, places.0, rows.0, 0, s) })
    }

    /// The entries of an axis that `places` names, in its order.
    pub(crate) fn take(&self, places: &Array, axis: usize) -> Result<Array, Fault> {
        let f = symbols().mlx_take_axis;
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, places.0, axis as c_int, s) })
    }

    /// Along an axis, for every row by itself, the numbers that `places` names.
    pub(crate) fn take_along(&self, places: &Array, axis: usize) -> Result<Array, Fault> {
        let f = symbols().mlx_take_along_axis;
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, places.0, axis as c_int, s) })
    }

    /// This, with `values` where `places` says, along an axis and for every row by itself.
    pub(crate) fn put_along(
        &self,
        places: &Array,
        values: &Array,
        axis: usize,
    ) -> Result<Array, Fault> {
        let f = symbols().mlx_put_along_axis;
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, places.0, values.0, axis as c_int, s) })
    }

    /// Where the smallest number of an axis is, then the next.
    pub(crate) fn argsort(&self, axis: usize) -> Result<Array, Fault> {
        let f = symbols().mlx_argsort_axis;
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, axis as c_int, s) })
    }

    /// Row `r` times each of the matrices `[n, inner, outer]` that row `r` of `which` names: `[rows, 1,
    /// inner]` or `[rows, k, inner]` in, `[rows, k, outer]` out.
    pub(crate) fn gather_matmul(&self, stack: &Array, which: &Array) -> Result<Array, Fault> {
        let f = symbols().mlx_gather_mm;
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, stack.0, NONE, which.0, false, s) })
    }

    /// `self . w^T`, or `self . w` if not transposed.
    pub(crate) fn packed_matmul(&self, w: &Packed<'_>, transposed: bool) -> Result<Array, Fault> {
        let Packed { data, scales, biases, group, bits, mode } = *w;
        let (f, biases) = (symbols().mlx_quantized_matmul, raw(biases));
        let (group, bits, mode) = (some(group), some(bits), mode.as_ptr());
        // SAFETY: as above; `mode` is a C string.
        made(|out, s| unsafe {
            f(out, self.0, data.0, scales.0, biases, transposed, group, bits, mode, s)
        })
    }

    /// [`Array::gather_matmul`] with a packed stack `[n, outer, inner]`.
    pub(crate) fn gather_packed(&self, w: &Packed<'_>, which: &Array) -> Result<Array, Fault> {
        let Packed { data, scales, biases, group, bits, mode } = *w;
        let (f, biases) = (symbols().mlx_gather_qmm, raw(biases));
        let (group, bits, mode) = (some(group), some(bits), mode.as_ptr());
        // SAFETY: as above.
        made(|out, s| unsafe {
            f(
                out, self.0, data.0, scales.0, biases, NONE, which.0, true, group, bits, mode,
                false, s,
            )
        })
    }

    /// Over the last axis: `x / sqrt(mean(x^2) + eps) * gain`.
    pub(crate) fn rms_norm(&self, gain: Option<&Array>, eps: f32) -> Result<Array, Fault> {
        let (f, gain) = (symbols().mlx_fast_rms_norm, raw(gain));
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, gain, eps, s) })
    }

    /// Over the last axis, from the mean.
    pub(crate) fn layer_norm(
        &self,
        gain: Option<&Array>,
        bias: Option<&Array>,
        eps: f32,
    ) -> Result<Array, Fault> {
        let (f, gain, bias) = (symbols().mlx_fast_layer_norm, raw(gain), raw(bias));
        // SAFETY: as above.
        made(|out, s| unsafe { f(out, self.0, gain, bias, eps, s) })
    }
}

impl Packed<'_> {
    /// The numbers themselves.
    pub(crate) fn unpacked(&self, dtype: Dtype) -> Result<Array, Fault> {
        let Packed { data, scales, biases, group, bits, mode } = *self;
        let (f, biases) = (symbols().mlx_dequantize, raw(biases));
        let (group, bits, mode) = (some(group), some(bits), mode.as_ptr());
        // MLX refuses a type for affine groups, whose numbers are of their scales' type.
        let wanted = if biases.0.is_null() { some(dtype as usize) } else { NO_NUMBER };
        // SAFETY: as for all operations.
        made(|out, s| unsafe {
            f(out, data.0, scales.0, biases, group, bits, mode, NONE, wanted, s)
        })?
        .astype(dtype)
    }
}

impl Attended<'_> {
    /// The weighted means of values, `[1, heads, rows, columns]`.
    pub(crate) fn attend(&self, seen: Seen<'_>) -> Result<Array, Fault> {
        let Attended { queries, keys, values, sinks, scale } = *self;
        let (mode, mask) = match seen {
            Seen::Everything => (c"", NONE),
            Seen::Causal => (c"causal", NONE),
            Seen::Where(mask) => (c"array", mask.0),
        };
        let (f, sinks) = (symbols().mlx_fast_scaled_dot_product_attention, raw(sinks));
        // SAFETY: as for all operations.
        made(|out, s| unsafe {
            f(out, queries.0, keys.0, values.0, scale, mode.as_ptr(), mask, sinks, false, s)
        })
    }
}

/// Arrays one after the other along an axis.
pub(crate) fn concatenate(arrays: &[&Array], axis: usize) -> Result<Array, Fault> {
    if let [array] = arrays {
        return Ok((*array).clone());
    }
    let f = symbols().mlx_concatenate_axis;
    // SAFETY: as for all operations; the list is alive during the call.
    with_list(arrays, |list| made(|out, s| unsafe { f(out, list, axis as c_int, s) }))?
}
