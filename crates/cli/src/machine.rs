//! What this machine has: memory and processors. Best guesses, never errors.

use std::path::Path;

/// Bytes that could be used now without swapping; a cautious guess where the system does not say.
pub(crate) fn available_memory() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    mem_available(&meminfo).unwrap_or(8 << 30)
}

fn mem_available(meminfo: &str) -> Option<u64> {
    kib(meminfo, "MemAvailable:")
}

/// Bytes of the line that begins like this, as Linux writes them.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// What this process takes of the memory, in bytes. `None` where the system does not say.
pub(crate) fn own_memory() -> Option<OwnMemory> {
    own_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// See [`own_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnMemory {
    /// All that is in RAM.
    pub(crate) resident: u64,
    /// Of this, what is nowhere else.
    pub(crate) anonymous: u64,
    /// Of this, what is mapped from files.
    pub(crate) files: u64,
}

fn own_status(status: &str) -> Option<OwnMemory> {
    Some(OwnMemory {
        resident: kib(status, "VmRSS:")?,
        anonymous: kib(status, "RssAnon:")?,
        files: kib(status, "RssFile:")?,
    })
}

/// Bytes that are free on the disk of a folder that need not exist yet.
pub(crate) fn free_disk(folder: &Path) -> Option<u64> {
    folder.ancestors().find_map(|folder| fs4::available_space(folder).ok())
}

/// Bytes in the unit people read.
pub(crate) fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_writes() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(mem_available(text), Some(20_000_000 * 1024));
        assert_eq!(mem_available("nothing"), None);
        let text = "Name:\thearth\nVmRSS:\t  7000 kB\nRssAnon:\t  3000 kB\nRssFile:\t 4000 kB\n";
        let memory = OwnMemory { resident: 7_168_000, anonymous: 3_072_000, files: 4_096_000 };
        assert_eq!(own_status(text), Some(memory));
        assert_eq!(own_status("VmRSS: many"), None);
    }
}
