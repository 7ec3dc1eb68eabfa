//! The functions of mlx-c 0.7 that we call, each by its name. Nothing is called here.

use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

use super::{
    OptionalInt, RawArray, RawConfig, RawDevice, RawGroup, RawInfo, RawKernel, RawStream,
    RawString, RawStrings, RawVector,
};

pub(super) type Handler = unsafe extern "C" fn(*const c_char, *mut c_void);
pub(super) type Unary = unsafe extern "C" fn(*mut RawArray, RawArray, RawStream) -> c_int;
pub(super) type Binary =
    unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawStream) -> c_int;
pub(super) type Reduce =
    unsafe extern "C" fn(*mut RawArray, RawArray, c_int, bool, RawStream) -> c_int;

/// A table of functions, each found by its name.
macro_rules! symbols {
    ($($name:ident: $ty:ty;)*) => {
        #[allow(non_snake_case, reason = "the names of the C library")]
        pub(super) struct Symbols { $(pub(super) $name: $ty,)* }

        impl Symbols {
            pub(super) fn find(library: &Library) -> Result<Symbols, libloading::Error> {
                Ok(Symbols {
                    // SAFETY: the types are those of mlx-c 0.7's headers; `open` refuses other
                    // versions before anything is called.
                    $($name: *unsafe { library.get::<$ty>(stringify!($name))? },)*
                })
            }
        }
    };
}

