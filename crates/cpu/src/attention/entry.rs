//! Where the key and value of one position go in their block, and what they become there.

use backend::{BLOCK, KEY_GROUP, KvFormat, VALUE_GROUP};

use crate::simd::{Kernels, keys_head, paired, values_head};

/// Below this a group counts as zeros.
const SMALLEST: f32 = 1e-35;
/// Adding it rounds to a whole number, ties to even, which is then in the low bits.
const TO_WHOLE: f32 = 12_582_912.0;

/// Numbers of one head and position, as they are stored. Kept for its room.
#[derive(Default)]
pub(super) struct Entry {
    /// Differences from the base.
    rest: Vec<f32>,
    halfs: Vec<u16>,
    wholes: Vec<i16>,
    codes: Vec<u8>,
    /// bf16.
    scales: Vec<u16>,
}

impl Entry {
    /// Puts a key into slot `slot` of a block of keys.
    pub(super) fn put_key(
        &mut self,
        kernels: &Kernels,
        format: KvFormat,
        (block, slot): (&mut [u8], usize),
        k: &[f32],
    ) {
        match format {
            KvFormat::Int16 => {
                let (scales, codes) = block.split_at_mut(keys_head(format, k.len()));
                scales[2 * slot..][..2].copy_from_slice(&self.whole(kernels, k));
                for (column, code) in self.wholes.iter().enumerate() {
                    let at = 2 * paired(column, slot, BLOCK);
                    codes[at..][..2].copy_from_slice(&code.to_le_bytes());
                }
            }
            KvFormat::F16 => {
                self.narrow(kernels, k);
                let columns = block.chunks_exact_mut(2 * BLOCK);
                for (column, half) in columns.zip(&self.halfs) {
                    column[2 * slot..][..2].copy_from_slice(&half.to_le_bytes());
                }
            }
            KvFormat::Int8 => {
                let (head, codes) = block.split_at_mut(keys_head(format, k.len()));
                let (base, scales) = head.split_at_mut(format.base_bytes(k.len()));
                let base = base.as_chunks_mut::<2>().0;
                if slot == 0 {
                    base.iter_mut().zip(k).for_each(|(base, x)| *base = to_bf16(*x).to_le_bytes());
                }
                self.rest.clear();
                let rest = |(x, base): (&f32, &[u8; 2])| x - of_bf16(u16::from_le_bytes(*base));
                self.rest.extend(k.iter().zip(&*base).map(rest));
                round(&self.rest, KEY_GROUP, &mut self.codes, &mut self.scales);
                self.put_scales(scales, slot);
                for (column, code) in codes.chunks_exact_mut(BLOCK).zip(&self.codes) {
                    column[slot] = *code;
                }
            }
        }
    }

    /// Puts a value into slot `slot` of a block of values, whose rows have `cols` columns.
    pub(super) fn put_value(
        &mut self,
        kernels: &Kernels,
        format: KvFormat,
        (block, slot, cols): (&mut [u8], usize, usize),
        v: &[f32],
    ) {
        match format {
            KvFormat::Int16 => {
                let (scales, codes) = block.split_at_mut(values_head(format, cols));
                scales[2 * slot..][..2].copy_from_slice(&self.whole(kernels, v));
                for (column, code) in self.wholes.iter().enumerate() {
                    let at = 2 * paired(slot, column, cols);
                    codes[at..][..2].copy_from_slice(&code.to_le_bytes());
                }
            }
            KvFormat::F16 => {
                self.narrow(kernels, v);
                let row = block[2 * slot * cols..][..2 * v.len()].as_chunks_mut().0;
                for (out, half) in row.iter_mut().zip(&self.halfs) {
                    *out = half.to_le_bytes();
                }
            }
            KvFormat::Int8 => {
                let (scales, codes) = block.split_at_mut(values_head(format, cols));
                round(v, VALUE_GROUP, &mut self.codes, &mut self.scales);
                self.put_scales(scales, slot);
                codes[slot * cols..][..v.len()].copy_from_slice(&self.codes);
            }
        }
    }

    /// Makes codes, and gives the bytes of their scale.
    fn whole(&mut self, kernels: &Kernels, x: &[f32]) -> [u8; 2] {
        self.wholes.resize(x.len(), 0);
        (kernels.ops.round_stored)(x, &mut self.wholes).to_le_bytes()
    }

