//! Which models there are, in Ollama's form.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::fields;
use super::writer::created_at;
use crate::answer::Arrival;
use crate::app::App;
use crate::describe::{Field, Shape, honoured, ignored};
use crate::endpoint;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Model;
use crate::pool::{Listing, Status};

/// The version of Ollama whose API this is. Clients refuse to talk to versions that they find too
/// old.
const OLLAMA: &str = "0.12.0";

/// Fields of `/api/show`.
pub(super) const SHOW: &[Field] = &[
    honoured("model", Shape::Text, "id or alias, with or without `:latest`"),
    ignored("verbose", "there is no more to say"),
];

pub(super) async fn version() -> Response {
    let body = json!({"version": OLLAMA, "hearth": env!("CARGO_PKG_VERSION")});
    endpoint::json(StatusCode::OK, &body)
}

pub(super) async fn tags(State(app): State<App>) -> Response {
    let models: Vec<Value> = app.chat.pool().list().iter().map(entry).collect();
    endpoint::json(StatusCode::OK, &json!({"models": models}))
}

pub(super) async fn loaded(State(app): State<App>) -> Response {
    let models = app.chat.pool().list();
    let loaded = models.iter().filter(|model| model.status == Status::Loaded).map(|model| {
        let mut entry = entry(model);
        entry["size_vram"] = 0.into();
        entry["context_length"] = model.survey.map(|survey| survey.context).into();
        // Nobody can tell while it is in use; as Ollama has it for models that stay.
        let expires = model
            .expires_in
            .map(|left| created_at(Arrival::now("").unix_seconds.saturating_add(left.as_secs())));
        entry["expires_at"] = expires.unwrap_or_else(|| "2318-01-01T00:00:00Z".to_owned()).into();
        entry
    });
    let body = json!({"models": loaded.collect::<Vec<_>>()});
    endpoint::json(StatusCode::OK, &body)
}

fn entry(model: &Listing) -> Value {
    let id = &model.name.id;
    let name = if id.contains(':') { id.clone() } else { format!("{id}:latest") };
    json!({
        "name": name,
        "model": name,
        "modified_at": created_at(model.created),
        "size": model.survey.map_or(0, |survey| survey.bytes),
        "digest": digest(id),
        "details": details(),
    })
}

/// What Ollama's entries say of files, which are not this server's business.
fn details() -> Value {
    json!({"parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "",
           "quantization_level": ""})
}

/// Clients show the beginning of it. It tells names apart, not contents.
fn digest(id: &str) -> String {
    let part = |n: u64| {
        let mut hasher = DefaultHasher::new();
        (n, id).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

pub(super) async fn show(State(app): State<App>, request: Request) -> Response {
    match shown(&app, request).await {
        Ok(body) => endpoint::json(StatusCode::OK, &body),
        Err(error) => error.into_response(),
    }
}

async fn shown(app: &App, request: Request) -> Result<Value, ApiError> {
    let body = endpoint::body(app, request).await?;
    let body = crate::json::parse(&body)?;
    let name = fields::model(&Fields::described(&body, &[SHOW])?, app)?;
    let listing = app.chat.pool().listing(&name)?;
    let models = app.chat.models();
    let model = models.iter().find(|model| model.id == listing.name.id);
    let template = model.and_then(|model| model.template.as_ref());
    Ok(json!({
        "modelfile": "",
        "parameters": "",
        "template": template.map_or("", |template| template.source(&[])),
        "details": details(),
        "model_info": {
            "general.architecture": "hearth",
            "general.basename": listing.name.id,
            "hearth.context_length": listing.survey.map(|survey| survey.context),
        },
        "capabilities": model.map_or(vec!["completion"], |model| capabilities(model)),
        "modified_at": created_at(listing.created),
    }))
}

/// What its template says that a model can do.
fn capabilities(model: &Model) -> Vec<&'static str> {
    let mut can = vec!["completion"];
    if let Some(template) = &model.template {
        let source = template.source(&[]);
        if source.contains("tools") {
            can.push("tools");
        }
        if source.contains("think") {
            can.push("thinking");
        }
    }
    can
}
