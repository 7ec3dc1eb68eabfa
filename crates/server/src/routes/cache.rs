//! What the caches hold, and emptying them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::{DiskStats, Panes, States, Stats};
use serde_json::{Map, Value, json};

use super::status::blocks;
use crate::app::{App, Loaded};
use crate::describe::{Field, Shape, honoured};
use crate::endpoint;
use crate::error::{ApiError, ErrorKind};
use crate::fields::Fields;
use crate::model::Model;

/// Fields of a body for `/v1/cache/clear`.
pub(super) const CLEAR: &[Field] =
    &[honoured("model", Shape::Text, "whose caches; default: every loaded model's")];

/// `GET /v1/cache/stats`.
pub(super) async fn stats(State(app): State<App>) -> Response {
    let models: Vec<Value> = app.loaded().iter().map(model).collect();
    endpoint::json(StatusCode::OK, &json!({"models": models}))
}

fn model(loaded: &Loaded) -> Value {
    let totals = &loaded.stats.totals;
    let reasons = totals.misses.by_name().into_iter();
    let misses: Map<String, Value> = reasons.map(|(name, n)| (name.to_owned(), n.into())).collect();
    json!({
        "id": loaded.id,
        "memory": blocks(loaded),
        "states": states(&loaded.stats),
        "windowed": windowed(&loaded.stats),
        "disk": loaded.stats.disk.as_ref().map(|it| disk(it, &loaded.stats)),
        "tokens_looked_up": totals.prefix_queries,
        "tokens_found": totals.prefix_hits,
        "tokens_from_disk": totals.disk_tokens,
        "misses": misses,
        "prefix_waits": totals.prefix_waits,
    })
}

/// Recurrent states; `null` for a model that has none.
fn states(stats: &Stats) -> Option<Value> {
    let States { free, kept, held } = stats.states;
    shares(free, kept, held)
}

/// Blocks of layers that see only a window; `null` for a model that has none.
fn windowed(stats: &Stats) -> Option<Value> {
    let Panes { free, kept, held } = stats.panes;
    shares(free, kept, held)
}

fn shares(free: usize, kept: usize, held: usize) -> Option<Value> {
    let total = free + kept + held;
    (total > 0).then(|| json!({"total": total, "free": free, "kept": kept, "held": held}))
}

/// Tokens of so many blocks on disk; `null` where some of these are parts of something else.
fn tokens(blocks: u64, stats: &Stats) -> Option<u64> {
    let only_blocks = (stats.states, stats.panes) == (States::default(), Panes::default());
    only_blocks.then_some(blocks * engine::BLOCK as u64)
}

fn disk(disk: &DiskStats, stats: &Stats) -> Value {
    json!({
        "blocks": disk.blocks,
        "tokens": tokens(disk.blocks, stats),
        "bytes": disk.bytes,
        "max_bytes": disk.max_bytes,
        "written": disk.written,
        "read": disk.read,
        "dropped": disk.dropped,
        "write_errors": disk.write_errors,
        "damaged": disk.damaged,
        "foreign": disk.foreign,
        "evicted": disk.evicted,
    })
}

/// `POST /v1/cache/clear`: in memory and on disk, of one model, if the body names it, else of all
/// that are loaded. What running requests hold stays until they are done.
pub(super) async fn clear(State(app): State<App>, request: Request) -> Response {
    match read_and_clear(app, request).await {
        Ok(body) => endpoint::json(StatusCode::OK, &body),
        Err(error) => error.into_response(),
    }
}

async fn read_and_clear(app: App, request: Request) -> Result<Value, ApiError> {
    let body = endpoint::body(&app, request).await?;
    // An engine answers after its current pass, so not on the threads that carry streams.
    endpoint::aside(move || cleared(&app, &body)).await
}

fn cleared(app: &App, body: &[u8]) -> Result<Value, ApiError> {
    let mut models = app.chat.models();
    if let Some(name) = wanted(body)? {
        let id = app.chat.pool().listing(&name)?.name.id;
        models.retain(|model| model.id == id);
    }
    let models: Vec<Value> = models.iter().map(clear_one).collect::<Result<_, _>>()?;
    Ok(json!({"models": models}))
}

/// The model that a body names.
fn wanted(body: &[u8]) -> Result<Option<String>, ApiError> {
    if body.is_empty() {
        return Ok(None);
    }
    let body = crate::json::parse(body)?;
    Ok(Fields::body(&body)?.text("model")?.map(str::to_owned))
}

fn clear_one(model: &Arc<Model>) -> Result<Value, ApiError> {
    let cleared = model.engine.clear_cache().map_err(|refused| {
        ApiError::new(ErrorKind::Unavailable, "engine_error", refused.to_string())
    })?;
    let stats = model.engine.stats();
    let disk = cleared.disk.map(|disk| {
        json!({
            "blocks": disk.blocks,
            "tokens": tokens(disk.blocks, &stats),
            "bytes": disk.bytes,
            "segments": disk.segments,
            "segments_in_use": disk.segments_in_use,
        })
    });
    tracing::info!(model = model.id, blocks = cleared.blocks, "cache cleared");
    Ok(json!({
        "id": model.id,
        "memory": {"blocks": cleared.blocks, "tokens": cleared.blocks * engine::BLOCK},
        "disk": disk,
    }))
}
