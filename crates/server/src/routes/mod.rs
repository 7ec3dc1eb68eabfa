//! The router: routes of all dialects, and those for whoever runs the server.

mod cache;
mod probes;
mod requests;
mod status;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};

use crate::app::App;
use crate::dialects::{self, error_body};
use crate::endpoint;
use crate::error::{ApiError, ErrorKind};
use crate::identify::identify;

/// Everything the server answers to.
pub fn router(app: App) -> Router {
    let limit = DefaultBodyLimit::max(app.settings.max_body_bytes);
    dialects::routes()
        .merge(operation())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(limit)
        .layer(middleware::from_fn_with_state(app.clone(), identify))
        .with_state(app)
}

/// Seeing and steering the server.
fn operation() -> Router<App> {
    Router::new()
        .route("/", get(probes::root))
        .route("/health", get(probes::health))
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(status::metrics))
        .route("/v1/status", get(status::status))
        .route("/v1/cache/stats", get(cache::stats))
        .route("/v1/cache/clear", post(cache::clear))
        .route("/v1/requests", get(requests::list))
        .route("/v1/requests/{id}/cancel", post(requests::cancel))
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
