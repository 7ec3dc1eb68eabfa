//! What can go wrong with a request, told in words a client's author can act on. Not the wire form
//! of it: each dialect writes an error in its own JSON.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A request that is refused, or an answer that broke.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Decides the status and the type names of the dialects.
    pub kind: ErrorKind,
    /// Stable word for programs, such as `context_length_exceeded`.
    pub code: &'static str,
    /// What happened, with numbers, and what to do.
    pub message: String,
    /// Path of the field at fault, such as `messages[1].content`.
    pub param: Option<String>,
    /// When a retry makes sense, if that is known better than [`ErrorKind::retry_after`] knows it.
    pub retry_after: Option<Duration>,
}

/// Who is at fault and whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request cannot be right, ever.
    Invalid,
    /// There is no key with it, or a wrong one.
    Unauthenticated,
    /// It comes from somewhere that may not ask.
    Forbidden,
    /// The body is not called JSON.
    MediaType,
    /// No such route or model.
    NotFound,
    /// The route does not know this method.
    Method,
    /// What is asked for does not go with how things are, such as unloading a pinned model.
    Conflict,
    /// The body is larger than the server reads.
    BodyTooLarge,
    /// The queue is full: the same request may pass later.
    Overloaded,
    /// The server goes down, or has no memory for a model now.
    Unavailable,
    /// The body did not come in time.
    SlowBody,
    /// Somebody cancelled the answer.
    Cancelled,
    /// The time that the request was given is over.
    TimedOut,
    /// Our fault.
    Internal,
}

impl ErrorKind {
    /// The HTTP status of the kind.
    pub fn status(self) -> StatusCode {
        match self {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Method => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::SlowBody => StatusCode::REQUEST_TIMEOUT,
            // Of no standard, but what proxies log for it, and no client library retries it.
            ErrorKind::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::CONFLICT),
            ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Seconds after which a retry makes sense, for the `Retry-After` header.
    fn retry_after(self) -> Option<u32> {
        match self {
            ErrorKind::Overloaded => Some(1),
            ErrorKind::Unavailable => Some(5),
            _ => None,
        }
    }
}

impl ApiError {
    /// Whole seconds after which a retry makes sense, for the `Retry-After` header.
    pub fn retry_after(&self) -> Option<u32> {
        let known =
            self.retry_after.map(|after| after.as_secs_f64().ceil().clamp(1.0, 600.0) as u32);
        known.or(self.kind.retry_after())
    }

    /// What the reader of an answer gets that somebody cancelled.
    pub(crate) fn cancelled() -> ApiError {
        ApiError::new(ErrorKind::Cancelled, "request_cancelled", "the request was cancelled")
    }

    /// A field with a value that cannot be used. `message` should name the field and the bounds.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::refused("invalid_request", param, message)
    }

    /// Like [`ApiError::field`], under a code of its own.
    pub fn refused(
        code: &'static str,
        param: impl Into<String>,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::new(ErrorKind::Invalid, code, message) }
    }

    /// An error that no single field is to blame for.
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { kind, code, message: message.into(), param: None, retry_after: None }
    }

    /// The prompt does not leave room for one new token.
    /// `advice` says what would make the context longer.
    pub fn context_overflow(param: &str, prompt: usize, context: usize, advice: &str) -> ApiError {
        let message = format!(
            "the prompt has {prompt} tokens and the context is {context}, of which at least one \
             is for the answer: shorten the prompt ({advice})"
        );
        ApiError::refused("context_length_exceeded", param, message)
    }

    /// No model of this name. `available` are the ids that would do.
    pub fn unknown_model(name: &str, available: &[String]) -> ApiError {
        let message = format!(
            "model `{name}` is not served here; available: {} (or `default`)",
            available.join(", ")
        );
        let error = ApiError::new(ErrorKind::NotFound, "model_not_found", message);
        ApiError { param: Some("model".to_owned()), ..error }
    }
}

/// Status and headers. The error travels along, and gets its body where it is known which dialect
/// the client speaks.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == ErrorKind::TimedOut {
            // Client libraries would try again at once, and it would take as long again.
            let never = HeaderValue::from_static("false");
            response.headers_mut().insert(HeaderName::from_static("x-should-retry"), never);
        }
        response.extensions_mut().insert(self);
        response
    }
}
