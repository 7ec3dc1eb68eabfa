//! Programs that a model writes, judged by running them: HumanEval's file of JSON lines, given by path.
//!
//! What runs was written by a model and may do anything that its user may. A child process bounds it: an
//! empty folder and environment, at most so many seconds and so much memory, no file that it could write to,
//! and no network where the system lets users make a network of their own. That is a fence, and no wall:
//! files that the user may read can be read. So nothing here runs unless somebody asked for it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{data, step};
use crate::error::Error;
use crate::rng::Rng;
use crate::workload::Step;

/// Tokens of an answer, at most.
const ANSWER: u32 = 512;
/// Bytes of output that are read; whoever writes more finds nobody who listens.
const OUTPUT: u64 = 64 << 10;

/// Where programs are found; others have to be named with their folder.
const PATH: &str = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin";

/// A function that is to be written.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    /// Its name in the file.
    pub task_id: String,
    /// Its head, with a text that says what it does.
    pub prompt: String,
    /// The function's name.
    pub entry_point: String,
    /// Defines `check(candidate)`.
    pub test: String,
}

/// What bounds a program.
#[derive(Clone, Debug)]
pub struct Fence {
    /// The interpreter, as a shell would find it.
    pub python: String,
    /// Seconds of time, and of processors.
    pub seconds: u64,
    /// Bytes of addresses.
    pub memory: u64,
    /// What it is started by, so that it has no network. Nothing: it has one.
    offline: Option<&'static [&'static str]>,
}

/// How a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All checks held.
    Passed,
    /// It ended before the last check was over.
    Failed,
    /// It was ended.
    TooSlow,
}

/// The problems of a file.
///
/// # Errors
/// [`Error`] if it is not of this form.
pub fn read(path: &Path) -> Result<Vec<Problem>, Error> {
    data::lines(path)
}

impl Problem {
    /// What a model is asked.
    pub fn step(&self) -> Step {
        let text = format!(
            "Complete this Python function. Answer with the whole function in one block of code and \
             nothing else.\n\n```python\n{}\n```",
            self.prompt.trim_end()
        );
        step(&text, None, ANSWER)
    }

    /// The program that says `sign` if an answer passes all checks.
    fn program(&self, answer: &str, sign: &str) -> String {
        let Problem { prompt, entry_point, test, .. } = self;
        let code = code_of(answer);
        // The head alone is a function too, that only has a text. One that is whole takes its place; one
        // that is only the rest goes on from it.
        let is_whole = code.lines().any(|line| line.starts_with(&format!("def {entry_point}(")));
        let between = if is_whole { "\n\n" } else { "" };
        format!("{prompt}{between}{code}\n\n{test}\n\ncheck({entry_point})\nprint({sign:?})\n")
    }
}

/// The first block of code of an answer, or all of it if there is none. A block that was cut off counts.
fn code_of(answer: &str) -> &str {
    let Some((_, block)) = answer.split_once("```") else { return answer };
    let code = block.split_once('\n').map_or("", |(_, code)| code);
    code.split_once("```").map_or(code, |(code, _)| code)
}

impl Fence {
    /// The closest one that this system has.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nothing can be run in it.
    pub fn new(python: &str, seconds: u64, memory: u64) -> Result<Fence, Error> {
        const OFFLINE: &[&str] = &["unshare", "--user", "--net", "--"];
        let mut fence =
            Fence { python: python.to_owned(), seconds, memory, offline: Some(OFFLINE) };
        for offline in [Some(OFFLINE), None] {
            fence.offline = offline;
            if fence.run("print('ready')", "ready") == Ok(Outcome::Passed) {
                return Ok(fence);
            }
        }
        Err(Error::Unavailable(format!(
            "{python} cannot be run with bounds: it needs a Unix shell"
        )))
    }

    /// Whether what runs in it has no network.
    pub fn is_offline(&self) -> bool {
        self.offline.is_some()
    }

    /// Whether an answer passes the checks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nothing can be run at all.
    pub fn judge(&self, problem: &Problem, answer: &str, rng: &mut Rng) -> Result<Outcome, Error> {
        let sign = format!("passed {:016x}", rng.bits());
        let fail = |why: std::io::Error| Error::Unavailable(format!("{}: {why}", self.python));
        self.run(&problem.program(answer, &sign), &sign)
            .map_err(|kind| fail(std::io::Error::from(kind)))
    }

