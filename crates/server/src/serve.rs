//! The server's life on a socket: accepting, and stopping without cutting answers off. Which
//! address it binds is the caller's decision.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::app::App;
use crate::routes::router;

/// Where to listen unless told otherwise: reachable from this machine only.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// Serves until `stop` is done, then takes no new connection, lets running answers finish for
/// [`crate::Settings::grace`] at most, and returns.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    app: App,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = listener.tap_io(|connection| {
        // Tokens are small packets that must not wait for each other.
        let _ = connection.set_nodelay(true);
    });
    let grace = app.settings.grace;
    let (told, stopping) = oneshot::channel();
    let draining = app.clone();
    let stop = async move {
        stop.await;
        // Waits for the running answers, so not on a thread that carries them.
        tokio::task::spawn_blocking(move || draining.chat.shutdown());
        let _ = told.send(());
    };
    let served = axum::serve(listener, router(app)).with_graceful_shutdown(stop).into_future();
    tokio::select! {
        result = served => result,
        () = async {
            if stopping.await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(grace).await;
        } => {
            tracing::warn!("answers still running after the grace period are cut off");
            Ok(())
        }
    }
}
