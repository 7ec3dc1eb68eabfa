//! Asks a router and reads what comes back.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use hearth_server::{App, router};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const PLAIN: &str = "/v1/completions";
pub(crate) const MESSAGES: &str = "/v1/messages";

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) async fn send(app: &App, method: &str, path: &str, body: impl Into<Body>) -> Reply {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    let response = router(app.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Reply { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn post(app: &App, path: &str, body: &Value) -> Reply {
    send(app, "POST", path, body.to_string()).await
}

/// A chat of one user message, with more fields.
pub(crate) fn chat(more: Value) -> Value {
    with(json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}]}), more)
}

/// A chat of one user message in Anthropic's form, with more fields.
pub(crate) fn message(more: Value) -> Value {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    with(json!({"model": "toy", "max_tokens": 100, "messages": messages}), more)
}

/// A plain prompt, with more fields.
pub(crate) fn plain(more: Value) -> Value {
    with(json!({"model": "toy", "prompt": "The lid is"}), more)
}

pub(crate) fn with(mut body: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// The error of a refusal with this status.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error
    }

    /// The frames of a stream that ends with `[DONE]`, without it.
    #[track_caller]
    pub(crate) fn frames(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let data = self.text().split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
        let mut data: Vec<&str> = data.collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.text());
        data.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Reply {
    /// The named events of a stream, each with what it holds.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let frames = self.text().split_terminator("\n\n").filter(|frame| !frame.starts_with(':'));
        let event = |frame: &str| {
            let (name, data) = frame.split_once('\n').unwrap_or_else(|| panic!("{frame}"));
            let name = name.strip_prefix("event: ").unwrap_or_else(|| panic!("{frame}"));
            let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("{frame}"));
            (name.to_owned(), serde_json::from_str(data).unwrap())
        };
        frames.map(event).collect()
    }
}

/// Texts of one choice's chunks, empty ones left out.
pub(crate) fn deltas(frames: &[Value], choice: usize) -> Vec<String> {
    let choices = frames.iter().filter_map(|frame| frame["choices"].get(0));
    let mine = choices.filter(|c| c["index"] == choice);
    let text = mine.filter_map(|c| c["delta"]["content"].as_str().or(c["text"].as_str()));
    text.filter(|text| !text.is_empty()).map(str::to_owned).collect()
}
