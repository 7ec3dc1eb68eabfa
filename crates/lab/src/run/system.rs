//! What the system tells about itself and about processes: on Linux from `/proc` and `/sys`. Elsewhere, and
//! where a file is not there, the answer is "unknown", never an error.

use std::fs;
use std::path::Path;

use crate::record::{Machine, State};

/// Clock ticks of `/proc` per second; Linux has had the same to programs everywhere for decades.
const TICKS: f64 = 100.0;

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn number(path: impl AsRef<Path>) -> Option<f64> {
    read(path)?.trim().parse().ok()
}

/// The process and all that it started, and they.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&pid) = tree.get(at) {
        at += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = read(thread.path().join("children")).unwrap_or_default();
            tree.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    tree
}

/// Bytes that a process has for itself, and with pages of files.
pub(super) fn memory(pid: u32) -> Option<(u64, u64)> {
    let status = read(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let private = kib("RssAnon:")? + kib("RssShmem:").unwrap_or(0);
    Some((private * 1024, kib("VmRSS:")? * 1024))
}

/// Processor seconds that a process has used.
pub(super) fn cpu_seconds(pid: u32) -> f64 {
    let stat = read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// Seconds for which processors did anything since the system started, time stolen from a virtual machine
/// included.
pub(super) fn busy_seconds() -> Option<f64> {
    let stat = read("/proc/stat")?;
    let fields: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy = [0, 1, 2, 5, 6, 7];
    Some(busy.iter().filter_map(|&i| fields.get(i)).sum::<f64>() / TICKS)
}

/// Load, clock, heat and energy now.
pub(super) fn state() -> State {
    State {
        load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        foreign: None,
        mhz: mhz(),
        celsius: celsius(),
        joules: joules(),
    }
}

fn mhz() -> Option<f64> {
    let info = read("/proc/cpuinfo")?;
    let clocks: Vec<f64> = info
        .lines()
        .filter(|line| line.starts_with("cpu MHz"))
        .filter_map(|line| line.split_once(':')?.1.trim().parse().ok())
        .collect();
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

fn celsius() -> Option<f64> {
    let zones = fs::read_dir("/sys/class/thermal").ok()?.flatten();
    let heats = zones.filter_map(|zone| number(zone.path().join("temp")));
    heats.map(|milli| milli / 1e3).filter(|heat| (1.0..150.0).contains(heat)).reduce(f64::max)
}

fn joules() -> Option<f64> {
    let zones = fs::read_dir("/sys/class/powercap").ok()?.flatten();
    // A package is `intel-rapl:0`; its parts have a second number.
    let packages = zones.filter(|zone| {
        let name = zone.file_name();
        name.to_string_lossy().matches(':').count() == 1
    });
    let joules: Vec<f64> = packages
        .filter_map(|zone| number(zone.path().join("energy_uj")))
        .map(|uj| uj / 1e6)
        .collect();
    (!joules.is_empty()).then(|| joules.iter().sum())
}

/// What the machine is, without what has to be measured.
pub fn machine() -> Machine {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    let memory = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        cpu: name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory: memory.unwrap_or(0) * 1024,
        system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
        ..Machine::default()
    }
}

/// Finds what others use during a pause: processor seconds of the system without those of ours.
pub(super) struct Foreign {
    busy: Option<f64>,
    ours: f64,
    at: std::time::Instant,
}

impl Foreign {
    /// Counts from now on; `ours` are the seconds that the server has used so far.
    pub(super) fn start(ours: f64) -> Foreign {
        let own = cpu_seconds(std::process::id());
        Foreign { busy: busy_seconds(), ours: ours + own, at: std::time::Instant::now() }
    }

    /// Processors that others kept busy. `None` if the pause was too short to say.
    pub(super) fn end(self, ours: f64) -> Option<f64> {
        let seconds = self.at.elapsed().as_secs_f64();
        let busy = busy_seconds()? - self.busy?;
        let ours = ours + cpu_seconds(std::process::id()) - self.ours;
        (seconds >= 0.3).then(|| ((busy - ours) / seconds).max(0.0))
    }
}
