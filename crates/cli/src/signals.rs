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
