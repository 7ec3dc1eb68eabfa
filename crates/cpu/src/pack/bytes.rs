//! Unpacking eight bytes at a time, which needs no instruction set and is vectorised where there is
//! one. It knows no format.

/// The low half of every byte.
pub(super) const LOW_NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;
/// The low two bits of every byte.
pub(super) const LOW_PAIRS: u64 = 0x0303_0303_0303_0303;
/// The lowest bit of every byte.
pub(super) const LOW_BITS: u64 = 0x0101_0101_0101_0101;

/// Every eight bytes of `out` from the same eight of `packed`, both a multiple of eight long.
#[inline(always)]
pub(super) fn bytewise(packed: &[u8], out: &mut [u8], f: impl Fn(u64) -> u64) {
    for (out, packed) in out.as_chunks_mut().0.iter_mut().zip(packed.as_chunks().0) {
        *out = f(u64::from_le_bytes(*packed)).to_le_bytes();
    }
}

/// Every eight bytes of `out` from themselves and the same eight of `packed`.
#[inline(always)]
pub(super) fn merge(packed: &[u8], out: &mut [u8], f: impl Fn(u64) -> u64) {
    for (out, packed) in out.as_chunks_mut().0.iter_mut().zip(packed.as_chunks().0) {
        *out = (u64::from_le_bytes(*out) | f(u64::from_le_bytes(*packed))).to_le_bytes();
    }
}

/// Four bytes as eight nibbles, the low one of each byte first.
#[inline(always)]
pub(super) fn spread_nibbles(packed: [u8; 4]) -> u64 {
    let x = u64::from(u32::from_le_bytes(packed));
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & LOW_NIBBLES
}
