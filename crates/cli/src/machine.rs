//! What this machine has: memory, and what this process holds of it. Best guesses, never errors.

use std::fs;
use std::path::{Path, PathBuf};

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
        let mut system = sysinfo::System::new();
        system.refresh_memory();
        match system.total_memory() {
            0 => Memory { total: GUESS, available: GUESS },
            // Where the system does not say what is free, half of it is likely to be.
            total if system.available_memory() == 0 => Memory { total, available: total / 2 },
            total => Memory { total, available: system.available_memory().min(total) },
        }
    }

    /// Of this machine, now.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Memory {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = Memory::from_meminfo(&meminfo);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        memory.within_groups(Path::new("/sys/fs/cgroup"), &own)
    }

    fn from_meminfo(meminfo: &str) -> Memory {
        let available = kib(meminfo, "MemAvailable:").unwrap_or(GUESS);
        Memory { total: kib(meminfo, "MemTotal:").unwrap_or(available), available }
    }

    /// What is left of it inside of the control groups that `own` names, those above them
    /// included. `root` is where they are mounted.
    fn within_groups(self, root: &Path, own: &str) -> Memory {
        let groups = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            match (parts.next()?, parts.next()?) {
                ("", path) => Some(root.join(path.trim_start_matches('/'))),
                (controllers, path) if controllers.split(',').any(|name| name == "memory") => {
                    Some(root.join("memory").join(path.trim_start_matches('/')))
                }
                _ => None,
            }
        });
        // A container sees its own group at the root, whatever path it was told.
        let groups = groups.chain([root.to_path_buf(), root.join("memory")]);
        groups.fold(self, |memory, group| memory.within_group(root, group))
    }

    fn within_group(mut self, root: &Path, mut group: PathBuf) -> Memory {
        loop {
            if let Some((limit, used)) = group_memory(&group) {
                self.total = self.total.min(limit);
                self.available = self.available.min(limit.saturating_sub(used));
            }
            if group == root || !group.pop() || !group.starts_with(root) {
                return self;
            }
        }
    }
}

/// Limit of a control group and what is in use of it. Cached files are not: they give way.
fn group_memory(group: &Path) -> Option<(u64, u64)> {
    let number = |file: &str| -> Option<u64> {
        fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
    };
    let (limit, used) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?),
        None => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?),
    };
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| {
        let line = stat.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let cached = ["active_file", "inactive_file"].iter().filter_map(|name| field(name)).sum();
    Some((limit, used.saturating_sub(cached)))
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
        let text = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n";
        let memory = Memory { total: 24_000_000 * 1024, available: 20_000_000 * 1024 };
        assert_eq!(Memory::from_meminfo(text), memory);
        assert_eq!(Memory::from_meminfo("nothing"), Memory { total: GUESS, available: GUESS });
        let text = "Name:\thearth\nVmRSS:\t  7000 kB\nRssAnon:\t  3000 kB\nRssFile:\t 4000 kB\n";
        let memory = OwnMemory { resident: 7_168_000, anonymous: 3_072_000, files: 4_096_000 };
        assert_eq!(own_status(text), Some(memory));
        assert_eq!(own_status("VmRSS: many"), None);
    }

    #[test]
    fn control_groups_limit_it() {
        let machine = Memory { total: 1000, available: 900 };
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(machine.within_groups(root.path(), "0::/a/b\n"), machine);
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "50\n");
        assert_eq!(machine.within_groups(root.path(), "0::/a/b\n"), machine);
        // A limit further up holds too, and files in the cache do not count as used.
        write("a/memory.max", "600\n");
        write("a/memory.current", "500\n");
        write("a/memory.stat", "anon 100\nactive_file 250\ninactive_file 50\n");
        let limited = Memory { total: 600, available: 400 };
        assert_eq!(machine.within_groups(root.path(), "0::/a/b\n"), limited);
        assert_eq!(machine.within_groups(root.path(), "0::/other\n"), machine);
        write("memory/job/memory.limit_in_bytes", "300\n");
        write("memory/job/memory.usage_in_bytes", "100\n");
        let limited = Memory { total: 300, available: 200 };
        assert_eq!(machine.within_groups(root.path(), "4:cpu,memory:/job\n"), limited);
    }
}
