//! One folder per dialect, one line here. No dialect knows of another.

use serde_json::Value;

use crate::error::ApiError;
use crate::route::Route;

/// What a folder offers.
pub(crate) struct Dialect {
    /// How its paths begin. Of several dialects the longest fitting beginning counts.
    prefixes: &'static [&'static str],
    routes: fn() -> Vec<Route>,
    /// An error in its form, for the request of this name.
    error: fn(&ApiError, &str) -> Value,
}

macro_rules! dialects {
    ($($dialect:ident,)+) => {
        $(mod $dialect;)+

        const DIALECTS: &[Dialect] = &[$($dialect::DIALECT,)+];
    };
}

dialects! {
    anthropic,
    ollama,
    openai,
}

/// The routes of every dialect.
pub(crate) fn routes() -> Vec<Route> {
    DIALECTS.iter().flat_map(|dialect| (dialect.routes)()).collect()
}

/// An error as the clients of a path expect it. What belongs to no dialect is told as OpenAI would.
pub(crate) fn error_body(path: &str, error: &ApiError, request_id: &str) -> Value {
    let fit = |dialect: &&Dialect| {
        let fitting = dialect.prefixes.iter().filter(|prefix| path.starts_with(**prefix));
        fitting.map(|prefix| prefix.len()).max()
    };
    match DIALECTS.iter().max_by_key(fit) {
        Some(dialect) => (dialect.error)(error, request_id),
        None => Value::Null,
    }
}
