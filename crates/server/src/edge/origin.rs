//! Where a request comes from, as browsers tell it, and which machine it means.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::error::{ApiError, ErrorKind};

/// What of our headers a page may read.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("request-id, retry-after, x-hearth-seed, x-request-id");
/// How browsers tell where a request comes from, also where they send no `Origin`.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who made a browser send a request.
pub(super) enum Source {
    /// Nobody: a program of its own, or a page that this server sent.
    Own,
    /// A page whose origin is allowed.
    Allowed(HeaderValue),
    /// Any other page.
    Foreign(String),
}

impl Source {
    pub(super) fn of(request: &Request, allowed: &[String]) -> Source {
        let Some(origin) = request.headers().get(header::ORIGIN) else { return Source::Own };
        let name = origin.to_str().unwrap_or_default();
        let fits = |allowed: &String| allowed == "*" || allowed.eq_ignore_ascii_case(name);
        if allowed.iter().any(fits) {
            return Source::Allowed(origin.clone());
        }
        let host = hosts(request).next();
        let own = name.split_once("://").zip(host);
        if own.is_some_and(|((_, name), host)| host.eq_ignore_ascii_case(name.as_bytes())) {
            return Source::Own;
        }
        Source::Foreign(String::from_utf8_lossy(origin.as_bytes()).into_owned())
    }

    /// # Errors
    /// The request is a foreign page's.
    pub(super) fn check(&self, request: &Request) -> Result<(), ApiError> {
        let origin = match self {
            Source::Allowed(_) => return Ok(()),
            Source::Foreign(origin) => origin.as_str(),
            // What only reads, no page can see the answer of.
            Source::Own if matches!(*request.method(), Method::GET | Method::HEAD) => return Ok(()),
            Source::Own => match request.headers().get(FETCH_SITE).map(HeaderValue::as_bytes) {
                Some(b"cross-site" | b"same-site") => "another",
                _ => return Ok(()),
            },
        };
        let message = format!(
            "this comes from a page of origin `{origin}`, which may not use the server; start it \
             with --cors-origin to allow that"
        );
        Err(ApiError::new(ErrorKind::Forbidden, "origin_not_allowed", message))
    }

    /// Tells the browser of an allowed page that it may show the answer.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        if let Source::Allowed(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
    }
}

/// The machines that a request means: the `Host` header, and the same inside of the request line.
fn hosts(request: &Request) -> impl Iterator<Item = &[u8]> {
    let headers = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    headers.chain(request.uri().authority().map(|authority| authority.as_str().as_bytes()))
}

/// A name that points at this machine may be anybody's. Addresses and `localhost` cannot be.
///
/// # Errors
/// The request names a machine that this one is not known as.
pub(super) fn check_host(request: &Request, allowed: &[String]) -> Result<(), ApiError> {
    match hosts(request).find(|host| !is_ours(host, allowed)) {
        None => Ok(()),
        Some(host) => {
            let message = format!(
                "the request is for `{}`, which is no name of this server; start it with \
                 --allow-host to allow that",
                String::from_utf8_lossy(host)
            );
            Err(ApiError::new(ErrorKind::Forbidden, "host_not_allowed", message))
        }
    }
}

fn is_ours(host: &[u8], allowed: &[String]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(&name))
}

/// The types of bodies that a page may send anywhere without asking first are refused, since no
/// program needs them here. One of them is what curl calls its bodies, and taken from curl.
///
/// # Errors
/// A body that is not called JSON.
pub(super) fn check_content(request: &Request) -> Result<(), ApiError> {
    let Some(kind) = request.headers().get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = kind.is_empty() || kind == "application/json" || kind.ends_with("+json");
    let browser = [header::ORIGIN, header::REFERER, FETCH_SITE];
    let browser = browser.iter().any(|name| request.headers().contains_key(name));
    if json || (kind == "application/x-www-form-urlencoded" && !browser) {
        return Ok(());
    }
    let message = format!("the body is called `{kind}`; send Content-Type: application/json");
    Err(ApiError::new(ErrorKind::MediaType, "unsupported_media_type", message))
}
