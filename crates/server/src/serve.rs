//! The server's life on a socket: accepting, and stopping without cutting answers off. Which
//! address it binds is the caller's decision.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::{App, Settings};
use crate::edge::Peer;
use crate::patience::Patient;
use crate::routes::router;

/// Where to listen unless told otherwise: reachable from this machine only.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// Most bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long the last bytes of finished answers may take to leave.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Serves until `stop` is done. Then `/readyz` says so and new requests are refused, running
/// answers finish within [`Settings::grace`], and it returns. Who drops this future ends it at once.
pub async fn serve(listener: TcpListener, app: App, stop: impl Future<Output = ()>) {
    let connections = Connections::new(&app);
    let ending = tokio::select! {
        () = accept(&listener, &connections) => Ending::Drained,
        ending = drained(&app, stop) => ending,
    };
    drop(listener);
    if tokio::time::timeout(LAST_BYTES, connections.open.shutdown()).await.is_err() {
        tracing::warn!("connections that do not end are cut off");
    }
    // Waits for whatever the engines still have to do, so not on the thread that runs this.
    let models = app.clone();
    let engines = tokio::task::spawn_blocking(move || models.chat.shutdown());
    if ending == Ending::Drained {
        let _ = engines.await;
    }
}

/// Whether all answers were finished.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Drained,
    CutOff,
}

/// Waits for the word to stop, then for the answers that run.
async fn drained(app: &App, stop: impl Future<Output = ()>) -> Ending {
    stop.await;
    app.drain();
    let running = app.chat.live().count();
    tracing::info!(running, "stopping: nothing new is begun");
    if tokio::time::timeout(app.settings.grace, app.chat.live().idle()).await.is_ok() {
        return Ending::Drained;
    }
    let running = app.chat.live().count();
    tracing::warn!(running, "answers that run after the grace period are cut off");
    app.chat.live().cancel_all();
    // Their readers are told.
    let _ = tokio::time::timeout(LAST_BYTES, app.chat.live().idle()).await;
    Ending::CutOff
}

/// The connections of a server.
struct Connections {
    router: Router,
    settings: Settings,
    places: Arc<Semaphore>,
    open: GracefulShutdown,
}

impl Connections {
    fn new(app: &App) -> Connections {
        Connections {
            router: router(app.clone()),
            settings: app.settings,
            places: Arc::new(Semaphore::new(app.settings.max_connections)),
            open: GracefulShutdown::new(),
        }
    }

    /// Serves a connection until either side closes it. `place` is given back then.
    fn begin(&self, connection: TcpStream, peer: Peer, place: OwnedSemaphorePermit) {
        // Tokens are small packets that must not wait for each other.
        let _ = connection.set_nodelay(true);
        let connection = Patient::new(connection, self.settings.write_timeout);
        let service = Named { router: TowerToHyperService::new(self.router.clone()), peer };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .max_buf_size(MAX_HEAD_BYTES)
            .header_read_timeout(self.settings.head_timeout)
            .serve_connection(TokioIo::new(connection), service);
        let connection = self.open.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection");
            }
            drop(place);
        });
    }
}

/// The router, for requests of one address.
struct Named {
    router: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for Named {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.router.call(request)
    }
}

/// Takes connections for ever.
async fn accept(listener: &TcpListener, connections: &Connections) {
    loop {
        if connections.places.available_permits() == 0 {
            let limit = connections.settings.max_connections;
            tracing::warn!(limit, "all connections are taken; new ones wait");
        }
        let Ok(place) = connections.places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((connection, peer)) => connections.begin(connection, Peer(peer.ip()), place),
            Err(error) if of_one_client(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                tokio::time::sleep(NO_ROOM).await;
            }
        }
    }
}

/// The client left before it was accepted.
fn of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
