//! The one handler. A dialect says how to read a body and how to write an answer; waiting,
//! streaming, keep-alive and leaving clients are dealt with here, once for all dialects.

use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::answer::{Answer, Arrival, Head};
use crate::app::App;
use crate::describe::Field;
use crate::error::{ApiError, ErrorKind};
use crate::event::Event;
use crate::fields::Fields;
use crate::frames::Frames;
use crate::identify::{RequestId, random_id};
use crate::model::Model;
use crate::pool::{Access, Lease, Waiting};
use crate::request::ChatRequest;
use crate::service::ChatService;
use crate::stream;
use crate::watch::Visit;

/// One URL of one dialect.
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// Writes the answers of this URL.
    type Writer: Writer;

    /// Every field it knows at the top of a body.
    const FIELDS: &'static [&'static [Field]];

    /// Reads a body.
    ///
    /// # Errors
    /// Any field that cannot be honoured.
    fn read(body: &Fields, app: &App) -> Result<Call<Self::Writer>, ApiError>;
}

/// A body as it was understood.
pub(crate) struct Call<W> {
    /// What to generate.
    pub(crate) request: ChatRequest,
    /// How the client wants it.
    pub(crate) delivery: Delivery,
    /// Writes the answer.
    pub(crate) writer: W,
}

/// An answer under way.
struct Started<W> {
    delivery: Delivery,
    writer: W,
    answer: Answer,
}

/// How far a request comes without waiting.
enum Begun<W> {
    Answer(Started<W>),
    /// Its model is being loaded.
    Waits(Box<Call<W>>, Waiting, Visit),
}

impl<W> Call<W> {
    fn start(self, model: Lease, visit: Visit) -> Result<Started<W>, ApiError> {
        let answer = ChatService::answer(model, &self.request, visit)?;
        Ok(Started { delivery: self.delivery, writer: self.writer, answer })
    }
}

/// What a streamed body is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Server-sent events.
    Events,
    /// JSON values, one a line.
    Lines,
}

/// How an answer reaches the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One JSON body.
    Whole,
    /// Piece by piece.
    Stream,
}

/// Writes one answer.
pub(crate) trait Writer: Send + 'static {
    /// What its streams are made of.
    const WIRE: Wire = Wire::Events;

    /// A whole answer.
    type Reply: Serialize;

    /// What is sent while nothing else is, so that nobody on the way gives up.
    fn keep_alive(&mut self, _head: &Head, out: &mut Frames) {
        out.comment("keep-alive");
    }

    /// Frames of one event. [`Event::Finished`] and [`Event::Failed`] also end the stream.
    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames);

    /// The same answer in one piece: all events up to [`Event::Finished`].
    fn reply(self, head: &Head, events: Vec<Event>) -> Self::Reply;
}

/// Serves one request of an endpoint.
pub(crate) async fn serve<E: Endpoint>(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let answered = async {
        app.check_draining()?;
        let body = body(&app, request).await?;
        answer::<E>(&app, id, body).await
    };
    counted(&app, answered.await)
}

/// An answer, or a refusal that is counted.
pub(crate) fn counted(app: &App, answered: Result<Response, ApiError>) -> Response {
    answered.unwrap_or_else(|error| {
        app.chat.metrics().refused(error.code);
        error.into_response()
    })
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    // What is sent here has nothing that JSON could not say.
    let text = serde_json::to_string(body).unwrap_or_default();
    (status, content_type, text).into_response()
}

