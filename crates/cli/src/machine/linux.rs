//! How much memory Linux says there is, control groups included.

use std::fs;
use std::path::{Path, PathBuf};

use super::{GUESS, Memory, kib};

impl Memory {
    /// Of this machine, now.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_writes() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n";
        let memory = Memory { total: 24_000_000 * 1024, available: 20_000_000 * 1024 };
        assert_eq!(Memory::from_meminfo(text), memory);
        assert_eq!(Memory::from_meminfo("nothing"), Memory { total: GUESS, available: GUESS });
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
