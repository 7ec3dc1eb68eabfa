//! Anthropic's API: `/v1/messages` and `/v1/messages/count_tokens`, as its SDKs and Claude Code speak
//! it.

mod content;
mod count;
mod error;
mod messages;
mod tools;
mod writer;

use super::Dialect;
use crate::endpoint::{Endpoint, serve};
use crate::route::Route;

pub(super) const DIALECT: Dialect =
    Dialect { prefixes: &["/v1/messages"], routes, error: error::body };

fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/v1/messages",
            serve::<messages::Messages>,
            "answers a chat in Anthropic's form, whole or as a stream",
        )
        .takes(messages::Messages::FIELDS),
        Route::post(
            "/v1/messages/count_tokens",
            count::count,
            "how many tokens the prompt of such a chat has",
        )
        .takes(messages::Messages::FIELDS),
    ]
}