symbols! {
    mlx_set_error_handler: unsafe extern "C" fn(Handler, *mut c_void, Option<unsafe extern "C" fn(*mut c_void)>);
    mlx_version: unsafe extern "C" fn(*mut RawString) -> c_int;
    mlx_string_new: unsafe extern "C" fn() -> RawString;
    mlx_string_data: unsafe extern "C" fn(RawString) -> *const c_char;
    mlx_string_free: unsafe extern "C" fn(RawString) -> c_int;
    mlx_device_new_type: unsafe extern "C" fn(c_int, c_int) -> RawDevice;
    mlx_device_free: unsafe extern "C" fn(RawDevice) -> c_int;
    mlx_device_is_available: unsafe extern "C" fn(*mut bool, RawDevice) -> c_int;
    mlx_device_info_new: unsafe extern "C" fn() -> RawInfo;
    mlx_device_info_get: unsafe extern "C" fn(*mut RawInfo, RawDevice) -> c_int;
    mlx_device_info_free: unsafe extern "C" fn(RawInfo) -> c_int;
    mlx_device_info_get_size: unsafe extern "C" fn(*mut usize, RawInfo, *const c_char) -> c_int;
    mlx_set_wired_limit: unsafe extern "C" fn(*mut usize, usize) -> c_int;
    mlx_set_default_device: unsafe extern "C" fn(RawDevice) -> c_int;
    mlx_get_default_stream: unsafe extern "C" fn(*mut RawStream, RawDevice) -> c_int;
    mlx_get_active_memory: unsafe extern "C" fn(*mut usize) -> c_int;
    mlx_get_peak_memory: unsafe extern "C" fn(*mut usize) -> c_int;
    mlx_get_cache_memory: unsafe extern "C" fn(*mut usize) -> c_int;
    mlx_set_cache_limit: unsafe extern "C" fn(*mut usize, usize) -> c_int;
    mlx_clear_cache: unsafe extern "C" fn() -> c_int;
    mlx_array_new_float32: unsafe extern "C" fn(f32) -> RawArray;
    mlx_array_new_data: unsafe extern "C" fn(*const c_void, *const c_int, c_int, c_int) -> RawArray;
    mlx_array_new_data_managed_payload: unsafe extern "C" fn(*mut c_void, *const c_int, c_int, c_int, *mut c_void, unsafe extern "C" fn(*mut c_void)) -> RawArray;
    mlx_array_set: unsafe extern "C" fn(*mut RawArray, RawArray) -> c_int;
    mlx_array_free: unsafe extern "C" fn(RawArray) -> c_int;
    mlx_array_ndim: unsafe extern "C" fn(RawArray) -> usize;
    mlx_array_shape: unsafe extern "C" fn(RawArray) -> *const c_int;
    mlx_array_size: unsafe extern "C" fn(RawArray) -> usize;
    mlx_array_dtype: unsafe extern "C" fn(RawArray) -> c_int;
    mlx_array_data_uint8: unsafe extern "C" fn(RawArray) -> *const u8;
    mlx_vector_array_new: unsafe extern "C" fn() -> RawVector;
    mlx_vector_array_append_value: unsafe extern "C" fn(RawVector, RawArray) -> c_int;
    mlx_vector_array_get: unsafe extern "C" fn(*mut RawArray, RawVector, usize) -> c_int;
    mlx_vector_array_free: unsafe extern "C" fn(RawVector) -> c_int;
    mlx_eval: unsafe extern "C" fn(RawVector) -> c_int;
    mlx_async_eval: unsafe extern "C" fn(RawVector) -> c_int;
    mlx_distributed_init: unsafe extern "C" fn(*mut RawGroup, bool, *const c_char) -> c_int;
    mlx_distributed_group_free: unsafe extern "C" fn(RawGroup) -> c_int;
    mlx_distributed_group_rank: unsafe extern "C" fn(RawGroup) -> c_int;
    mlx_distributed_group_size: unsafe extern "C" fn(RawGroup) -> c_int;
    mlx_distributed_send: unsafe extern "C" fn(*mut RawArray, RawArray, c_int, RawGroup, RawStream) -> c_int;
    mlx_distributed_recv: unsafe extern "C" fn(*mut RawArray, *const c_int, usize, c_int, c_int, RawGroup, RawStream) -> c_int;
    mlx_distributed_all_gather: unsafe extern "C" fn(*mut RawArray, RawArray, RawGroup, RawStream) -> c_int;
    mlx_metal_is_available: unsafe extern "C" fn(*mut bool) -> c_int;
    mlx_vector_string_new: unsafe extern "C" fn() -> RawStrings;
    mlx_vector_string_append_value: unsafe extern "C" fn(RawStrings, *const c_char) -> c_int;
    mlx_vector_string_free: unsafe extern "C" fn(RawStrings) -> c_int;
    mlx_fast_metal_kernel_new: unsafe extern "C" fn(*const c_char, RawStrings, RawStrings, *const c_char, *const c_char, bool, bool) -> RawKernel;
    mlx_fast_metal_kernel_free: unsafe extern "C" fn(RawKernel);
    mlx_fast_metal_kernel_apply: unsafe extern "C" fn(*mut RawVector, RawKernel, RawVector, RawConfig, RawStream) -> c_int;
    mlx_fast_metal_kernel_config_new: unsafe extern "C" fn() -> RawConfig;
    mlx_fast_metal_kernel_config_free: unsafe extern "C" fn(RawConfig);
    mlx_fast_metal_kernel_config_add_output_arg: unsafe extern "C" fn(RawConfig, *const c_int, usize, c_int) -> c_int;
    mlx_fast_metal_kernel_config_set_grid: unsafe extern "C" fn(RawConfig, c_int, c_int, c_int) -> c_int;
    mlx_fast_metal_kernel_config_set_thread_group: unsafe extern "C" fn(RawConfig, c_int, c_int, c_int) -> c_int;
    mlx_fast_metal_kernel_config_add_template_arg_int: unsafe extern "C" fn(RawConfig, *const c_char, c_int) -> c_int;
    mlx_fast_metal_kernel_config_add_template_arg_bool: unsafe extern "C" fn(RawConfig, *const c_char, bool) -> c_int;
    mlx_abs: Unary;
    mlx_negative: Unary;
    mlx_exp: Unary;
    mlx_erf: Unary;
    mlx_tanh: Unary;
    mlx_sigmoid: Unary;
    mlx_sqrt: Unary;
    mlx_rsqrt: Unary;
    mlx_square: Unary;
    mlx_add: Binary;
    mlx_subtract: Binary;
    mlx_multiply: Binary;
    mlx_divide: Binary;
    mlx_maximum: Binary;
    mlx_minimum: Binary;
    mlx_logaddexp: Binary;
    mlx_less: Binary;
    mlx_right_shift: Binary;
    mlx_matmul: Binary;
    mlx_sum_axis: Reduce;
    mlx_max_axis: Reduce;
    mlx_softmax_axis: Reduce;
    mlx_round: unsafe extern "C" fn(*mut RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_where: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, RawStream) -> c_int;
    mlx_astype: unsafe extern "C" fn(*mut RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_view: unsafe extern "C" fn(*mut RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_contiguous: unsafe extern "C" fn(*mut RawArray, RawArray, bool, RawStream) -> c_int;
    mlx_reshape: unsafe extern "C" fn(*mut RawArray, RawArray, *const c_int, usize, RawStream) -> c_int;
    mlx_broadcast_to: unsafe extern "C" fn(*mut RawArray, RawArray, *const c_int, usize, RawStream) -> c_int;
    mlx_transpose_axes: unsafe extern "C" fn(*mut RawArray, RawArray, *const c_int, usize, RawStream) -> c_int;
    mlx_zeros: unsafe extern "C" fn(*mut RawArray, *const c_int, usize, c_int, RawStream) -> c_int;
    mlx_slice: unsafe extern "C" fn(*mut RawArray, RawArray, *const c_int, usize, *const c_int, usize, *const c_int, usize, RawStream) -> c_int;
    mlx_slice_update: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, *const c_int, usize, *const c_int, usize, *const c_int, usize, RawStream) -> c_int;
    mlx_concatenate_axis: unsafe extern "C" fn(*mut RawArray, RawVector, c_int, RawStream) -> c_int;
    mlx_take_axis: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_take_along_axis: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_put_along_axis: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_scatter_single: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_argsort_axis: unsafe extern "C" fn(*mut RawArray, RawArray, c_int, RawStream) -> c_int;
    mlx_gather_mm: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, RawArray, bool, RawStream) -> c_int;
    mlx_dequantize: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, OptionalInt, OptionalInt, *const c_char, RawArray, OptionalInt, RawStream) -> c_int;
    mlx_quantized_matmul: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, RawArray, bool, OptionalInt, OptionalInt, *const c_char, RawStream) -> c_int;
    mlx_gather_qmm: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, RawArray, RawArray, RawArray, bool, OptionalInt, OptionalInt, *const c_char, bool, RawStream) -> c_int;
    mlx_fast_rms_norm: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, f32, RawStream) -> c_int;
    mlx_fast_layer_norm: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, f32, RawStream) -> c_int;
    mlx_fast_scaled_dot_product_attention: unsafe extern "C" fn(*mut RawArray, RawArray, RawArray, RawArray, f32, *const c_char, RawArray, RawArray, bool, RawStream) -> c_int;
}
