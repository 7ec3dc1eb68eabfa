//! Routes of answers: making one, and what may be done with it by its name.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Responses;
use crate::app::App;
use crate::endpoint::{self, Endpoint, serve};
use crate::error::{ApiError, ErrorKind};
use crate::kept::Answered;
use crate::route::Route;

pub(in crate::dialects::openai) fn routes() -> Vec<Route> {
    const ONE: &str = "/v1/responses/{id}";
    vec![
        Route::post(
            "/v1/responses",
            serve::<Responses>,
            "answers items with items, whole or as a stream",
        )
        .takes(Responses::FIELDS),
        Route::post("/v1/responses/input_tokens", count, "how many tokens such items have")
            .takes(Responses::FIELDS),
        Route::get(ONE, get, "an answer that is kept"),
        Route::delete(ONE, delete, "forgets an answer"),
        Route::get("/v1/responses/{id}/input_items", input_items, "what a kept answer answers"),
        Route::post("/v1/responses/{id}/cancel", cancel, "ends an answer that is being made"),
    ]
}

/// The prompt is made as it would be for an answer, and counted.
async fn count(State(app): State<App>, request: Request) -> Response {
    let n_tokens = endpoint::prompt_length::<Responses>(&app, request).await;
    told(n_tokens.map(|n| json!({"object": "response.input_tokens", "input_tokens": n})))
}

async fn get(State(app): State<App>, Path(id): Path<String>) -> Response {
    told(find(&app, &id).map(|answered| answered.response.clone()))
}

async fn delete(State(app): State<App>, Path(id): Path<String>) -> Response {
    told(match app.kept.remove(&id) {
        true => Ok(json!({"id": id, "object": "response", "deleted": true})),
        false => Err(not_kept(&id)),
    })
}

/// The latest first, unless the query says otherwise.
async fn input_items(State(app): State<App>, Path(id): Path<String>, uri: Uri) -> Response {
    let ascending = uri.query().unwrap_or_default().split('&').any(|part| part == "order=asc");
    told(find(&app, &id).map(|answered| {
        let mut items = answered.input.clone();
        if !ascending {
            items.reverse();
        }
        let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
        let (first, last) = (id(items.first()), id(items.last()));
        json!({"object": "list", "data": items, "first_id": first, "last_id": last,
               "has_more": false})
    }))
}

/// Ends an answer; one that is complete stays as it is.
async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Response {
    let name = id.strip_prefix("resp_").unwrap_or(&id);
    told(match app.chat.live().cancel(name) {
        0 => find(&app, &id).map(|answered| answered.response.clone()),
        _ => Ok(json!({"id": id, "object": "response", "status": "cancelled"})),
    })
}

fn find(app: &App, id: &str) -> Result<Arc<Answered>, ApiError> {
    app.kept.get(id).ok_or_else(|| not_kept(id))
}

fn not_kept(id: &str) -> ApiError {
    let message = format!(
        "no answer is kept as `{id}`: it was not stored, or room was needed for later ones"
    );
    ApiError::new(ErrorKind::NotFound, "response_not_found", message)
}

fn told(done: Result<Value, ApiError>) -> Response {
    match done {
        Ok(body) => endpoint::json(StatusCode::OK, &text::digits::exact(&body)),
        Err(error) => error.into_response(),
    }
}
