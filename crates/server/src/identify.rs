//! What every request gets on its way through the router: a name, a line in the log, a count; and an
//! error its body.

use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;

use crate::app::App;
use crate::dialects::error_body;
use crate::error::ApiError;
use crate::metrics::Responses;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The name that Anthropic's SDKs look for.
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Longest name a client may give a request.
const MAX_ID: usize = 128;

/// Names one HTTP request in headers and logs.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// Names the request, counts it and logs it: route, status and time, never what it holds.
pub(crate) async fn identify(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let request_id = chosen(request.headers()).unwrap_or_else(random_id);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    request.extensions_mut().insert(RequestId(request_id.clone()));
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        tell(&mut response, &error_body(&path, &error, &request_id));
    }
    let status = response.status().as_u16();
    let route = route.unwrap_or_else(|| "other".to_owned());
    app.chat.metrics().responded(Responses { method: known(&method), route, status });
    let ms = started.elapsed().as_secs_f64() * 1000.0;
    // An answer has a line of its own, and probes come every few seconds.
    match response.status().is_success() {
        true => tracing::debug!(request_id, %method, path, status, ms, "request"),
        false => tracing::info!(request_id, %method, path, status, ms, "refused"),
    }
    if let Ok(request_id) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(ANTHROPIC_REQUEST_ID, request_id.clone());
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    response
}

/// Puts an error's body, in the words of the client's dialect, into a response without one.
fn tell(response: &mut Response, body: &Value) {
    *response.body_mut() = Body::from(body.to_string());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
}

/// The client's own name for the request, if it is one that can be repeated anywhere.
fn chosen(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    (!id.is_empty() && id.len() <= MAX_ID && id.bytes().all(plain)).then(|| id.to_owned())
}

/// A new name.
pub(crate) fn random_id() -> String {
    let mut bytes = [0; 12];
    // Without randomness ids repeat, which only makes logs harder to read.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The method as a label.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
