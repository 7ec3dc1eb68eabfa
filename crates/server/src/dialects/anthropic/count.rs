//! `POST /v1/messages/count_tokens`: the prompt is made as it would be for an answer, and counted.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::messages::Messages;
use crate::app::App;
use crate::endpoint;

pub(super) async fn count(State(app): State<App>, request: Request) -> Response {
    match endpoint::prompt_length::<Messages>(&app, request).await {
        Ok(n) => endpoint::json(StatusCode::OK, &json!({"input_tokens": n})),
        Err(error) => error.into_response(),
    }
}