/// Thousandths are enough for people.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Answers a body.
pub(crate) async fn answer<E: Endpoint>(
    app: &App,
    id: RequestId,
    body: Bytes,
) -> Result<Response, ApiError> {
    let arrival = Arrival { request_id: id.0, ..Arrival::now(random_id()) };
    let service = app.clone();
    // Parsing, templates and tokenising may take milliseconds: not on the threads that carry the
    // streams of others. A panic in there ends up here as an error instead of a dead connection.
    let work = move || {
        let body = crate::json::parse(&body)?;
        let mut call = E::read(&Fields::described(&body, E::FIELDS)?, &service)?;
        let limits = [call.request.timeout, service.settings.request_timeout];
        call.request.timeout = limits.into_iter().flatten().min();
        let visit = service.chat.enter(&call.request, arrival)?;
        match service.chat.pool().access(&call.request.model)? {
            Access::Ready(model) => Ok(Begun::Answer(call.start(model, visit)?)),
            Access::Later(waiting) => Ok(Begun::Waits(Box::new(call), waiting, visit)),
        }
    };
    let Started { delivery, writer, answer } = match aside(work).await? {
        Begun::Answer(started) => started,
        // No thread waits for the model, and a client that leaves meanwhile drops all of this.
        Begun::Waits(call, waiting, visit) => {
            let model = visit.wait(waiting, call.request.timeout).await?;
            aside(move || call.start(model, visit)).await?
        }
    };
    let seed = HeaderValue::from(answer.head().seed.cast_signed());
    let mut response = match delivery {
        Delivery::Stream => stream::response(answer, writer, app.settings.keep_alive),
        Delivery::Whole => json(StatusCode::OK, &whole(answer, writer).await?),
    };
    response.headers_mut().insert(HeaderName::from_static("x-hearth-seed"), seed);
    Ok(response)
}

/// Does work that may take milliseconds on a thread of its own.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(panicked()))
}

/// Does something with a model, which is loaded for it if need be.
pub(crate) async fn with_model<T: Send + 'static>(
    app: &App,
    name: &str,
    work: impl FnOnce(&Model) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    app.check_draining()?;
    let model = match app.chat.pool().access(name)? {
        Access::Ready(model) => model,
        Access::Later(waiting) => waiting.await?,
    };
    aside(move || work(&model)).await
}

/// How many tokens the prompt of such a request has. It is made as it would be for an answer.
pub(crate) async fn prompt_length<E: Endpoint>(
    app: &App,
    request: Request,
) -> Result<usize, ApiError> {
    let body = body(app, request).await?;
    let reader = app.clone();
    let read = move || {
        let body = crate::json::parse(&body)?;
        Ok(E::read(&Fields::described(&body, E::FIELDS)?, &reader)?.request)
    };
    let request = aside(read).await?;
    let model = request.model.clone();
    with_model(app, &model, move |model| {
        let prompts = crate::prompt::prompts(model, &request.input, crate::service::now())?;
        Ok(prompts.iter().map(|prompt| prompt.tokens.len()).sum())
    })
    .await
}

/// Reads a body that is neither too long nor too slow.
///
/// # Errors
/// One that is, or that breaks off.
pub(crate) async fn body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let (bytes, time) = (app.settings.max_body_bytes, app.settings.body_timeout);
    match tokio::time::timeout(time, Bytes::from_request(request, app)).await {
        Ok(body) => body.map_err(|rejection| unreadable(&rejection, bytes)),
        Err(_) => {
            let message = format!("the body did not come within {} s", time.as_secs());
            Err(ApiError::new(ErrorKind::SlowBody, "body_timeout", message))
        }
    }
}

async fn whole<W: Writer>(mut answer: Answer, writer: W) -> Result<W::Reply, ApiError> {
    let mut events = Vec::new();
    while let Some(event) = answer.recv().await {
        match event {
            Event::Failed(error) => return Err(error),
            event => events.push(event),
        }
    }
    Ok(writer.reply(answer.head(), events))
}

fn unreadable(rejection: &BytesRejection, limit: usize) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let message = format!("the body is larger than {limit} bytes, the most this server reads");
        return ApiError::new(ErrorKind::BodyTooLarge, "body_too_large", message);
    }
    ApiError::new(ErrorKind::Invalid, "invalid_body", rejection.body_text())
}

fn panicked() -> ApiError {
    let message = "the server failed while it read this request; its log has more";
    ApiError::new(ErrorKind::Internal, "internal_error", message)
}

/// A body of frames, for `stream.rs`.
pub(crate) fn streamed(wire: Wire, body: Body) -> Response {
    let content_type = match wire {
        Wire::Events => "text/event-stream",
        Wire::Lines => "application/x-ndjson",
    };
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        // Asks nginx not to hold frames back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}
