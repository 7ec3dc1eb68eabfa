//! Keys and values as bytes: the definition of what [`KvFormat`] says, for one position and head.
//!
//! f16 are little endian. Of whole numbers the codes come first, then a bf16 for every group.

use half::{bf16, f16};

use crate::{KEY_GROUP, KvFormat, QUERY_LENGTH, VALUE_GROUP, WHOLE_CODE, WHOLE_LENGTH};

/// Below this a group counts as zeros.
const SMALLEST: f32 = 1e-35;
/// Likewise a key or value of 16-bit codes, whose squares are added.
const SMALLEST_WHOLE: f32 = 1e-15;

/// Makes `key` the base of its block: `out` is [`KvFormat::base_bytes`] long.
pub fn store_base(format: KvFormat, key: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), format.base_bytes(key.len()));
    for (out, x) in out.as_chunks_mut().0.iter_mut().zip(key) {
        *out = bf16::from_f32(*x).to_le_bytes();
    }
}

/// Stores a key, given the base of its block, in `out`, which is [`KvFormat::key_bytes`] long.
pub fn store_key(format: KvFormat, base: &[u8], key: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), format.key_bytes(key.len()));
    match format {
        KvFormat::Int16 => store_whole(key, out),
        KvFormat::F16 => store_halfs(key, out),
        KvFormat::Int8 => {
            let rest: Vec<f32> = key.iter().zip(numbers(base)).map(|(x, base)| x - base).collect();
            store_codes(&rest, KEY_GROUP, out);
        }
    }
}

/// Stores a value in `out`, which is [`KvFormat::value_bytes`] long.
pub fn store_value(format: KvFormat, value: &[f32], out: &mut [u8]) {
    assert_eq!(out.len(), format.value_bytes(value.len()));
    match format {
        KvFormat::Int16 => store_whole(value, out),
        KvFormat::F16 => store_halfs(value, out),
        KvFormat::Int8 => store_codes(value, VALUE_GROUP, out),
    }
}

/// Reads what [`store_key`] left.
pub fn read_key(format: KvFormat, base: &[u8], bytes: &[u8], out: &mut [f32]) {
    assert_eq!(bytes.len(), format.key_bytes(out.len()));
    match format {
        KvFormat::Int16 => read_whole(bytes, out),
        KvFormat::F16 => read_halfs(bytes, out),
        KvFormat::Int8 => {
            read_codes(bytes, KEY_GROUP, out, |column, code, scale| {
                code.mul_add(scale, number(&base[2 * column..]))
            });
        }
    }
}

/// Reads what [`store_value`] left.
pub fn read_value(format: KvFormat, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(bytes.len(), format.value_bytes(out.len()));
    match format {
        KvFormat::Int16 => read_whole(bytes, out),
        KvFormat::F16 => read_halfs(bytes, out),
        KvFormat::Int8 => read_codes(bytes, VALUE_GROUP, out, |_, code, scale| code * scale),
    }
}

/// What becomes of a query of one head before it meets keys of a format.
pub fn round_query(format: KvFormat, q: &[f32]) -> Vec<f32> {
    let length = whole_length(q);
    match format {
        KvFormat::F16 | KvFormat::Int8 => q.to_vec(),
        KvFormat::Int16 if length < SMALLEST_WHOLE => vec![0.0; q.len()],
        KvFormat::Int16 => {
            let round = |x: &f32| (x * (QUERY_LENGTH / length)).round_ties_even();
            q.iter().map(|x| round(x) * (length / QUERY_LENGTH)).collect()
        }
    }
}

fn store_whole(x: &[f32], out: &mut [u8]) {
    let (codes, out) = out.split_at_mut(2 * x.len());
    let scale = whole_scale(x);
    for (code, x) in codes.as_chunks_mut().0.iter_mut().zip(x) {
        // Which code a scale of zero or of NaN is multiplied with makes no difference.
        *code = ((x * (1.0 / scale.to_f32())).round_ties_even() as i16).to_le_bytes();
    }
    out.copy_from_slice(&scale.to_le_bytes());
}

