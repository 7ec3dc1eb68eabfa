//! The one handler. A dialect says how to read a body and how to write an answer; waiting,
//! streaming, keep-alive and leaving clients are dealt with here, once for all dialects.

use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, FromRequest, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::answer::{Answer, Arrival, Head};
use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::event::Event;
use crate::fields::Fields;
use crate::frames::Frames;
use crate::identify::{RequestId, random_id};
use crate::pool::{Access, Lease, Waiting};
use crate::request::ChatRequest;
use crate::service::ChatService;
use crate::stream;
use crate::watch::Visit;

/// One URL of one dialect.
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// Writes the answers of this URL.
    type Writer: Writer;

    /// Reads a body.
    ///
    /// # Errors
    /// Any field that cannot be honoured.
    fn read(body: &Fields) -> Result<Call<Self::Writer>, ApiError>;

    /// An error in the dialect's form.
    fn error(error: &ApiError) -> Value;
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

/// How an answer reaches the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One JSON body.
    Whole,
    /// Server-sent events.
    Stream,
}

/// Writes one answer.
pub(crate) trait Writer: Send + 'static {
    /// Frames of one event. [`Event::Finished`] and [`Event::Failed`] also end the stream.
    fn frames(&mut self, head: &Head, event: Event, out: &mut Frames);

    /// The same answer in one piece: all events up to [`Event::Finished`].
    fn reply(self, head: &Head, events: Vec<Event>) -> Value;
}

/// Serves one request of an endpoint.
pub(crate) async fn serve<E: Endpoint>(
    State(app): State<App>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    match answer::<E>(&app, id, request).await {
        Ok(response) => response,
        Err(error) => {
            app.chat.metrics().refused(error.code);
            error_json(&error, &E::error(&error))
        }
    }
}

/// A refusal with a body that is already written.
pub(crate) fn error_json(error: &ApiError, body: &Value) -> Response {
    let mut response = json(error.kind.status(), body);
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.kind == ErrorKind::TimedOut {
        // Client libraries would try again at once, and it would take as long again.
        let never = HeaderValue::from_static("false");
        response.headers_mut().insert(HeaderName::from_static("x-should-retry"), never);
    }
    response
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (status, content_type, body.to_string()).into_response()
}

/// Thousandths are enough for people.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

async fn answer<E: Endpoint>(
    app: &App,
    id: RequestId,
    request: Request,
) -> Result<Response, ApiError> {
    app.check_draining()?;
    let arrival = Arrival { request_id: id.0, ..Arrival::now(random_id()) };
    let body = body(app, request).await?;
    let service = app.clone();
    // Parsing, templates and tokenising may take milliseconds: not on the threads that carry the
    // streams of others. A panic in there ends up here as an error instead of a dead connection.
    let work = move || {
        let body = crate::json::parse(&body)?;
        let mut call = E::read(&Fields::body(&body)?)?;
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

async fn whole(mut answer: Answer, writer: impl Writer) -> Result<Value, ApiError> {
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
pub(crate) fn streamed(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        // Asks nginx not to hold frames back.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}
