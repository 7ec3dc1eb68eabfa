//! A server on a real socket, and clients that speak HTTP byte by byte.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hearth_server::{App, serve};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::CHAT;
use crate::script::Script;

/// A server on a real socket, and the word that stops it.
pub(crate) async fn start(app: App) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), app)
}

/// The same on a listener of the test's own.
pub(crate) fn start_on(
    listener: TcpListener,
    app: App,
) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        serve(listener, app, stopped).await;
    });
    (address, stop, served)
}

pub(crate) async fn ask(address: SocketAddr, body: &Value) -> TcpStream {
    request(address, "POST", CHAT, &body.to_string()).await
}

/// Sends a request on a connection of its own.
pub(crate) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> TcpStream {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    send(address, &(head + body)).await
}

/// Sends these bytes on a connection of its own.
pub(crate) async fn send(address: SocketAddr, bytes: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    socket
}

/// Status and whole response of a request without a body.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    reply(request(address, "GET", path, "").await).await
}

/// Status and whole response.
pub(crate) async fn reply(socket: TcpStream) -> (u16, String) {
    let text = rest(socket).await;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no response: {text}")), text)
}

/// Reads until the text holds `mark`.
pub(crate) async fn read_until(socket: &mut TcpStream, mark: &str) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let seen = String::from_utf8_lossy(&text);
        if seen.contains(mark) {
            return seen.into_owned();
        }
        let n = socket.read(&mut buffer).await.unwrap();
        assert!(n > 0, "the connection closed before {mark:?}: {seen}");
        text.extend_from_slice(&buffer[..n]);
    }
}

pub(crate) async fn rest(mut socket: TcpStream) -> String {
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

/// Waits for something another thread does.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::task::yield_now().await;
    }
}

pub(crate) fn stats(app: &App) -> engine::Stats {
    app.chat.models()[0].engine.stats()
}

pub(crate) fn idle(app: &App) -> bool {
    let stats = stats(app);
    (stats.running, stats.waiting, stats.blocks.held) == (0, 0, 0)
}

/// So many words that no answer ends by itself.
pub(crate) fn endless() -> Script {
    let words: Vec<String> = (0..3000).map(|i| format!("word{i} ")).collect();
    Script::says(&words.iter().map(String::as_str).collect::<Vec<_>>())
}
