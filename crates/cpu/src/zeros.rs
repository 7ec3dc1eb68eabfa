//! Bytes that begin as zeros and cost nothing before they are written to. No layout: whoever holds them
//! knows what they mean.
//!
//! A device plans for more positions than most sequences reach, so memory is taken as it is first
//! written. In pages of 4 KiB that is a fault for every few positions and layer, which takes a tenth
//! of a short prompt's time on a virtual machine; in pages of 2 MiB it is one for some thousand
//! positions. Linux gives large pages to who asks for them; elsewhere the system decides.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes with the alignment of a page.
pub(crate) struct Zeros {
    map: MmapMut,
    len: usize,
}

impl Zeros {
    /// `len` of them. Where the address space has no room for so many, the process ends, as it does for
    /// a `Vec`.
    pub(crate) fn new(len: usize) -> Zeros {
        // A map of nothing is refused by some systems.
        let Ok(map) = MmapMut::map_anon(len.max(1)) else {
            handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()))
        };
        // What the system refuses costs time alone.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Zeros { map, len }
    }
}

impl Deref for Zeros {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.len]
    }
}

impl DerefMut for Zeros {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_zeros_and_can_be_written() {
        for len in [0, 1, 4097, 5 << 20] {
            let mut zeros = Zeros::new(len);
            assert_eq!(zeros.len(), len);
            assert!(zeros.iter().all(|byte| *byte == 0));
            zeros.fill(7);
            assert!(zeros.iter().all(|byte| *byte == 7));
        }
    }
}
