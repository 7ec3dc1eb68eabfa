//! The router: routes of all dialects, and those for whoever runs the server.

mod cache;
mod openapi;
mod probes;
mod requests;
mod status;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::middleware;

use crate::app::App;
use crate::dialects;
use crate::edge::{self, Guard};
use crate::error::{ApiError, ErrorKind};
use crate::identify::identify;
use crate::route::Route;

/// Everything the server answers to.
pub fn router(app: App) -> Router {
    let limit = DefaultBodyLimit::max(app.settings.max_body_bytes);
    let routes = all();
    let guard = Guard::new(app.clone(), &routes);
    let add = |router: Router<App>, Route { path, handler, .. }| router.route(path, handler);
    let router = routes.into_iter().fold(Router::new(), add);
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(limit)
        .layer(middleware::from_fn_with_state(guard, edge::guard))
        .layer(middleware::from_fn_with_state(app.clone(), identify))
        .with_state(app)
}

/// Every route.
fn all() -> Vec<Route> {
    let mut routes = dialects::routes();
    routes.extend(operation());
    routes
}

/// Seeing and steering the server.
fn operation() -> Vec<Route> {
    vec![
        Route::get("/", probes::root, "says that somebody is there").open(),
        Route::get("/health", probes::health, "what the engines are at").open(),
        Route::get("/livez", probes::live, "503 where only a restart helps").open(),
        Route::get("/readyz", probes::ready, "503 where requests would be refused").open(),
        Route::get("/openapi.json", openapi::document, "this list, for programs"),
        Route::get("/metrics", status::metrics, "numbers for Prometheus"),
        Route::get("/v1/status", status::status, "what the server is doing"),
        Route::get("/v1/cache/stats", cache::stats, "what the caches hold"),
        Route::post("/v1/cache/clear", cache::clear, "empties the caches").takes(&[cache::CLEAR]),
        Route::get("/v1/requests", requests::list, "the answers that are being made"),
        Route::post("/v1/requests/{id}/cancel", requests::cancel, "ends an answer"),
    ]
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let message = format!("there is no {method} {}; see /v1/models for what is served", uri.path());
    ApiError::new(ErrorKind::NotFound, "route_not_found", message)
}

async fn no_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(ErrorKind::Method, "method_not_allowed", message)
}
