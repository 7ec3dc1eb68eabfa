//! A server that the lab launches: its group of processes, its log, the memory of all of it, its end.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::system;

/// Time between two looks at memory.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a server has to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server, ended at the latest when this is dropped.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
    watch: Watch,
}

/// What is to be run.
pub(super) struct Launch<'a> {
    /// The program and its arguments.
    pub(super) command: &'a [String],
    /// Further variables of its environment.
    pub(super) env: &'a [(String, String)],
    /// Where all it prints goes.
    pub(super) log: &'a Path,
}

impl Process {
    /// Starts it, in a group of its own so that whatever it starts ends with it, and so that Ctrl-C in the
    /// terminal leaves it to us.
    pub(super) fn start(launch: &Launch) -> Result<Process, String> {
        let file = File::options().create(true).append(true).open(launch.log);
        let file = file.map_err(|error| format!("{}: {error}", launch.log.display()))?;
        let also = file.try_clone().map_err(|error| error.to_string())?;
        let (program, arguments) = launch.command.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command.args(arguments).envs(launch.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(file).stderr(also);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child =
            command.spawn().map_err(|error| format!("{program} does not start: {error}"))?;
        let watch = Watch::of(child.id());
        Ok(Process { child, log: launch.log.to_owned(), watch })
    }

    /// Asks `is_ready` until it says yes. Gives the seconds since the start, as counted by `since`.
    pub(super) fn wait_ready(
        &mut self,
        since: Instant,
        limit: Duration,
        stopped: &dyn Fn() -> bool,
        is_ready: &dyn Fn() -> bool,
    ) -> Result<f64, String> {
        while !is_ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended ({status}): {}", self.last_line()));
            }
            if since.elapsed() > limit {
                return Err(format!("not ready after {} s", limit.as_secs()));
            }
            if stopped() {
                return Err("interrupted".to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(since.elapsed().as_secs_f64())
    }

    fn last_line(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(
            || "it printed nothing".to_owned(),
            |line| line.chars().take(300).collect(),
        )
    }

    /// Processor seconds that it has used, with all it started.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.watch.tree().iter().map(|&pid| system::cpu_seconds(pid)).sum()
    }

    /// Most bytes that its processes had for themselves, and with pages of files. `None` where the system
    /// does not say.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        self.watch.look();
        let private = self.watch.shared.private.load(Ordering::Relaxed);
        let resident = self.watch.shared.resident.load(Ordering::Relaxed);
        (resident > 0).then_some((private, resident))
    }

    /// A handle to end it from elsewhere.
    pub(super) fn group(&self) -> Group {
        Group(self.child.id())
    }

    fn end(&mut self) {
        signal(self.child.id(), Signal::Term);
        let start = Instant::now();
        while start.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        // The group too: what it started may still be there.
        signal(self.child.id(), Signal::Kill);
        // It is gone or cannot be waited for; neither changes anything here.
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The processes of a server. Good for as long as it is not waited for.
#[derive(Clone, Copy)]
pub(super) struct Group(u32);

impl Group {
    /// Those that the first one of the group has started.
    pub(super) fn of(leader: u32) -> Group {
        Group(leader)
    }

    /// Ends them at once.
    pub(super) fn kill(self) {
        signal(self.0, Signal::Kill);
    }
}

#[derive(Clone, Copy)]
enum Signal {
    Term,
    Kill,
}

#[cfg(unix)]
fn signal(group: u32, signal: Signal) {
    use rustix::process::{Pid, Signal as Unix, kill_process_group};
    let unix = match signal {
        Signal::Term => Unix::TERM,
        Signal::Kill => Unix::KILL,
    };
    if let Some(pid) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // A group that has ended already is what was wanted.
        let _ = kill_process_group(pid, unix);
    }
}

#[cfg(not(unix))]
fn signal(_group: u32, _signal: Signal) {}

/// Looks at the memory of a tree of processes again and again, on a thread of its own.
struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    root: u32,
    tree: Mutex<Vec<u32>>,
    private: AtomicU64,
    resident: AtomicU64,
    done: AtomicBool,
}

impl Watch {
    fn of(root: u32) -> Watch {
        let shared = Arc::new(Shared {
            root,
            tree: Mutex::new(vec![root]),
            private: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            done: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut turn = 0_u64;
            while !seen.done.load(Ordering::Relaxed) {
                // Whom it has started is looked up less often.
                seen.look(turn.is_multiple_of(10));
                turn += 1;
                thread::park_timeout(LOOK);
            }
        });
        Watch { shared, thread: Some(thread) }
    }

    fn look(&self) {
        self.shared.look(true);
    }

    fn tree(&self) -> Vec<u32> {
        self.shared.tree.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    fn look(&self, whom: bool) {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        if whom {
            *tree = system::tree(self.root);
        }
        let (mut private, mut resident) = (0, 0);
        for memory in tree.iter().filter_map(|&pid| system::memory(pid)) {
            private += memory.0;
            resident += memory.1;
        }
        self.private.fetch_max(private, Ordering::Relaxed);
        self.resident.fetch_max(resident, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does nothing that could fail.
            let _ = thread.join();
        }
    }
}

/// A port that nobody uses at the moment.
pub(super) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn start(script: &str, log: &Path) -> Process {
        let command = ["sh", "-c", script].map(str::to_owned);
        Process::start(&Launch { command: &command, env: &[], log }).unwrap()
    }

    /// Whether it runs: what nobody has waited for yet does not.
    fn is_alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z")
    }

    #[test]
    fn all_of_a_tree_is_seen_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut process = start("sleep 1000 & echo $!; wait", &log);
        let child = || -> Option<u32> { std::fs::read_to_string(&log).ok()?.trim().parse().ok() };
        let limit = Duration::from_secs(60);
        process.wait_ready(Instant::now(), limit, &|| false, &|| child().is_some()).unwrap();
        let child = child().unwrap();
        let (private, resident) = process.memory().unwrap();
        assert!(private > 0 && resident >= private);
        assert!(process.watch.tree().contains(&child));
        drop(process);
        // It was told to end; the kernel takes its time over that on a busy machine.
        let start = Instant::now();
        while is_alive(child) && start.elapsed() < limit {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_alive(child));
    }

    #[test]
    fn one_that_ends_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = start("echo no such model >&2; exit 3", &folder.path().join("log"));
        let limit = Duration::from_secs(60);
        let why = process.wait_ready(Instant::now(), limit, &|| false, &|| false).unwrap_err();
        assert!(why.contains("no such model") && why.contains('3'), "{why}");
        let command = ["/no/such/program".to_owned()];
        let log = folder.path().join("other");
        let launch = Launch { command: &command, env: &[], log: &log };
        assert!(Process::start(&launch).err().unwrap().contains("/no/such/program"));
    }
}
