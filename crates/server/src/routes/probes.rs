//! For whoever watches over the server: is it there, and can it work?

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::{App, Loaded};
use crate::endpoint;
use crate::pool::Status;

/// Some clients ask for `/` to see whether anybody is there.
pub(super) async fn root() -> Response {
    let body = json!({"status": "ok", "server": "hearth", "version": env!("CARGO_PKG_VERSION")});
    endpoint::json(StatusCode::OK, &body)
}

/// What the engines are at.
pub(super) async fn health(State(app): State<App>) -> Response {
    let model = |model: &Loaded| {
        let (stats, blocks) = (&model.stats, model.stats.blocks);
        json!({
            "id": model.id,
            "running": stats.running,
            "waiting": stats.waiting,
            "blocks": {"free": blocks.free, "cached": blocks.cached, "held": blocks.held},
            "book_faults": stats.totals.book_faults,
        })
    };
    let models: Vec<_> = app.loaded().iter().map(model).collect();
    endpoint::json(StatusCode::OK, &json!({"status": "ok", "models": models}))
}

/// 503 where only a restart helps.
pub(super) async fn live(State(app): State<App>) -> Response {
    match dead(&app) {
        None => endpoint::json(StatusCode::OK, &json!({"status": "alive"})),
        Some(dead) => unavailable(json!({"status": "dead", "models": dead})),
    }
}

/// 503 where requests would be refused.
pub(super) async fn ready(State(app): State<App>) -> Response {
    if app.is_draining() {
        return unavailable(json!({"status": "draining", "running": app.chat.live().count()}));
    }
    if is_starting(&app) {
        return unavailable(json!({"status": "loading"}));
    }
    match dead(&app) {
        None => endpoint::json(StatusCode::OK, &json!({"status": "ready"})),
        Some(dead) => unavailable(json!({"status": "dead", "models": dead})),
    }
}

/// The first model is being loaded. Later ones keep nobody who wants another.
fn is_starting(app: &App) -> bool {
    let models = app.chat.pool().list();
    let any = |status| models.iter().any(|model| model.status == status);
    any(Status::Loading) && !any(Status::Loaded)
}

/// Models whose engine has stopped by itself.
fn dead(app: &App) -> Option<Vec<String>> {
    let gone = app.loaded().into_iter().filter(|model| !model.alive);
    let gone: Vec<String> = gone.map(|model| model.id).collect();
    (!gone.is_empty()).then_some(gone)
}

fn unavailable(body: Value) -> Response {
    let mut response = endpoint::json(StatusCode::SERVICE_UNAVAILABLE, &body);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(5));
    response
}