    /// Runs a program that says `sign` if it came to its end.
    fn run(&self, program: &str, sign: &str) -> Result<Outcome, std::io::ErrorKind> {
        let folder = Folder::new().map_err(|error| error.kind())?;
        let file = folder.0.join("program.py");
        std::fs::write(&file, program).map_err(|error| error.kind())?;
        let mut command = self.command(&file);
        command.current_dir(&folder.0).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| error.kind())?;
        let output = child.stdout.take();
        let reader = thread::spawn(move || {
            let mut text = Vec::new();
            // What cannot be read was not said.
            let _ = output.map(|output| output.take(OUTPUT).read_to_end(&mut text));
            text
        });
        let (start, limit) = (Instant::now(), Duration::from_secs(self.seconds));
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if start.elapsed() < limit => thread::sleep(Duration::from_millis(5)),
                Ok(None) | Err(_) => break None,
            }
        };
        // Whatever it started ends too, and lets go of the pipe that the reader waits for.
        crate::run::end_group(child.id());
        let _ = child.wait();
        let output = reader.join().unwrap_or_default();
        let said = String::from_utf8_lossy(&output).lines().any(|line| line == sign);
        Ok(match ended {
            Some(status) if status.success() && said => Outcome::Passed,
            Some(status) if !used_up(status) => Outcome::Failed,
            Some(_) | None => Outcome::TooSlow,
        })
    }

    /// The interpreter, bounded by a shell: the standard library cannot bound processes.
    fn command(&self, file: &Path) -> Command {
        let Fence { python, seconds, memory, offline } = self;
        // The soft bound tells a program that it is ended, and us why; the hard one ends it.
        let bounds = format!(
            "ulimit -c 0 && ulimit -f 0 && ulimit -S -t {seconds} && ulimit -H -t {} && \
             ulimit -v {} && exec \"$@\"",
            seconds + 2,
            memory / 1024
        );
        let front = ["sh", "-c", &bounds, "sh"];
        let mut words = front.into_iter().chain(offline.iter().copied().flatten().copied());
        let mut command = Command::new(words.next().unwrap_or("sh"));
        command.args(words).arg(python).args(["-I", "-B"]).arg(file);
        command.env_clear().env("PATH", PATH);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }
}

/// Whether a program was ended because its time of processors was up.
#[cfg(unix)]
fn used_up(status: ExitStatus) -> bool {
    // The same on Linux and macOS.
    const SIGXCPU: i32 = 24;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGXCPU)
}

#[cfg(not(unix))]
fn used_up(_: ExitStatus) -> bool {
    false
}

/// A folder that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hearth-code-{}-{n}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn problem() -> Problem {
        Problem {
            task_id: "x/0".to_owned(),
            prompt: "import math\n\ndef area(r):\n    \"\"\" Area of a circle. \"\"\"\n".to_owned(),
            entry_point: "area".to_owned(),
            test: "def check(candidate):\n    assert abs(candidate(1) - math.pi) < 1e-6\n"
                .to_owned(),
        }
    }

    fn judge(answer: &str) -> Outcome {
        let fence = Fence::new("python3", 60, 1 << 30).unwrap();
        fence.judge(&problem(), answer, &mut Rng::new(1)).unwrap()
    }

    #[test]
    fn right_programs_pass_in_every_form_of_answer() {
        for answer in [
            "```python\ndef area(r):\n    return math.pi * r * r\n```\nThis squares r.",
            "Sure:\n```\nimport math\n\ndef area(r):\n    return math.pi * r ** 2\n```",
            "def area(r):\n    return math.pi * r * r",
            "    return math.pi * r * r\n",
            "```python\ndef area(r):\n    return math.pi * r * r\n",
        ] {
            assert_eq!(judge(answer), Outcome::Passed, "{answer}");
        }
    }

    #[test]
    fn wrong_programs_fail() {
        for answer in [
            "",
            "```python\ndef area(r):\n    return r\n```",
            "```python\ndef area(r:\n```",
            // Ends well without any check.
            "```python\nimport os\nos._exit(0)\n```",
            "```python\nraise SystemExit(0)\n```",
            "```python\ndef area(r):\n    print('passed')\n    raise SystemExit(0)\n```",
        ] {
            assert_eq!(judge(answer), Outcome::Failed, "{answer}");
        }
    }

    #[test]
    fn nothing_takes_more_than_it_may() {
        let fence = Fence::new("python3", 60, 512 << 20).unwrap();
        let short = Fence { seconds: 2, ..fence.clone() };
        let run_in =
            |fence: &Fence, code: &str| fence.run(&format!("{code}\nprint('end')"), "end").unwrap();
        let run = |code: &str| run_in(&fence, code);
        assert_eq!(run("x = 1"), Outcome::Passed);
        assert_eq!(run_in(&short, "while True: pass"), Outcome::TooSlow);
        assert_eq!(run_in(&short, "import time; time.sleep(1000)"), Outcome::TooSlow);
        assert_eq!(run("x = bytearray(1 << 30)"), Outcome::Failed);
        assert_eq!(run("open('file', 'w').write('x' * 100000)"), Outcome::Failed);
        assert_eq!(run("while True: print('x' * 1000)"), Outcome::Failed);
        // The test itself has these variables.
        let code = "import os; assert not {'HOME', 'CARGO_MANIFEST_DIR'} & set(os.environ)";
        assert_eq!(run(code), Outcome::Passed);
        // A child of its own ends with it, and keeps nobody waiting.
        let start = Instant::now();
        let code = "import subprocess; subprocess.Popen(['sleep', '1000'])";
        assert_eq!(run(code), Outcome::Passed);
        assert!(start.elapsed() < Duration::from_secs(60));
        if fence.is_offline() {
            let code = "import socket\ntry:\n  socket.create_connection(('127.0.0.1', 9), 1)\n\
                        except OSError as e:\n  assert e.errno == 101, e\nelse:\n  raise SystemExit(1)";
            assert_eq!(run(code), Outcome::Passed);
        }
    }
}
