//! Requests that are listed while they run, and ended by name.

use axum::body::{Body, to_bytes};
use axum::http::Request;
use hearth_server::router;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::client::{CHAT, chat, post, send};
use crate::script::Script;
use crate::socket::{ask, endless, idle, read_until, reply, rest, start, stats, until};

/// What `/v1/requests` lists.
async fn listed(app: &hearth_server::App) -> Vec<Value> {
    let list = send(app, "GET", "/v1/requests", "").await.ok();
    list["data"].as_array().unwrap().clone()
}

/// The value of a field in a response's text.
fn field<'a>(text: &'a str, start: &str, end: char) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no {start} in {text}"));
    rest.split(end).next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_stream_ends_with_an_error_and_frees_the_engine() {
    for by_answer in [true, false] {
        let (script, gate) = endless().gated();
        let app = script.app();
        let (address, _stop, _) = start(app.clone()).await;
        let mut socket = ask(address, &chat(json!({"stream": true}))).await;
        gate.give(4);
        let seen = read_until(&mut socket, "word2").await;
        let id = match by_answer {
            true => field(&seen, "\"id\":\"", '"').to_owned(),
            false => field(&seen.to_lowercase(), "x-request-id: ", '\r').to_owned(),
        };
        assert_eq!(id.starts_with("chatcmpl-"), by_answer);
        until("four steps", || stats(&app).totals.steps == 4).await;
        let list = listed(&app).await;
        assert_eq!((list.len(), &list[0]["state"]), (1, &json!("decoding")));
        assert_eq!(list[0]["prompt_tokens"], list[0]["prompt_tokens_done"]);
        let reply = post(&app, &format!("/v1/requests/{id}/cancel"), &json!({})).await.ok();
        assert_eq!(reply["cancelled"], 1);
        // The stream ends though the engine stands still.
        let text = rest(socket).await;
        let last = text.split("\n\n").filter_map(|frame| frame.split_once("data: "));
        let last: Vec<&str> = last.map(|(_, data)| data.trim()).collect();
        let error = serde_json::from_str::<Value>(last[last.len() - 2]).unwrap();
        assert_eq!(error["error"]["code"], "request_cancelled");
        assert!(last[last.len() - 1].starts_with("[DONE]"));
        let steps = stats(&app).totals.steps;
        gate.open();
        until("idle", || idle(&app)).await;
        // The pass that was waiting at the gate is the last one.
        assert!(stats(&app).totals.steps <= steps + 1);
        assert_eq!(stats(&app).totals.cancelled, 1);
        assert!(listed(&app).await.is_empty());
        post(&app, &format!("/v1/requests/{id}/cancel"), &json!({})).await.error(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_whole_answer_is_an_error_that_no_client_retries() {
    let (mut script, gate) = endless().gated();
    script.limits.seqs = 1;
    let app = script.app();
    let (address, _stop, _) = start(app.clone()).await;
    let head = |id: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {id}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let body = chat(json!({})).to_string();
    let running = crate::socket::send(address, &head("trip-7/a", &body)).await;
    until("listed", || app.chat.live().count() == 1).await;
    // Who is listed first need not be the first with the engine.
    while listed(&app).await[0]["state"] == "loading" {
        tokio::task::yield_now().await;
    }
    let waiting = crate::socket::send(address, &head("trip-7/b", &body)).await;
    until("listed", || app.chat.live().count() == 2).await;
    gate.give(2);
    loop {
        let list = listed(&app).await;
        let states: Vec<&str> = list.iter().map(|entry| entry["state"].as_str().unwrap()).collect();
        if states == ["decoding", "waiting"] {
            break;
        }
    }
    // A slash in a path is written as %2F.
    for (id, socket) in [("trip-7%2Fb", waiting), ("trip-7%2Fa", running)] {
        post(&app, &format!("/v1/requests/{id}/cancel"), &json!({})).await.ok();
        let (status, text) = reply(socket).await;
        assert!(status == 499 && text.contains("request_cancelled"), "{text}");
        assert!(text.to_lowercase().contains("x-request-id: trip-7/"), "{text}");
    }
    gate.open();
    until("idle", || idle(&app)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_cannot_keep_the_engine() {
    let (script, gate) = endless().gated();
    let app = script.app();
    let body = Body::from(chat(json!({"stream": true})).to_string());
    let request = Request::post(CHAT).header("x-request-id", "slow").body(body).unwrap();
    // Nobody polls the body, as when a socket's buffers are full.
    let response = router(app.clone()).oneshot(request).await.unwrap();
    gate.give(3);
    until("three steps", || stats(&app).totals.steps == 3).await;
    post(&app, "/v1/requests/slow/cancel", &json!({})).await.ok();
    gate.give(2);
    until("idle", || idle(&app)).await;
    assert_eq!(stats(&app).totals.cancelled, 1);
    let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("request_cancelled"));
}

#[tokio::test]
async fn unknown_names_are_not_found() {
    let app = Script::says(&["Two"]).app();
    for name in ["nobody", "chatcmpl-nobody", "%FF", "a%00b"] {
        let reply = post(&app, &format!("/v1/requests/{name}/cancel"), &json!({})).await;
        assert!(reply.status == 404 || reply.status == 400, "{name}: {}", reply.status);
    }
}
