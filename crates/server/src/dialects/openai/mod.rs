//! OpenAI's API: `/v1/chat/completions`, `/v1/completions`, `/v1/models`. Its error form is also
//! what a client gets that asks for a route no dialect has.

mod chat;
mod completions;
mod error;
mod format;
mod messages;
mod models;
mod sampling;
mod tools;
mod wire;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;
use crate::endpoint::serve;

pub(crate) use error::error_body;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/chat/completions", post(serve::<chat::Chat>))
        .route("/v1/completions", post(serve::<completions::Completions>))
        .route("/v1/models", get(models::list))
        .route(
            "/v1/models/{*id}",
            get(models::one).post(models::act).put(models::pin).delete(models::unpin),
        )
}
