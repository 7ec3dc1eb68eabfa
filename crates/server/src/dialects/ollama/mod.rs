//! Ollama's API below `/api`, as its libraries and the programs made for it use it.

mod fields;
mod manage;
mod messages;
mod models;
mod serve;
mod writer;

use serde_json::json;

use super::Dialect;
use crate::route::Route;

pub(super) const DIALECT: Dialect =
    Dialect { prefixes: &["/api/"], routes, error: |error, _| json!({"error": error.message}) };

fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::post("/api/chat", serve::chat, "answers a chat in Ollama's form")
            .takes(&[fields::CHAT, fields::BOTH]),
        Route::post("/api/generate", serve::generate, "answers a prompt in Ollama's form")
            .takes(&[fields::GENERATE, fields::BOTH]),
        Route::get("/api/tags", models::tags, "lists the models"),
        Route::get("/api/ps", models::loaded, "lists the models that are loaded"),
        Route::post("/api/show", models::show, "one model").takes(&[models::SHOW]),
        Route::get("/api/version", models::version, "the version of Ollama whose API this is"),
    ];
    routes.extend(manage::routes());
    routes
}
