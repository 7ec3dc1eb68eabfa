//! Errors in OpenAI's form, from which the official SDKs make their exception classes.

use serde_json::{Value, json};

use crate::error::{ApiError, ErrorKind};

/// `{"error": {"message", "type", "code", "param"}}`.
pub(crate) fn error_body(error: &ApiError) -> Value {
    let kind = match error.kind {
        ErrorKind::Invalid
        | ErrorKind::Method
        | ErrorKind::Conflict
        | ErrorKind::BodyTooLarge
        | ErrorKind::SlowBody
        | ErrorKind::MediaType
        | ErrorKind::Cancelled => "invalid_request_error",
        ErrorKind::Unauthenticated => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::NotFound => "not_found_error",
        ErrorKind::Overloaded => "rate_limit_error",
        ErrorKind::TimedOut => "timeout_error",
        ErrorKind::Unavailable | ErrorKind::Internal => "api_error",
    };
    json!({"error": {
        "message": error.message,
        "type": kind,
        "code": error.code,
        "param": error.param,
    }})
}
