//! `/tokenize` and `/detokenize` as vLLM has them, and `/v1/chat/completions/render`: what becomes of a
//! text or a chat before a model sees it. Nothing is generated.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::TokenId;
use serde_json::{Value, json};
use text::{Detokenizer, Specials, Start};

use super::chat::Chat;
use super::{messages, thinking};
use crate::app::App;
use crate::describe::{Field, Shape, honoured};
use crate::endpoint::{self, Endpoint, aside, with_model};
use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::model::Model;
use crate::offer;
use crate::request::{Conversation, Echo, Input, Prompt};
use crate::route::Route;
use crate::{prompt, sampling, service};

const TOKENIZE: &[Field] = &[
    honoured("model", Shape::Text, "id or alias of a model; default: `default`"),
    honoured("prompt", Shape::Text, "a text, or else `messages`"),
    honoured("messages", Shape::List, "a chat, or else `prompt`"),
    honoured("tools", Shape::List, "functions, at most 512"),
    honoured("tool_choice", Shape::TextOrObject, "`auto`, `none`, `required` or a function"),
    honoured("parallel_tool_calls", Shape::Switch, "changes nothing about the prompt"),
    honoured("add_special_tokens", Shape::Switch, "of a `prompt`; default true"),
    honoured("add_generation_prompt", Shape::Switch, "of a chat; only true"),
    honoured("continue_final_message", Shape::Switch, "of a chat; only false"),
    honoured("return_token_strs", Shape::Switch, "whether tokens come as texts too"),
    honoured("chat_template_kwargs", Shape::Object, "variables for the model's template"),
    honoured("enable_thinking", Shape::Switch, "the template variable of this name"),
    honoured("thinking", Shape::Object, "`type`: `enabled` or `disabled`"),
    honoured("reasoning", Shape::Object, "`enabled` and `effort`"),
    honoured("reasoning_effort", Shape::Text, "the template variable; `none` turns thinking off"),
];

const DETOKENIZE: &[Field] = &[
    honoured("model", Shape::Text, "id or alias of a model; default: `default`"),
    honoured("tokens", Shape::List, "token ids"),
];

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/tokenize", tokenize, "the tokens of a text or a chat").takes(&[TOKENIZE]),
        Route::post("/detokenize", detokenize, "the text of tokens").takes(&[DETOKENIZE]),
        Route::post("/v1/chat/completions/render", render, "the prompt that a chat becomes")
            .takes(Chat::FIELDS),
    ]
}

async fn tokenize(State(app): State<App>, request: Request) -> Response {
    told(tokenized(&app, request).await)
}

async fn detokenize(State(app): State<App>, request: Request) -> Response {
    told(detokenized(&app, request).await)
}

async fn render(State(app): State<App>, request: Request) -> Response {
    told(rendered(&app, request).await)
}

fn told(done: Result<Value, ApiError>) -> Response {
    match done {
        Ok(body) => endpoint::json(StatusCode::OK, &body),
        Err(error) => error.into_response(),
    }
}

async fn tokenized(app: &App, request: Request) -> Result<Value, ApiError> {
    let body = endpoint::body(app, request).await?;
    let asked = aside(move || {
        let body = crate::json::parse(&body)?;
        let body = Fields::described(&body, &[TOKENIZE])?;
        let bos = body.switch("add_special_tokens")?.unwrap_or(true);
        let strings = body.switch("return_token_strs")?.unwrap_or(false);
        Ok((sampling::model(&body)?, input(&body)?, bos, strings))
    });
    let (name, input, bos, strings) = asked.await?;
    with_model(app, &name, move |model| {
        let mut tokens = prompt_tokens(model, &input)?;
        if !bos
            && matches!(input, Input::Plain { .. })
            && tokens.first() == model.tokenizer.bos().as_ref()
        {
            tokens.remove(0);
        }
        let mut told = counted(model, &tokens);
        told["token_strs"] = match strings {
            true => tokens.iter().map(|&id| model.tokenizer.token(id)).collect(),
            false => Value::Null,
        };
        Ok(told)
    })
    .await
}

/// A text, or a chat as it would be answered.
fn input(body: &Fields) -> Result<Input, ApiError> {
    if let Some(text) = body.text("prompt")? {
        let prompts = vec![Prompt::Text(text.to_owned())];
        return Ok(Input::Plain { prompts, echo: Echo::Nothing });
    }
    for (name, only) in [("add_generation_prompt", true), ("continue_final_message", false)] {
        if body.switch(name)?.is_some_and(|value| value != only) {
            let message = format!("{name} can only be {only}: that is how chats are answered here");
            return Err(ApiError::refused("unsupported_parameter", name, message));
        }
    }
    let offer::Offer { tools, .. } = offer::read(body)?;
    let (messages, kwargs) = (messages::read(body)?, thinking::template_kwargs(body)?);
    Ok(Input::Chat(Conversation { messages, tools, kwargs, ..Conversation::default() }))
}

fn prompt_tokens(model: &Model, input: &Input) -> Result<Vec<TokenId>, ApiError> {
    let prompts = prompt::prompts(model, input, service::now())?;
    Ok(prompts.into_iter().flat_map(|prompt| prompt.tokens).collect())
}

fn counted(model: &Model, tokens: &[TokenId]) -> Value {
    json!({"count": tokens.len(), "max_model_len": model.context, "tokens": tokens})
}

/// Control tokens included.
fn text_of(model: &Model, tokens: &[TokenId]) -> String {
    let mut text = Detokenizer::new(&model.tokenizer, Specials::Keep, Start::Text);
    let mut pieces: String = tokens.iter().map(|&id| text.push(id)).collect();
    pieces += &text.finish();
    pieces
}

async fn rendered(app: &App, request: Request) -> Result<Value, ApiError> {
    let body = endpoint::body(app, request).await?;
    let reader = app.clone();
    let asked = aside(move || {
        let body = crate::json::parse(&body)?;
        Ok(Chat::read(&Fields::described(&body, Chat::FIELDS)?, &reader)?.request)
    });
    let request = asked.await?;
    let name = request.model.clone();
    with_model(app, &name, move |model| {
        let tokens = prompt_tokens(model, &request.input)?;
        let mut told = counted(model, &tokens);
        told["prompt"] = text_of(model, &tokens).into();
        Ok(told)
    })
    .await
}

async fn detokenized(app: &App, request: Request) -> Result<Value, ApiError> {
    let body = endpoint::body(app, request).await?;
    let asked = aside(move || {
        let body = crate::json::parse(&body)?;
        let body = Fields::described(&body, &[DETOKENIZE])?;
        let list = body.list("tokens")?.ok_or_else(|| body.missing("tokens"))?;
        let token = |(i, value): (usize, &Value)| {
            let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
            id.ok_or_else(|| wrong_type(format!("tokens[{i}]"), "a token id", value))
        };
        let tokens: Vec<TokenId> = list.iter().enumerate().map(token).collect::<Result<_, _>>()?;
        Ok((sampling::model(&body)?, tokens))
    });
    let (name, tokens) = asked.await?;
    with_model(app, &name, move |model| {
        let vocab = model.engine.bounds().vocab;
        if let Some(at) = tokens.iter().position(|&id| id as usize >= vocab) {
            let message = format!("token {} does not exist; there are {vocab}", tokens[at]);
            return Err(ApiError::field(format!("tokens[{at}]"), message));
        }
        Ok(json!({"prompt": text_of(model, &tokens)}))
    })
    .await
}
