//! `POST /v1/messages/count_tokens`: the prompt is made as it would be for an answer, and counted.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::messages::Messages;
use crate::app::App;
use crate::endpoint::{self, Endpoint};
use crate::error::ApiError;
use crate::fields::Fields;

pub(super) async fn count(State(app): State<App>, request: Request) -> Response {
    match counted(&app, request).await {
        Ok(body) => endpoint::json(StatusCode::OK, &body),
        Err(error) => error.into_response(),
    }
}

async fn counted(app: &App, request: Request) -> Result<Value, ApiError> {
    let body = endpoint::body(app, request).await?;
    let reader = app.clone();
    let request = endpoint::aside(move || {
        let body = crate::json::parse(&body)?;
        let call = Messages::read(&Fields::described(&body, Messages::FIELDS)?, &reader)?;
        Ok(call.request)
    });
    let request = request.await?;
    let model = request.model.clone();
    let tokens = endpoint::with_model(app, &model, move |model| {
        let prompts = crate::prompt::prompts(model, &request.input, crate::service::now())?;
        Ok(prompts.iter().map(|prompt| prompt.tokens.len()).sum::<usize>())
    });
    Ok(json!({"input_tokens": tokens.await?}))
}
