//! The router: routes of all dialects, health, and what every response gets on its way.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;

use crate::app::{App, RequestId};
use crate::dialects::{self, error_body};
use crate::endpoint;
use crate::error::{ApiError, ErrorKind};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Everything the server answers to.
pub fn router(app: App) -> Router {
    let limit = DefaultBodyLimit::max(app.settings.max_body_bytes);
    dialects::routes()
        .route("/", get(alive))
        .route("/health", get(health))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(limit)
        .layer(middleware::from_fn(identify))
        .with_state(app)
}

/// Some clients ask for `/` to see whether anybody is there.
async fn alive() -> Response {
    let body = json!({"status": "ok", "server": "hearth", "version": env!("CARGO_PKG_VERSION")});
    endpoint::json(StatusCode::OK, &body)
}

async fn health(State(app): State<App>) -> Response {
    let model = |model: &Arc<crate::Model>| {
        let stats = model.engine.stats();
        let blocks = stats.blocks;
        json!({
            "id": model.id,
            "running": stats.running,
            "waiting": stats.waiting,
            "blocks": {"free": blocks.free, "cached": blocks.cached, "held": blocks.held},
            "book_faults": stats.totals.book_faults,
        })
    };
    let models: Vec<_> = app.chat.models().iter().map(model).collect();
    endpoint::json(StatusCode::OK, &json!({"status": "ok", "models": models}))
}

async fn no_route(method: Method, uri: Uri) -> Response {
    let message = format!("there is no {method} {}; see /v1/models for what is served", uri.path());
    refuse(&ApiError::new(ErrorKind::NotFound, "route_not_found", message))
}

async fn no_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    refuse(&ApiError::new(ErrorKind::Method, "method_not_allowed", message))
}

fn refuse(error: &ApiError) -> Response {
    endpoint::error_json(error, &error_body(error))
}

/// Names the request and logs it: route, status and time, never what it holds.
async fn identify(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    let ms = started.elapsed().as_millis();
    tracing::info!(%id, %method, path, status, ms, "request");
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn request_id() -> String {
    let mut bytes = [0; 12];
    // Without randomness ids repeat, which only makes logs harder to read.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
