//! The most fused multiply-adds a core can do, for benchmarks to hold their figures against. They
//! include this file by its path; the device has no use for it.

#![allow(unsafe_code)]

use std::hint::black_box;

/// Chains that do not wait for each other: more than any machine's latency needs.
const CHAINS: usize = 12;

/// Does about `n` fused multiply-adds of f32 in the widest vectors there are. Returns how many it
/// was exactly.
pub(crate) fn multiply_add(n: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions are there.
            return unsafe { avx512(n) };
        }
        if is_x86_feature_detected!("fma") {
            // SAFETY: the instructions are there.
            return unsafe { fma(n) };
        }
    }
    let [a, b] = black_box([0.5f32, 1.0]);
    chains(n, 1, a, |sum| sum.mul_add(a, b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(n: usize) -> usize {
    use std::arch::x86_64::*;
    let [a, b] = black_box([0.5, 1.0]).map(|x| _mm512_set1_ps(x));
    chains(n, 16, a, |sum| _mm512_fmadd_ps(sum, a, b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,fma")]
fn fma(n: usize) -> usize {
    use std::arch::x86_64::*;
    let [a, b] = black_box([0.5, 1.0]).map(|x| _mm256_set1_ps(x));
    chains(n, 8, a, |sum| _mm256_fmadd_ps(sum, a, b))
}

#[inline(always)]
fn chains<V: Copy>(n: usize, lanes: usize, start: V, step: impl Fn(V) -> V) -> usize {
    let steps = n / (CHAINS * lanes);
    let mut sums = [start; CHAINS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = step(*sum);
        }
    }
    black_box(sums);
    steps * CHAINS * lanes
}
