//! Errors in Anthropic's form, from which its SDKs make their exception classes.

use serde_json::{Value, json};

use crate::error::{ApiError, ErrorKind};

/// `{"type": "error", "error": {"type", "message"}, "request_id"}`.
pub(super) fn body(error: &ApiError, request_id: &str) -> Value {
    let mut body = event(error);
    body["request_id"] = request_id.into();
    body
}

/// The same inside of a stream, where the headers have named the request already.
pub(super) fn event(error: &ApiError) -> Value {
    let kind = match error.kind {
        ErrorKind::Invalid
        | ErrorKind::Method
        | ErrorKind::Conflict
        | ErrorKind::SlowBody
        | ErrorKind::MediaType
        | ErrorKind::Cancelled => "invalid_request_error",
        ErrorKind::Unauthenticated => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::NotFound => "not_found_error",
        ErrorKind::BodyTooLarge => "request_too_large",
        ErrorKind::Overloaded => "rate_limit_error",
        ErrorKind::Unavailable => "overloaded_error",
        ErrorKind::TimedOut => "timeout_error",
        ErrorKind::Internal => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message(error)}})
}

/// This form has no place for the field at fault, so the message names it.
fn message(error: &ApiError) -> String {
    match &error.param {
        Some(param) if !error.message.contains(param.as_str()) => {
            format!("{param}: {}", error.message)
        }
        _ => error.message.clone(),
    }
}
