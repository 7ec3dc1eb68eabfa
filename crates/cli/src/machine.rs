//! What this machine has: memory, and what this process holds of it. Best guesses, never errors.

#[cfg(target_os = "linux")]
mod linux;

use std::fs;
use std::path::Path;

/// What a machine that does not say is taken to have.
const GUESS: u64 = 8 << 30;

/// The memory that this process could use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All there is: the machine's, or less where a control group limits it.
    pub(crate) total: u64,
    /// What could be used now without swapping.
    pub(crate) available: u64,
}

impl Memory {
    /// Of this machine, now.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Memory {
        let unknown = Memory { total: GUESS, available: GUESS };
        let Ok(mut system) = sysinfo::System::new() else { return unknown };
        system.refresh_memory();
        match (system.total_memory(), system.available_memory()) {
            (0, _) => unknown,
            // Where the system does not say what is free, half of it is likely to be.
            (total, 0) => Memory { total, available: total / 2 },
            (total, available) => Memory { total, available: available.min(total) },
        }
    }
}

/// What this process takes of the memory, in bytes. `None` where the system does not say.
pub(crate) fn own_memory() -> Option<OwnMemory> {
    own_status(&fs::read_to_string("/proc/self/status").ok()?)
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

/// Bytes of memory that this process holds for itself, without mapped files; 0 where the system does
/// not say.
pub(crate) fn anonymous_bytes() -> u64 {
    own_memory().map_or(0, |memory| memory.anonymous)
}

/// Bytes that are free on the disk of a folder that need not exist yet.
pub(crate) fn free_disk(folder: &Path) -> Option<u64> {
    folder.ancestors().find_map(|folder| fs4::available_space(folder).ok())
}

/// Bytes of the line that begins like this, as Linux writes them.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes in the unit people read.
pub(crate) fn human_bytes(bytes: u64) -> String {
    server::human_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_writes() {
        let text = "Name:\thearth\nVmRSS:\t  7000 kB\nRssAnon:\t  3000 kB\nRssFile:\t 4000 kB\n";
        let memory = OwnMemory { resident: 7_168_000, anonymous: 3_072_000, files: 4_096_000 };
        assert_eq!(own_status(text), Some(memory));
        assert_eq!(own_status("VmRSS: many"), None);
    }
}
