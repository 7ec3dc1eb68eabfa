//! OpenAI's API: `/v1/chat/completions`, `/v1/completions`, `/v1/responses`, `/v1/models`, and what
//! vLLM adds to it. Its error form is also
//! what a client gets that asks for a route no dialect has.

mod chat;
mod completions;
mod error;
mod fields;
mod format;
mod messages;
mod models;
mod responses;
mod thinking;
mod tokens;
mod wire;

use super::Dialect;
use crate::endpoint::{Endpoint, serve};
use crate::route::Route;

pub(super) const DIALECT: Dialect =
    Dialect { prefixes: &[""], routes, error: |error, _| error::error_body(error) };

fn routes() -> Vec<Route> {
    const MODEL: &str = "/v1/models/{*id}";
    let mut routes = vec![
        Route::post(
            "/v1/chat/completions",
            serve::<chat::Chat>,
            "answers a chat, whole or as a stream",
        )
        .takes(chat::Chat::FIELDS),
        Route::post(
            "/v1/completions",
            serve::<completions::Completions>,
            "goes on with plain text, whole or as a stream",
        )
        .takes(completions::Completions::FIELDS),
        Route::get("/v1/models", models::list, "lists the models"),
        Route::get(MODEL, models::one, "one model"),
        Route::post(MODEL, models::act, "loads or unloads a model: `…/load`, `…/unload`"),
        Route::put(MODEL, models::pin, "keeps a model in memory: `…/pin`").takes(&[models::PIN]),
        Route::delete(MODEL, models::unpin, "no longer keeps it: `…/pin`"),
    ];
    routes.extend(responses::routes());
    routes.extend(tokens::routes());
    routes
}