fn read_whole(bytes: &[u8], out: &mut [f32]) {
    let (codes, scale) = bytes.split_at(2 * out.len());
    for (out, code) in out.iter_mut().zip(codes.as_chunks().0) {
        *out = f32::from(i16::from_le_bytes(*code)) * number(scale);
    }
}

fn whole_length(x: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    for (i, x) in x.iter().enumerate() {
        sums[i % 16] = x.mul_add(*x, sums[i % 16]);
    }
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|i| sums[i] += sums[i + half]);
    }
    sums[0].sqrt()
}

fn whole_scale(x: &[f32]) -> bf16 {
    let length = whole_length(x);
    let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if !length.is_finite() {
        bf16::NAN
    } else if largest < SMALLEST_WHOLE {
        bf16::ZERO
    } else {
        not_below((length / WHOLE_LENGTH).max(largest / WHOLE_CODE))
    }
}

/// The smallest bf16 that is not below a positive number.
fn not_below(x: f32) -> bf16 {
    let cut = bf16::from_bits((x.to_bits() >> 16) as u16);
    if cut.to_f32() < x { bf16::from_bits(cut.to_bits() + 1) } else { cut }
}

fn store_halfs(x: &[f32], out: &mut [u8]) {
    for (out, x) in out.as_chunks_mut().0.iter_mut().zip(x) {
        *out = f16::from_f32(*x).to_le_bytes();
    }
}

fn read_halfs(bytes: &[u8], out: &mut [f32]) {
    for (out, stored) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = f16::from_le_bytes(*stored).to_f32();
    }
}

fn store_codes(x: &[f32], group: usize, out: &mut [u8]) {
    let (codes, scales) = out.split_at_mut(x.len());
    let groups = x.chunks(group).zip(codes.chunks_mut(group));
    for ((x, codes), out) in groups.zip(scales.as_chunks_mut().0) {
        let scale = scale_of(x);
        for (code, x) in codes.iter_mut().zip(x) {
            // Which code a scale of zero or of NaN is multiplied with makes no difference.
            *code = (x * (1.0 / scale.to_f32())).round_ties_even() as i8 as u8;
        }
        *out = scale.to_le_bytes();
    }
}

/// Makes numbers of columns, codes and scales.
fn read_codes(
    bytes: &[u8],
    group: usize,
    out: &mut [f32],
    made_of: impl Fn(usize, f32, f32) -> f32,
) {
    let (codes, scales) = bytes.split_at(out.len());
    for (column, (out, code)) in out.iter_mut().zip(codes).enumerate() {
        *out = made_of(column, f32::from(*code as i8), number(&scales[2 * (column / group)..]));
    }
}

/// The bf16 that `bytes` begin with.
fn number(bytes: &[u8]) -> f32 {
    bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(2).map(number)
}

