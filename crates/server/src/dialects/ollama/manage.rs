//! What Ollama does to its store of models, and this server does not.

use axum::http::{Method, Uri};

use crate::error::{ApiError, ErrorKind};
use crate::route::Route;

const STORE: &str = "this server does not change which models there are";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/pull", elsewhere, STORE),
        Route::post("/api/push", elsewhere, STORE),
        Route::post("/api/create", elsewhere, STORE),
        Route::post("/api/copy", elsewhere, STORE),
        Route::delete("/api/delete", elsewhere, STORE),
        Route::post("/api/embed", no_embeddings, "there are no embeddings here"),
        Route::post("/api/embeddings", no_embeddings, "there are no embeddings here"),
    ]
}

async fn elsewhere(method: Method, uri: Uri) -> ApiError {
    let message = format!(
        "{method} {} is not supported: {STORE}; use `hearth pull`, `hearth rm` and `hearth serve`",
        uri.path()
    );
    ApiError::new(ErrorKind::Invalid, "unsupported_route", message)
}

async fn no_embeddings(uri: Uri) -> ApiError {
    let message = format!("{} is not supported: these models make no embeddings", uri.path());
    ApiError::new(ErrorKind::Invalid, "unsupported_route", message)
}