    fn narrow(&mut self, kernels: &Kernels, x: &[f32]) {
        self.halfs.resize(x.len(), 0);
        (kernels.narrow)(x, &mut self.halfs);
    }

    fn put_scales(&self, scales: &mut [u8], slot: usize) {
        for (group, scale) in scales.chunks_exact_mut(2 * BLOCK).zip(&self.scales) {
            group[2 * slot..][..2].copy_from_slice(&scale.to_le_bytes());
        }
    }
}

/// Makes codes and scales of `x`, as [`KvFormat::Int8`] has it.
fn round(x: &[f32], group: usize, codes: &mut Vec<u8>, scales: &mut Vec<u16>) {
    codes.clear();
    scales.clear();
    for x in x.chunks(group) {
        let scale = scale_of(x);
        scales.push(scale);
        let inverse = match scale {
            0 => 0.0,
            scale => 1.0 / of_bf16(scale),
        };
        // Of what is not finite, no code is ever seen.
        codes.extend(x.iter().map(|x| (x * inverse + TO_WHOLE).to_bits() as u8));
    }
}

fn of_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// The nearest bf16, ties to even.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The smallest bf16 that is not below `max |x| / 127`.
fn scale_of(x: &[f32]) -> u16 {
    const NOT_A_NUMBER: u16 = 0x7fc0;
    // As integers, so that a NaN counts as larger than everything.
    let largest = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    if largest < SMALLEST {
        0
    } else if largest < f32::INFINITY {
        ((largest / 127.0).to_bits().wrapping_add(0xffff) >> 16) as u16
    } else {
        NOT_A_NUMBER
    }
}

#[cfg(test)]
mod tests {
    use backend::reference::kv;
    use proptest::prelude::*;

    use super::*;
    use crate::simd::{Keys, Values, keys_len, values_len};

    fn numbers(n: usize) -> impl Strategy<Value = Vec<f32>> {
        let odd =
            prop::sample::select(vec![0.0, -0.0, 1e-36, -3e-35, 1e30, f32::NAN, -f32::INFINITY]);
        let one = prop_oneof![40 => -9.0f32..9.0, 5 => -1e-3f32..1e-3, 1 => odd];
        prop::collection::vec(one, n)
    }

    proptest! {
        /// What is read back from a block is what the definition says, bit for bit.
        #[test]
        fn entries_are_what_the_reference_stores(
            (first, x) in (1usize..100).prop_flat_map(|n| (numbers(n), numbers(n))),
            slot in 0..BLOCK,
        ) {
            let (kernels, n) = (Kernels::detect(), x.len());
            // In slot 0 the key is the base.
            let first = if slot == 0 { &x } else { &first };
            for format in KvFormat::ALL {
                let mut base = vec![0; format.base_bytes(n)];
                let mut key = vec![0; format.key_bytes(n)];
                let mut value = vec![0; format.value_bytes(n)];
                let (mut want_key, mut want_value) = (vec![0.0; n], vec![0.0; n]);
                kv::store_base(format, first, &mut base);
                kv::store_key(format, &base, &x, &mut key);
                kv::read_key(format, &base, &key, &mut want_key);
                kv::store_value(format, &x, &mut value);
                kv::read_value(format, &value, &mut want_value);
                let cols = n.next_multiple_of(16);
                let mut keys = vec![0; keys_len(format, n)];
                let mut values = vec![0; values_len(format, cols)];
                let mut entry = Entry::default();
                for (slot, x) in [(0, first), (slot, &x)] {
                    entry.put_key(kernels, format, (&mut keys, slot), x);
                    entry.put_value(kernels, format, (&mut values, slot, cols), x);
                }
                let keys = Keys::new(format, n, &keys);
                let values = Values::new(format, cols, &values);
                for (i, want) in want_key.into_iter().zip(want_value).enumerate() {
                    let got = (keys.number(i, slot), values.number(i, slot, cols));
                    for (got, want) in [(got.0, want.0), (got.1, want.1)] {
                        prop_assert!(got == want || got.is_nan() && want.is_nan(), "{got}, not {want}");
                    }
                }
            }
        }
    }
}
