//! `/v1/models`: what is served and how it is, and who is loaded. Listing is OpenAI's; loading,
//! unloading and pinning are ours.

use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::app::App;
use crate::describe::{Field, Shape, honoured};
use crate::endpoint;
use crate::error::{ApiError, ErrorKind};
use crate::fields::Fields;
use crate::pool::{Access, Listing};

/// Fields of a body for `…/pin`.
pub(super) const PIN: &[Field] = &[honoured("pinned", Shape::Switch, "false no longer keeps it")];

pub(super) async fn list(State(app): State<App>) -> Response {
    let data: Vec<Value> = app.chat.pool().list().iter().map(entry).collect();
    endpoint::json(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// Ids may hold slashes, as those of model hubs do.
pub(super) async fn one(State(app): State<App>, Path(id): Path<String>) -> Response {
    told(app.chat.pool().listing(&id))
}

/// `POST /v1/models/{id}/load` and `…/unload`. Answers when it is done.
pub(super) async fn act(State(app): State<App>, Path(path): Path<String>, uri: Uri) -> Response {
    let done = match path.rsplit_once('/') {
        Some((id, "load")) => load(&app, id).await,
        Some((id, "unload")) => unload(&app, id).await,
        _ => Err(no_action(&Method::POST, &uri)),
    };
    told(done)
}

/// `PUT /v1/models/{id}/pin`; a body `{"pinned": false}` unpins.
pub(super) async fn pin(
    State(app): State<App>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    told(match path.rsplit_once('/') {
        Some((id, "pin")) => match wanted_pin(&app, request).await {
            Ok(pinned) => set_pin(&app, id, pinned),
            Err(error) => Err(error),
        },
        _ => Err(no_action(&Method::PUT, request.uri())),
    })
}

/// `DELETE /v1/models/{id}/pin`.
pub(super) async fn unpin(State(app): State<App>, Path(path): Path<String>, uri: Uri) -> Response {
    told(match path.rsplit_once('/') {
        Some((id, "pin")) => set_pin(&app, id, false),
        _ => Err(no_action(&Method::DELETE, &uri)),
    })
}

async fn load(app: &App, id: &str) -> Result<Listing, ApiError> {
    app.check_draining()?;
    let pool = app.chat.pool();
    if let Access::Later(waiting) = pool.access(id)? {
        waiting.await?;
    }
    pool.listing(id)
}

async fn unload(app: &App, id: &str) -> Result<Listing, ApiError> {
    let pool = app.chat.pool();
    pool.unload(id)?.await;
    pool.listing(id)
}

async fn wanted_pin(app: &App, request: Request) -> Result<bool, ApiError> {
    let body = endpoint::body(app, request).await?;
    if body.is_empty() {
        return Ok(true);
    }
    let body = crate::json::parse(&body)?;
    Ok(Fields::body(&body)?.switch("pinned")?.unwrap_or(true))
}

fn set_pin(app: &App, id: &str, pinned: bool) -> Result<Listing, ApiError> {
    app.chat.pool().pin(id, pinned)?;
    app.chat.pool().listing(id)
}

fn no_action(method: &Method, uri: &Uri) -> ApiError {
    let message = format!(
        "{} does not take {method}; there are POST …/load, POST …/unload, PUT and DELETE …/pin",
        uri.path()
    );
    ApiError::new(ErrorKind::Method, "method_not_allowed", message)
}

fn told(listing: Result<Listing, ApiError>) -> Response {
    match listing {
        Ok(listing) => endpoint::json(StatusCode::OK, &entry(&listing)),
        Err(error) => error.into_response(),
    }
}

/// OpenAI's fields, those that other servers' clients look for, and where the model is in its life.
fn entry(model: &Listing) -> Value {
    let survey = model.survey;
    let context = survey.map(|survey| survey.context);
    json!({
        "id": model.name.id,
        "object": "model",
        "created": model.created,
        "owned_by": "hearth",
        "max_model_len": context,
        "context_window": context,
        "aliases": model.name.aliases,
        "status": model.status.name(),
        "size_bytes": survey.map(|survey| survey.bytes),
        "pinned": model.pinned,
        "in_use": model.in_use,
        "waiting": model.waiting,
        "error": model.error,
    })
}
