//! `POST /api/chat` and `POST /api/generate`. Without anything to answer they load and unload models.

use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use text::{Message, Role};

use super::fields::{self, BOTH, CHAT, GENERATE};
use super::messages;
use super::writer::{Kind, LinesWriter};
use crate::answer::Arrival;
use crate::app::App;
use crate::describe::Field;
use crate::endpoint::{self, Call, Delivery, Endpoint};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::identify::RequestId;
use crate::offer::{self, Offer};
use crate::pool::{Access, Stay};
use crate::request::{Conversation, Echo, Input, Prompt};
use crate::sampling;

struct Chat;
struct Generate;

impl Endpoint for Chat {
    type Writer = LinesWriter;

    const FIELDS: &'static [&'static [Field]] = &[CHAT, BOTH];

    fn read(body: &Fields, app: &App) -> Result<Call<LinesWriter>, ApiError> {
        let Offer { tools, tool_choice, calls } = offer::read(body)?;
        let conversation = Conversation {
            messages: messages::read(body)?,
            tools,
            tool_choice,
            calls,
            kwargs: fields::template_kwargs(body)?,
            ..Conversation::default()
        };
        call(body, app, Input::Chat(conversation), Kind::Chat)
    }
}

impl Endpoint for Generate {
    type Writer = LinesWriter;

    const FIELDS: &'static [&'static [Field]] = &[GENERATE, BOTH];

    fn read(body: &Fields, app: &App) -> Result<Call<LinesWriter>, ApiError> {
        let prompt = body.text("prompt")?.unwrap_or_default();
        let system = body.text("system")?.filter(|system| !system.is_empty());
        let input = match (body.switch("raw")?, system) {
            (Some(true), Some(_)) => {
                let message = "system needs the template that raw leaves out: send one of them";
                return Err(ApiError::field("system", message));
            }
            (Some(true), None) => {
                let prompts = vec![Prompt::Text(prompt.to_owned())];
                Input::Plain { prompts, echo: Echo::Nothing }
            }
            (_, system) => {
                let system = system.map(|system| Message::text(Role::System, system));
                let user = Message::text(Role::User, prompt);
                Input::Chat(Conversation {
                    messages: system.into_iter().chain([user]).collect(),
                    kwargs: fields::template_kwargs(body)?,
                    ..Conversation::default()
                })
            }
        };
        call(body, app, input, Kind::Generate)
    }
}

fn call(body: &Fields, app: &App, input: Input, kind: Kind) -> Result<Call<LinesWriter>, ApiError> {
    let request = fields::request(body, app, input)?;
    let delivery = sampling::delivery(body, Delivery::Stream)?;
    Ok(Call { request, delivery, writer: LinesWriter::new(kind, sampling::model(body)?) })
}

pub(super) async fn chat(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    endpoint::counted(&app, answered::<Chat>(&app, id, request, Kind::Chat).await)
}

pub(super) async fn generate(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    endpoint::counted(&app, answered::<Generate>(&app, id, request, Kind::Generate).await)
}

async fn answered<E: Endpoint>(
    app: &App,
    id: RequestId,
    request: Request,
    kind: Kind,
) -> Result<Response, ApiError> {
    app.check_draining()?;
    let body = endpoint::body(app, request).await?;
    let (reader, bytes) = (app.clone(), body.clone());
    match endpoint::aside(move || errand(&reader, &bytes, kind, E::FIELDS)).await? {
        Some(errand) => errand.run(app).await,
        None => endpoint::answer::<E>(app, id, body).await,
    }
}

/// What is asked with nothing to answer.
struct Errand {
    /// As the client calls it.
    name: String,
    model: String,
    stay: Stay,
    kind: Kind,
}

fn errand(
    app: &App,
    body: &[u8],
    kind: Kind,
    known: &'static [&'static [Field]],
) -> Result<Option<Errand>, ApiError> {
    let body = crate::json::parse(body)?;
    let body = Fields::described(&body, known)?;
    let empty = match kind {
        Kind::Chat => body.list("messages")?.is_none_or(<[Value]>::is_empty),
        Kind::Generate => body.text("prompt")?.is_none_or(str::is_empty),
    };
    if !empty {
        return Ok(None);
    }
    let (name, model) = (sampling::model(&body)?, fields::model(&body, app)?);
    Ok(Some(Errand { name, model, stay: fields::keep_alive(&body)?, kind }))
}

impl Errand {
    async fn run(self, app: &App) -> Result<Response, ApiError> {
        let pool = app.chat.pool();
        let reason = if self.stay == Stay::For(Duration::ZERO) {
            pool.unload(&self.model)?.await;
            "unload"
        } else {
            let lease = match pool.access(&self.model)? {
                Access::Ready(lease) => lease,
                Access::Later(waiting) => waiting.await?,
            };
            lease.stay(self.stay);
            "load"
        };
        let now = Arrival::now("").unix_seconds;
        Ok(endpoint::json(StatusCode::OK, &self.kind.nothing(&self.name, now, reason)))
    }
}
