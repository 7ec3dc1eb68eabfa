//! A server that is told to stop: nothing new is begun, what runs is finished, and everybody is told.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;

use crate::client::chat;
use crate::script::Script;
use crate::socket::{ask, get, read_until, reply, rest, start, until};

#[tokio::test(flavor = "multi_thread")]
async fn running_answers_finish_and_new_ones_are_refused() {
    let (script, gate) = Script::says(&["Two", " ducks"]).gated();
    let app = script.app();
    let (address, stop, served) = start(app.clone()).await;
    let mut running = ask(address, &chat(json!({"stream": true}))).await;
    gate.give(1);
    read_until(&mut running, "Two").await;
    // Only now, or it might be the one that gets the step.
    let whole = ask(address, &chat(json!({}))).await;
    until("both are listed", || app.chat.live().count() == 2).await;
    assert_eq!(get(address, "/readyz").await.0, 200);
    stop.send(()).unwrap();
    // The first connection that is told so; from then on all are.
    let (mut status, mut text) = get(address, "/readyz").await;
    while status == 200 {
        (status, text) = get(address, "/readyz").await;
    }
    assert!(status == 503 && text.contains("draining"), "{text}");
    assert!(text.to_lowercase().contains("retry-after: "), "{text}");
    for stream in [true, false] {
        let (status, text) = reply(ask(address, &chat(json!({"stream": stream}))).await).await;
        assert!(status == 503 && text.contains("shutting_down"), "{text}");
        assert!(text.to_lowercase().contains("retry-after: "), "{text}");
    }
    assert_eq!(get(address, "/livez").await.0, 200);
    gate.open();
    let text = rest(running).await;
    assert!(text.contains(" ducks") && text.contains("[DONE]"), "{text}");
    assert!(reply(whole).await.1.contains("Two ducks"));
    served.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_keep_a_server() {
    let app = Script::says(&["Two"]).app();
    let (address, stop, served) = start(app).await;
    // One that never said a word, one between two requests.
    let silent = TcpStream::connect(address).await.unwrap();
    let mut kept = crate::socket::send(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    read_until(&mut kept, "version").await;
    stop.send(()).unwrap();
    served.await.unwrap();
    assert_eq!(rest(silent).await + &rest(kept).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_grace_period_answers_are_cut_off_and_told() {
    let (mut script, gate) = Script::says(&["Two"]).gated();
    script.settings.grace = Duration::ZERO;
    let (address, stop, served) = start(script.app()).await;
    let mut socket = ask(address, &chat(json!({"stream": true}))).await;
    read_until(&mut socket, "\r\n\r\n").await;
    stop.send(()).unwrap();
    let text = rest(socket).await;
    assert!(text.contains("request_cancelled") && text.contains("[DONE]"), "{text}");
    served.await.unwrap();
    gate.open();
}
