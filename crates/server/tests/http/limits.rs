//! Clients that are slow, or many, or choose odd names: bounded, and told.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hearth_server::router;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tower::ServiceExt;

use crate::client::{CHAT, chat, post, send as quick, with};
use crate::script::Script;
use crate::socket::{
    ask, endless, get, idle, read_until, reply, rest, send, start, start_on, stats, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_given_up() {
    let mut script = Script::says(&["Two"]);
    script.settings.body_timeout = Duration::from_millis(50);
    let (address, _stop, _) = start(script.app()).await;
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{\"mess");
    // The connection is closed, since nobody knows where the next request would begin.
    let (status, text) = reply(send(address, &head).await).await;
    assert!(status == 408 && text.contains("body_timeout"), "{text}");
    // Bytes that trickle in are no body either, wherever they go.
    for path in [CHAT, "/v1/cache/clear", "/v1/models/toy/pin"] {
        let method = if path.ends_with("pin") { "PUT" } else { "POST" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
        );
        let (reader, mut writer) = send(address, &head).await.into_split();
        let trickle = tokio::spawn(async move {
            // Until the other end is gone.
            while writer.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let text = said(reader).await;
        assert!(text.contains(" 408 ") && text.contains("body_timeout"), "{path}: {text}");
        trickle.await.unwrap();
    }
    assert_eq!(get(address, "/livez").await.0, 200);
}

/// Everything up to the end of a connection, however that comes.
async fn said(mut reader: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    // It may be reset, since what was sent is not read any more.
    let _ = reader.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// It asks for a stream and takes nothing of it. The answer is cancelled, and its place free.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_given_up() {
    let (mut script, gate) = endless().gated();
    script.settings.write_timeout = Duration::from_millis(100);
    let app = script.app();
    // Small buffers on both sides, or the system would take megabytes on its behalf.
    let small = || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket
    };
    let listener = small();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, _stop, _) = start_on(listener.listen(16).unwrap(), app.clone());
    let mut socket = small().connect(address).await.unwrap();
    let wordy = json!({"stream": true, "logprobs": true, "top_logprobs": 20});
    let body = chat(wordy).to_string();
    let length = body.len();
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    // Some two megabytes, and more to come.
    gate.give(1500);
    until("the answer is begun", || app.chat.live().count() == 1).await;
    until("the client is given up", || app.chat.live().count() == 0).await;
    gate.open();
    until("idle", || idle(&app)).await;
    assert_eq!((stats(&app).totals.cancelled, stats(&app).totals.done), (1, 0));
    let text = said(socket).await;
    assert!(text.contains("word0 ") && !text.contains("[DONE]"));
    post(&app, CHAT, &chat(json!({"max_tokens": 2}))).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_come_is_given_up() {
    let mut script = Script::says(&["Two"]);
    script.settings.head_timeout = Duration::from_millis(50);
    let (address, _stop, _) = start(script.app()).await;
    for begin in ["", "GET /livez HT", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        rest(send(address, begin).await).await;
    }
    // Neither does a connection stay that has nothing more to say.
    let mut kept = send(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    read_until(&mut kept, "version").await;
    rest(kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_there_are_places_wait() {
    let mut script = Script::says(&["Two"]);
    script.settings.max_connections = 2;
    let (address, _stop, _) = start(script.app()).await;
    let mut first = send(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    read_until(&mut first, "version").await;
    let mut second = send(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    read_until(&mut second, "version").await;
    let mut third = send(address, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    // The second is served again while the third waits for a place.
    second.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    read_until(&mut second, "version").await;
    let mut byte = [0];
    let early = third.try_read(&mut byte);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    read_until(&mut third, "alive").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_more_urgent_request_is_served_first() {
    let (mut script, gate) = endless().gated();
    script.limits.seqs = 1;
    let app = script.app();
    let (address, _stop, _) = start(app.clone()).await;
    let mut first = ask(address, &chat(json!({"stream": true, "max_tokens": 2}))).await;
    gate.give(1);
    read_until(&mut first, "word0").await;
    let mut asked = Vec::new();
    for priority in [5, 0, -5] {
        let usage = json!({"include_usage": true});
        let body = json!({"priority": priority, "max_tokens": 2, "stream": true});
        let mut socket = ask(address, &with(chat(body), json!({"stream_options": usage}))).await;
        // Headers come when the engine has it, so they arrive there in this order.
        read_until(&mut socket, "\r\n\r\n").await;
        asked.push(socket);
    }
    gate.open();
    let mut waited = Vec::new();
    for socket in asked {
        let text = rest(socket).await;
        let (_, ms) = text.split_once("\"queue_ms\":").unwrap();
        waited.push(ms.split(',').next().unwrap().parse::<f64>().unwrap());
    }
    // Who came first was served last.
    assert!(waited[0] > waited[1] && waited[1] > waited[2], "{waited:?}");
    for wrong in [json!(1.5), json!("high"), json!(i64::from(i32::MAX) + 1), json!(true)] {
        let error = post(&app, CHAT, &chat(json!({"priority": wrong}))).await.error(400);
        assert_eq!(error["param"], "priority");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_too_long_is_given_up() {
    // By the request's own wish, by the server's rule, and by the stricter of the two.
    for (wish, rule) in [(Some(0.05), None), (None, Some(50)), (Some(100.0), Some(50))] {
        let (mut script, gate) = endless().gated();
        script.settings.request_timeout = rule.map(Duration::from_millis);
        let app = script.app();
        let (address, _stop, _) = start(app.clone()).await;
        let mut streamed = ask(address, &chat(json!({"stream": true, "timeout": wish}))).await;
        read_until(&mut streamed, "\r\n\r\n").await;
        let whole = ask(address, &chat(json!({"timeout": wish}))).await;
        until("both are listed", || app.chat.live().count() == 2).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        gate.open();
        let text = rest(streamed).await;
        assert!(text.contains("\"code\":\"timeout\"") && text.contains("[DONE]"), "{text}");
        let (status, text) = reply(whole).await;
        assert!(status == 504 && text.contains("timeout_error"), "{text}");
        // Client libraries obey this.
        assert!(text.to_lowercase().contains("x-should-retry: false"), "{text}");
        until("idle", || idle(&app)).await;
    }
    let app = Script::says(&["Two"]).app();
    for wrong in [json!(0), json!(-1), json!(1e9), json!("1s")] {
        let error = post(&app, CHAT, &chat(json!({"timeout": wrong}))).await.error(400);
        assert_eq!(error["param"], "timeout");
    }
    post(&app, CHAT, &chat(json!({"timeout": 60}))).await.ok();
}

#[tokio::test]
async fn a_clients_own_name_is_kept_if_it_is_harmless() {
    let app = Script::says(&["Two"]).app();
    let long = "x".repeat(129);
    for (name, kept) in [
        ("run-7.a_b:c/d+e=f@g", true),
        (&long[1..], true),
        (&long, false),
        ("", false),
        ("two words", false),
        ("quote\"", false),
        ("caf\u{e9}", false),
    ] {
        let request = Request::post(CHAT)
            .header("x-request-id", axum::http::HeaderValue::from_bytes(name.as_bytes()).unwrap())
            .body(Body::from(chat(json!({})).to_string()))
            .unwrap();
        let response = router(app.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let id = response.headers()["x-request-id"].to_str().unwrap();
        assert_eq!(id == name, kept, "{name}: {id}");
        assert!(kept || (id.len() == 24 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
    let one = quick(&app, "GET", "/", "").await;
    let two = quick(&app, "GET", "/", "").await;
    assert_ne!(one.headers["x-request-id"], two.headers["x-request-id"]);
}
