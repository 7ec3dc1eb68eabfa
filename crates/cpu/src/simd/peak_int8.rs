//! The most multiply-adds of 8-bit numbers that a core can do: in registers alone, in chains that do not
//! wait for each other. What reads memory cannot be faster. No kernel uses this.

/// Chains that do not wait for each other: more than any machine's latency needs.
#[cfg(target_arch = "x86_64")]
const CHAINS: usize = 12;

/// Does about `n` multiply-adds of 8-bit numbers, with sums of 32 bits, in the best way this machine has.
/// Returns how many it was exactly; `None` where no way is known here.
pub fn multiply_adds_int8(n: u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions are there.
            return Some(unsafe { avx512(n) });
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the instructions are there.
            return Some(unsafe { avx2(n) });
        }
    }
    let _ = n;
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn avx512(n: u64) -> u64 {
    use std::arch::x86_64::{_mm512_dpbusd_epi32, _mm512_set1_epi8, _mm512_setzero_si512};
    let b = _mm512_set1_epi8(5);
    let sums = [_mm512_setzero_si512(); CHAINS];
    chains(n, 64, [_mm512_set1_epi8(3); CHAINS], sums, |sum, a| _mm512_dpbusd_epi32(sum, a, b))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(n: u64) -> u64 {
    use std::arch::x86_64::{
        _mm256_add_epi32, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi8,
        _mm256_set1_epi16, _mm256_setzero_si256,
    };
    let (b, ones) = (_mm256_set1_epi8(5), _mm256_set1_epi16(1));
    let sums = [_mm256_setzero_si256(); CHAINS];
    chains(n, 32, [_mm256_set1_epi8(3); CHAINS], sums, |sum, a| {
        _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones))
    })
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn chains<V: Copy>(
    n: u64,
    lanes: u64,
    mut factors: [V; CHAINS],
    mut sums: [V; CHAINS],
    step: impl Fn(V, V) -> V,
) -> u64 {
    let steps = n / (CHAINS as u64 * lanes);
    for _ in 0..steps {
        // Each chain has a factor of its own, of which nothing is known: so no product is computed ahead,
        // or once for all. They come out of the nearest cache as operands, which costs nothing.
        std::hint::black_box(&mut factors);
        for (sum, &factor) in sums.iter_mut().zip(&factors) {
            *sum = step(*sum, factor);
        }
    }
    std::hint::black_box(sums);
    steps * CHAINS as u64 * lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_many_it_did() {
        if let Some(n) = multiply_adds_int8(1 << 20) {
            assert!((1 << 19..=1 << 20).contains(&n));
        }
    }
}
