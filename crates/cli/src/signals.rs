//! What Ctrl-C and a polite kill mean, once somebody waits for them. Until then the system's own
//! meaning holds: they end the program.

use std::future::pending;

/// Done when the user presses Ctrl-C. From its first poll on, Ctrl-C does nothing else any more.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without a handler the signal ends the process, so there is nothing to wait for.
        pending::<()>().await;
    }
}

/// Done when the user or the system has asked twice: whoever waits shall wait no longer.
pub(crate) async fn stop_insisted() {
    stop_requested().await;
    stop_requested().await;
}

/// Done when the user or the system asks the program to stop.
pub(crate) async fn stop_requested() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                () = interrupted() => (),
                _ = terminate.recv() => (),
            }
            return;
        }
    }
    interrupted().await;
}

/// Signals that a program passes on to one that it runs.
#[cfg(unix)]
pub(crate) struct Passed {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

/// One of them.
#[cfg(unix)]
pub(crate) struct Signal(Option<rustix::process::Signal>);

#[cfg(unix)]
impl Passed {
    /// From now on they have no other meaning.
    pub(crate) fn new() -> std::io::Result<Passed> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Passed {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        use rustix::process::Signal as Unix;
        Signal(tokio::select! {
            // A terminal sends it to both.
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => Some(Unix::TERM),
            _ = self.hang_up.recv() => Some(Unix::HUP),
        })
    }
}

#[cfg(unix)]
impl Signal {
    /// Sends it to a process that has not been waited for; `None` has.
    pub(crate) fn send(self, process: Option<u32>) -> std::io::Result<()> {
        let pid = process.and_then(|id| rustix::process::Pid::from_raw(id as i32));
        match (self.0, pid) {
            (Some(signal), Some(pid)) => Ok(rustix::process::kill_process(pid, signal)?),
            _ => Ok(()),
        }
    }
}

/// Elsewhere Ctrl-C reaches all programs of a console, and nothing else is sent.
#[cfg(not(unix))]
pub(crate) struct Passed;

#[cfg(not(unix))]
impl Passed {
    pub(crate) fn new() -> std::io::Result<Passed> {
        Ok(Passed)
    }

    pub(crate) async fn next(&mut self) -> Signal {
        interrupted().await;
        Signal
    }
}

/// Nothing to pass on.
#[cfg(not(unix))]
pub(crate) struct Signal;

#[cfg(not(unix))]
impl Signal {
    pub(crate) fn send(self, _process: Option<u32>) -> std::io::Result<()> {
        Ok(())
    }
}
