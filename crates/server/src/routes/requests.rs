//! Which answers are being made, and ending one of them. Numbers and names; no content.

use std::sync::atomic::Ordering;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::app::App;
use crate::endpoint;
use crate::error::{ApiError, ErrorKind};
use crate::live::Track;

/// `GET /v1/requests`.
pub(super) async fn list(State(app): State<App>) -> Response {
    let requests: Vec<Value> = app.chat.live().all().iter().map(|track| entry(track)).collect();
    endpoint::json(StatusCode::OK, &json!({"object": "list", "data": requests}))
}

fn entry(track: &Track) -> Value {
    json!({
        "request_id": track.request_id,
        "id": track.id,
        "model": track.model,
        "state": track.stage().name(),
        "age_seconds": endpoint::rounded(track.at.elapsed().as_secs_f64()),
        "prompt_tokens": track.prompt_tokens.load(Ordering::Relaxed),
        "prompt_tokens_done": track.prompt_done.load(Ordering::Relaxed),
        "cached_tokens": track.cached_tokens.load(Ordering::Relaxed),
        "generated_tokens": track.generated_tokens.load(Ordering::Relaxed),
    })
}

/// `POST /v1/requests/{id}/cancel`.
pub(super) async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Response {
    let cancelled = app.chat.live().cancel(&id);
    if cancelled == 0 {
        let message = format!(
            "no request is called `{id}`: it is over, or it never was; /v1/requests lists them"
        );
        let error = ApiError::new(ErrorKind::NotFound, "request_not_found", message);
        return error.into_response();
    }
    endpoint::json(StatusCode::OK, &json!({"id": id, "cancelled": cancelled}))
}
