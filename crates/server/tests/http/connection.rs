//! What the connection does: clients that leave, come in numbers, or stay while the server stops.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use hearth_server::{App, router};
use serde_json::json;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::client::{CHAT, chat, post};
use crate::script::{Gate, Script};
use crate::socket::{ask, endless, idle, read_until, rest, start, stats, until};

#[tokio::test(flavor = "multi_thread")]
async fn headers_come_before_the_first_token() {
    let (script, gate) = Script::says(&["Two"]).gated();
    let (address, _stop, _) = start(script.app()).await;
    let mut socket = ask(address, &chat(json!({"stream": true}))).await;
    let head = read_until(&mut socket, "\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("text/event-stream"), "{head}");
    gate.open();
    assert!(rest(socket).await.contains("[DONE]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_frees_the_engine() {
    for stream in [true, false] {
        let (script, gate) = endless().gated();
        let app = script.app();
        let (address, _stop, _) = start(app.clone()).await;
        let mut socket = ask(address, &chat(json!({"stream": stream}))).await;
        gate.give(5);
        if stream {
            read_until(&mut socket, "word2").await;
        }
        until("five steps", || stats(&app).totals.steps == 5).await;
        drop(socket);
        until("cancelled", || {
            // One step at a time, so that the answer cannot run on unseen.
            gate.give(1);
            idle(&app) && stats(&app).totals.cancelled == 1
        })
        .await;
        assert!(stats(&app).totals.generated_tokens < 3000);
        gate.open();
        let reply = post(&app, CHAT, &chat(json!({"max_tokens": 2}))).await.ok();
        assert_eq!(reply["choices"][0]["message"]["content"], "word0 word1 ");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_clients_at_once_get_their_own_answers() {
    let app = endless().app();
    let (address, _stop, _) = start(app.clone()).await;
    let one = |n: usize| async move {
        let body = chat(json!({"max_tokens": n, "stream": n.is_multiple_of(2)}));
        let text = rest(ask(address, &body).await).await;
        let said = (0..n).all(|i| text.contains(&format!("word{i} ")));
        assert!(said && !text.contains(&format!("word{n} ")), "{n}: {text}");
    };
    let clients: Vec<_> = (20..28).map(|n| tokio::spawn(one(n))).collect();
    for client in clients {
        client.await.unwrap();
    }
    until("idle", || idle(&app)).await;
    assert_eq!(stats(&app).totals.done, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_before_a_stream_opens() {
    let (mut script, gate) = Script::says(&["Two"]).gated();
    (script.limits.seqs, script.limits.queue) = (1, 1);
    let app = script.app();
    let (address, _stop, _) = start(app.clone()).await;
    let mut first = ask(address, &chat(json!({"stream": true}))).await;
    read_until(&mut first, "\r\n\r\n").await;
    let mut second = ask(address, &chat(json!({"stream": true}))).await;
    read_until(&mut second, "\r\n\r\n").await;
    let third = post(&app, CHAT, &chat(json!({"stream": true}))).await;
    assert!(third.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() > 0);
    let error = third.error(429);
    assert_eq!(
        (&error["type"], &error["code"]),
        (&"rate_limit_error".into(), &"overloaded".into())
    );
    gate.open();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("requests run and") && message.contains("1 may wait"), "{message}");
    assert!(rest(first).await.contains("Two") && rest(second).await.contains("Two"));
}

/// A request that is dropped together with this.
enum Asked {
    /// Its stream is open, so the engine has it.
    Stream(#[expect(dead_code, reason = "held to be dropped")] Response),
    /// Its handler may be anywhere between the first byte of the body and the answer.
    Whole(JoinHandle<()>),
}

async fn begin(app: &App, stream: bool) -> Asked {
    let body = chat(json!({"stream": stream, "max_tokens": 6})).to_string();
    let request = Request::post(CHAT).body(Body::from(body)).unwrap();
    let asked = router(app.clone()).oneshot(request);
    match stream {
        true => Asked::Stream(asked.await.unwrap()),
        false => Asked::Whole(tokio::spawn(async move { drop(asked.await) })),
    }
}

/// Two requests that are dropped after so many steps, then two that are not.
async fn round(app: &App, gate: &Arc<Gate>, streams: [bool; 2], n_steps: usize) {
    gate.close();
    let before = stats(app).totals;
    let asked = [begin(app, streams[0]).await, begin(app, streams[1]).await];
    gate.give(n_steps);
    until("steps", || stats(app).totals.steps >= before.steps + n_steps as u64).await;
    for asked in asked {
        if let Asked::Whole(task) = asked {
            task.abort();
        }
    }
    let dropped_at = stats(app).totals.steps;
    gate.open();
    until("idle", || idle(app)).await;
    if streams == [true, true] {
        // The pass that was waiting at the gate is all that is spent on them.
        assert!(stats(app).totals.steps <= dropped_at + 1);
    }
    for _ in 0..2 {
        let reply = post(app, CHAT, &chat(json!({"max_tokens": 3}))).await.ok();
        assert_eq!(reply["choices"][0]["message"]["content"], "word0 word1 word2 ");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_requests_never_pile_up() {
    let (mut script, gate) = endless().gated();
    script.limits.seqs = 2;
    let app = script.app();
    for n in 0..48usize {
        let streams = [n.is_multiple_of(2), n.is_multiple_of(3)];
        round(&app, &gate, streams, [0, 1, 3, 5][n % 4]).await;
    }
    until("idle", || idle(&app)).await;
    assert_eq!(stats(&app).blocks.held, 0);
}
