//! The shape of a stream, and that it holds the same as the whole answer.

use std::time::Duration;

use hearth_server::Settings;
use serde_json::{Value, json};

use crate::client::{CHAT, PLAIN, Reply, chat, deltas, plain, post};
use crate::script::{Script, Speech};

async fn ducks(path: &str, body: Value) -> Reply {
    post(&Script::says(&["Two", " ducks"]).app(), path, &body).await
}

/// Checks the order of frames and returns the finish reason and the usage chunks.
fn check_shape(frames: &[Value]) -> (String, Vec<Value>) {
    for key in ["id", "created", "object", "model"] {
        assert!(frames.iter().all(|frame| frame[key] == frames[0][key] && !frame[key].is_null()));
    }
    let reason = |frame: &Value| frame["choices"][0]["finish_reason"].as_str().map(str::to_owned);
    let ends: Vec<usize> = (0..frames.len()).filter(|&i| reason(&frames[i]).is_some()).collect();
    assert_eq!(ends.len(), 1, "{frames:?}");
    let after = &frames[ends[0] + 1..];
    assert!(frames[..ends[0]].iter().all(|frame| frame["usage"].is_null()));
    (reason(&frames[ends[0]]).unwrap(), after.to_vec())
}

/// Case V02.
#[tokio::test]
async fn a_chat_stream_has_the_shape_clients_expect() {
    let reply = ducks(CHAT, chat(json!({"stream": true}))).await;
    assert_eq!(reply.headers["cache-control"], "no-cache, no-transform");
    assert_eq!(reply.headers["x-accel-buffering"], "no");
    let frames = reply.frames();
    assert_eq!(frames[0]["object"], "chat.completion.chunk");
    assert_eq!(frames[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(frames[1..].iter().all(|f| f["choices"][0]["delta"].get("role").is_none()));
    assert_eq!(deltas(&frames, 0), ["Two", " ducks"]);
    let (reason, usage) = check_shape(&frames);
    assert_eq!((reason.as_str(), usage.len()), ("stop", 0));

    let whole = ducks(CHAT, chat(json!({}))).await.ok();
    assert_eq!(whole["object"], "chat.completion");
    let message = json!({"role": "assistant", "content": "Two ducks", "refusal": null});
    assert_eq!(whole["choices"][0]["message"], message);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(whole["usage"]["completion_tokens"], 3);
}

/// Case V02: (a) and (b).
#[tokio::test]
async fn usage_comes_once_and_only_if_asked_for() {
    for path in [CHAT, PLAIN] {
        let more = json!({"stream": true, "stream_options": {"include_usage": true}});
        let body = if path == CHAT { chat(more) } else { plain(more) };
        let (reason, after) = check_shape(&ducks(path, body).await.frames());
        assert_eq!((reason.as_str(), after.len()), ("stop", 1));
        assert_eq!(after[0]["choices"], json!([]));
        let usage = &after[0]["usage"];
        let count = |name: &str| usage[name].as_u64().unwrap();
        assert_eq!(count("completion_tokens"), 3);
        assert_eq!(count("prompt_tokens") + 3, count("total_tokens"));
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
        assert!(usage["timings"]["queue_ms"].is_number() && usage["seed"].is_number());
    }
    for stream_options in [json!(null), json!({}), json!({"include_usage": false})] {
        let body = chat(json!({"stream": true, "stream_options": stream_options}));
        assert!(check_shape(&ducks(CHAT, body).await.frames()).1.is_empty());
    }
}

/// Case V02: (c).
#[tokio::test]
async fn the_length_limit_is_told() {
    for path in [CHAT, PLAIN] {
        for stream in [false, true] {
            let more = json!({"stream": stream, "max_tokens": 1});
            let body = if path == CHAT { chat(more) } else { plain(more) };
            let reply = ducks(path, body).await;
            let reason = match stream {
                true => check_shape(&reply.frames()).0,
                false => reply.ok()["choices"][0]["finish_reason"].as_str().unwrap().to_owned(),
            };
            assert_eq!(reason, "length");
        }
    }
}

#[tokio::test]
async fn an_answer_without_text_still_has_a_role_and_an_end() {
    let frames =
        post(&Script::says(&[]).app(), CHAT, &chat(json!({"stream": true}))).await.frames();
    assert_eq!(frames[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(check_shape(&frames).0, "stop");
}

#[tokio::test]
async fn a_break_in_mid_stream_is_an_error_frame() {
    let script = || {
        let mut script = Script::says(&["Two", " ducks"]);
        script.speech = Speech::Breaks { at: 1 };
        script.app()
    };
    let frames = post(&script(), CHAT, &chat(json!({"stream": true}))).await.frames();
    assert_eq!(deltas(&frames, 0), ["Two"]);
    let error = &frames.last().unwrap()["error"];
    assert_eq!(error["type"], "api_error");
    assert!(error["message"].as_str().unwrap().contains("cable"), "{error}");
    post(&script(), CHAT, &chat(json!({}))).await.error(500);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_kept_alive() {
    use futures_util::StreamExt;
    use tower::ServiceExt;

    let (mut script, gate) = Script::says(&["Two"]).gated();
    script.settings = Settings { keep_alive: Duration::from_secs(12), ..Settings::default() };
    let request = axum::http::Request::post(CHAT)
        .body(axum::body::Body::from(chat(json!({"stream": true})).to_string()))
        .unwrap();
    let response = hearth_server::router(script.app()).oneshot(request).await.unwrap();
    let mut body = response.into_body().into_data_stream();
    let started = tokio::time::Instant::now();
    for n in 1..=3 {
        assert_eq!(body.next().await.unwrap().unwrap(), ": keep-alive\n\n");
        assert_eq!(started.elapsed().as_secs(), 12 * n);
    }
    gate.open();
    let rest: Vec<String> =
        body.map(|bytes| String::from_utf8(bytes.unwrap().to_vec()).unwrap()).collect().await;
    assert!(rest.concat().contains("Two") && rest.concat().ends_with("data: [DONE]\n\n"));
    assert!(Settings::default().keep_alive <= Duration::from_secs(15));
}
