//! What the server is doing, for people and their tools.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::app::{App, Loaded};
use crate::endpoint::{self, rounded};
use crate::metrics::{self, WINDOW};
use crate::pool::{DeviceMemory, Listing};

/// `GET /metrics`.
pub(super) async fn metrics(State(app): State<App>) -> Response {
    let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
    ([(header::CONTENT_TYPE, content_type)], metrics::page(&app)).into_response()
}

/// `GET /v1/status`.
pub(super) async fn status(State(app): State<App>) -> Response {
    let loaded = app.loaded();
    let models: Vec<Value> = app
        .chat
        .pool()
        .list()
        .iter()
        .map(|listing| {
            let loaded = loaded.iter().find(|loaded| loaded.id == listing.name.id);
            model(&app, listing, loaded)
        })
        .collect();
    let body = json!({
        "status": if app.is_draining() { "draining" } else { "ok" },
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": rounded(app.started.elapsed().as_secs_f64()),
        "requests": app.chat.live().count(),
        "memory": memory(&app),
        "models": models,
    });
    endpoint::json(StatusCode::OK, &body)
}

/// What the process takes, and what the models may.
fn memory(app: &App) -> Value {
    let pool = app.chat.pool().memory();
    let limit = (pool.limit < u64::MAX).then_some(pool.limit);
    let mut memory = json!({"limit_bytes": limit, "reserved_bytes": pool.reserved});
    if let Some(footprint) = (app.settings.footprint)() {
        memory["resident_bytes"] = footprint.resident.into();
        memory["anonymous_bytes"] = footprint.anonymous.into();
        memory["file_bytes"] = footprint.files.into();
    }
    if let Some(DeviceMemory { active, cached, peak }) = pool.device {
        memory["device"] =
            json!({"active_bytes": active, "cached_bytes": cached, "peak_bytes": peak});
    }
    memory
}

fn model(app: &App, listing: &Listing, loaded: Option<&Loaded>) -> Value {
    let id = &listing.name.id;
    let meters = app.chat.metrics().of(id);
    let work = meters.recent.work();
    let seconds = WINDOW.as_secs_f64();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    json!({
        "id": id,
        "state": listing.status.name(),
        "pinned": listing.pinned,
        "in_use": listing.in_use,
        "waiting_for_model": listing.waiting,
        "recent": {
            "window_seconds": seconds,
            "prompt_tokens_per_second": rounded(work.prompt as f64 / seconds),
            "generated_tokens_per_second": rounded(work.generated as f64 / seconds),
        },
        "totals": {
            "prompt_tokens": count(&meters.prompt_tokens),
            "cached_tokens": count(&meters.cached_tokens),
            "generated_tokens": count(&meters.generated_tokens),
        },
        "engine": loaded.map(engine),
    })
}

/// What the engine of a loaded model says of itself.
fn engine(loaded: &Loaded) -> Value {
    let Loaded { stats, bounds, alive, kv_format, .. } = loaded;
    let (pace, totals) = (&stats.pace, &stats.totals);
    let ms = |time: Duration| rounded(time.as_secs_f64() * 1000.0);
    json!({
        "alive": alive,
        "context": bounds.context,
        "kv_format": kv_format,
        "running": stats.running,
        "waiting": stats.waiting,
        "parked": stats.parked,
        "blocks": blocks(loaded),
        "last_step_ms": ms(pace.last_step),
        "mean_step_ms": ms(pace.mean_step),
        "mean_answer_ms": ms(pace.mean_answer),
        "steps": totals.steps,
        "rows": totals.rows,
        "done": totals.done,
        "cancelled": totals.cancelled,
        "failed": totals.failed,
        "preemptions": totals.preemptions,
        "resumed": totals.resumed,
        "book_faults": totals.book_faults,
    })
}

/// Blocks of the cache in memory.
pub(super) fn blocks(loaded: &Loaded) -> Value {
    let blocks = loaded.stats.blocks;
    json!({
        "size": engine::BLOCK,
        "total": loaded.blocks(),
        "free": blocks.free,
        "cached": blocks.cached,
        "held": blocks.held,
        "pinned": blocks.pinned,
    })
}