fn scale_of(x: &[f32]) -> bf16 {
    if x.iter().any(|x| !x.is_finite()) {
        return bf16::NAN;
    }
    let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    if largest < SMALLEST {
        return bf16::ZERO;
    }
    not_below(largest / 127.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_through(format: KvFormat, x: &[f32]) -> Vec<f32> {
        let (mut bytes, mut out) = (vec![0; format.value_bytes(x.len())], vec![0.0; x.len()]);
        store_value(format, x, &mut bytes);
        read_value(format, &bytes, &mut out);
        out
    }

    fn key_through(first: &[f32], x: &[f32]) -> Vec<f32> {
        let format = KvFormat::Int8;
        let mut base = vec![0; format.base_bytes(x.len())];
        let (mut bytes, mut out) = (vec![0; format.key_bytes(x.len())], vec![0.0; x.len()]);
        store_base(format, first, &mut base);
        store_key(format, &base, x, &mut bytes);
        read_key(format, &base, &bytes, &mut out);
        out
    }

    /// 127 steps of 2 and of 1: nothing is lost where codes are whole.
    #[test]
    fn whole_codes_come_back() {
        let x: Vec<f32> =
            (0..40).map(|i| if i < 32 { 254.0 - 16.0 * i as f32 } else { 127.0 }).collect();
        assert_eq!(value_through(KvFormat::Int8, &x), x);
        assert_eq!(value_through(KvFormat::Int8, &[0.0; 3]), [0.0; 3]);
        assert_eq!(value_through(KvFormat::F16, &x), x);
        // A length of 65,280 steps of 1, for which the scale is a power of two.
        let x: Vec<f32> = (0..64).map(|i| if i < 4 { 32640.0 } else { 0.0 }).collect();
        assert_eq!(value_through(KvFormat::Int16, &x), x);
        assert_eq!(value_through(KvFormat::Int16, &[0.0; 3]), [0.0; 3]);
        assert_eq!(key_through(&x, &x), x);
        assert_eq!(key_through(&[3.0, 0.5], &[130.0, 0.5]), [130.0, 0.5]);
    }

    #[test]
    fn errors_are_at_most_half_a_step_of_the_own_group() {
        let x: Vec<f32> =
            (0..100).map(|i| ((i * i) as f32).sin() * 10f32.powi(i / 32 * 3 - 3)).collect();
        for (x, read) in x.chunks(32).zip(value_through(KvFormat::Int8, &x).chunks(32)) {
            let largest = x.iter().fold(0f32, |m, x| m.max(x.abs()));
            // A scale is rounded up by at most one part in 128.
            let limit = largest / 127.0 * (1.0 + 1.0 / 128.0) / 2.0 * 1.0001;
            assert!(
                x.iter().zip(read).all(|(x, read)| (x - read).abs() <= limit),
                "{x:?} {read:?}"
            );
        }
    }

    /// What f16 loses of the largest numbers is more than what whole numbers lose of any.
    #[test]
    fn sixteen_bits_lose_less_than_f16() {
        for n in [32, 64, 128, 256] {
            let x: Vec<f32> = (0..n).map(|i| ((i * i) as f32).sin() * 3.0).collect();
            let lost = |format| {
                let read = value_through(format, &x);
                x.iter().zip(read).map(|(x, read)| f64::from(x - read).powi(2)).sum::<f64>()
            };
            assert!(lost(KvFormat::Int16) < lost(KvFormat::F16) / 2.0, "{n} columns");
        }
    }

    /// Columns of a hundred times the size of all others, as some models have them.
    #[test]
    fn what_all_keys_have_in_common_costs_nothing() {
        let rest = |i: usize, seed: usize| ((i * 7 + seed * 64) as f32).sin();
        let common = |i: usize| if i.is_multiple_of(30) { 150.0 } else { 0.0 };
        let key = |seed| (0..64).map(|i| common(i) + rest(i, seed)).collect::<Vec<f32>>();
        for (x, read) in key(1).into_iter().zip(key_through(&key(0), &key(1))) {
            // Differences from the base are at most two, and half of what bf16 leaves of 150.
            assert!((x - read).abs() <= 2.5 / 127.0 * 1.01 / 2.0 + 1e-5, "{x} {read}");
        }
    }

    #[test]
    fn what_is_not_finite_spoils_its_group_alone() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 64];
            x[40] = bad;
            for (read, group) in [
                (value_through(KvFormat::Int16, &x), 0..64),
                (value_through(KvFormat::Int8, &x), 32..64),
                (key_through(&[0.5; 64], &x), 40..48),
                (key_through(&x, &[0.5; 64]), 40..48),
            ] {
                for (i, read) in read.into_iter().enumerate() {
                    let spoilt = group.contains(&i);
                    assert!(read.is_nan() == spoilt && (spoilt || (read - x[0]).abs() < 0.6));
                }
            }
        }
    }
}
