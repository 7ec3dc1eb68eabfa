//! The edge: who may ask at all. Everything that reaches a handler has come through here, whatever
//! its route, so that a new route is closed unless it says that it is open. What a body may hold is
//! not decided here.
//!
//! A server that listens on this machine only is reached by every website that the user looks at:
//! their browser sends what the site's scripts ask for. So requests are refused that carry the name
//! of another machine (a name that was pointed at this one), or the mark of a page that is not ours.

mod keys;
mod origin;
mod rate;

use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::{ApiError, ErrorKind};
use crate::route::{Access, Route};

pub use keys::{Key, Keys};
use origin::Source;
pub(crate) use rate::Rates;

/// Who may ask.
#[derive(Clone, Debug, Default)]
pub struct Edge {
    /// Any of them opens; without any, nobody needs one.
    pub keys: Keys,
    /// Names of this machine, beside `localhost` and addresses, that requests may be sent to. Without
    /// keys others are refused. `*` is any.
    pub hosts: Vec<String>,
    /// Origins of websites that may use the server from a browser, such as `https://example.org`.
    /// `*` is any.
    pub origins: Vec<String>,
    /// Requests of one key, or without keys of one address, in a minute.
    pub per_minute: Option<NonZero<u32>>,
}

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// What the guard of a router goes by.
#[derive(Clone)]
pub(crate) struct Guard {
    app: App,
    routes: Arc<[(Method, &'static str, Access)]>,
}

impl Guard {
    pub(crate) fn new(app: App, routes: &[Route]) -> Guard {
        let routes = routes.iter().map(|route| (route.method.clone(), route.path, route.access));
        Guard { app, routes: routes.collect() }
    }

    fn is_open(&self, method: &Method, path: &str) -> bool {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.routes.iter().any(|(known, route, access)| {
            known == method && *route == path && *access == Access::Open
        })
    }

    /// What may be asked of a path; nothing if there is no such path.
    fn methods(&self, path: &str) -> Vec<&str> {
        let of_path = self.routes.iter().filter(|(_, route, _)| *route == path);
        of_path.map(|(method, ..)| method.as_str()).collect()
    }

    /// Whether a request may go on; `Some` answers it at once.
    fn check(&self, request: &Request, source: &Source) -> Result<Option<Response>, ApiError> {
        let edge = &self.app.edge;
        let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        if edge.keys.is_empty() || !edge.hosts.is_empty() {
            origin::check_host(request, &edge.hosts)?;
        }
        source.check(request)?;
        if request.method() == Method::OPTIONS && !path.is_empty() {
            return Ok(Some(options(request, &self.methods(path))));
        }
        origin::check_content(request)?;
        if self.is_open(request.method(), path) {
            return Ok(None);
        }
        let key = edge.keys.check(request.headers())?;
        if let Some(limit) = edge.per_minute {
            let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
            self.app.rates.take(key, peer, limit)?;
        }
        Ok(None)
    }
}

/// Lets a request through, or refuses it.
pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let source = Source::of(&request, &guard.app.edge.origins);
    let mut response = match guard.check(&request, &source) {
        Ok(None) => next.run(request).await,
        Ok(Some(answer)) => answer,
        Err(error) => {
            guard.app.chat.metrics().refused(error.code);
            let locked = error.kind == ErrorKind::Unauthenticated;
            let mut response = error.into_response();
            if locked {
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
            }
            response
        }
    };
    source.mark(response.headers_mut());
    response
}

/// What a path takes, for whoever asks before sending, browsers on behalf of a page in particular.
fn options(request: &Request, methods: &[&str]) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    if let Ok(methods) = HeaderValue::from_str(&methods.join(", ")) {
        headers.insert(header::ALLOW, methods.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    // Whichever headers the page wants to send: none of them opens anything but a right key.
    if let Some(wanted) = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    let private = HeaderName::from_static("access-control-request-private-network");
    if request.headers().contains_key(private) {
        let name = HeaderName::from_static("access-control-allow-private-network");
        headers.insert(name, HeaderValue::from_static("true"));
    }
    response
}
