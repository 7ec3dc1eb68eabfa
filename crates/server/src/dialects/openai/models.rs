//! `GET /v1/models` and `GET /v1/models/{id}`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::error_body;
use crate::app::App;
use crate::endpoint;
use crate::model::Model;

pub(super) async fn list(State(app): State<App>) -> Response {
    let data: Vec<Value> = app.chat.models().iter().map(entry).collect();
    endpoint::json(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// Ids may hold slashes, as those of model hubs do.
pub(super) async fn one(State(app): State<App>, Path(id): Path<String>) -> Response {
    match app.chat.find(&id) {
        Ok(model) => endpoint::json(StatusCode::OK, &entry(model)),
        Err(error) => endpoint::error_json(&error, &error_body(&error)),
    }
}

/// OpenAI's fields, and those that other servers' clients look for.
fn entry(model: &Model) -> Value {
    json!({
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "hearth",
        "max_model_len": model.context,
        "context_window": model.context,
        "aliases": model.aliases,
    })
}
