//! Keys: what opens the server, and how one is compared with another.

use std::fmt;

use axum::http::{HeaderMap, header};
use subtle::{Choice, ConstantTimeEq};

use crate::error::{ApiError, ErrorKind};

/// Longest key.
const MAX_BYTES: usize = 512;

/// A word that opens the server. It is never shown.
#[derive(Clone)]
pub struct Key(Box<[u8]>);

impl Key {
    /// A key of visible ASCII characters, which every client can send; `None` if it is none.
    pub fn new(text: &str) -> Option<Key> {
        let fits = (1..=MAX_BYTES).contains(&text.len());
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (fits && visible).then(|| Key(text.as_bytes().into()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The keys of a server.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Key>);

impl From<Vec<Key>> for Keys {
    fn from(keys: Vec<Key>) -> Keys {
        Keys(keys)
    }
}

impl Keys {
    /// Nobody needs a key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which key a request brings; `None` where none is needed.
    ///
    /// # Errors
    /// It brings none, or a wrong one.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<Option<usize>, ApiError> {
        if self.is_empty() {
            return Ok(None);
        }
        let brought = || headers.get_all(header::AUTHORIZATION).iter().filter_map(bearer);
        let brought =
            brought().chain(headers.get_all("x-api-key").iter().map(|key| key.as_bytes()));
        let brought: Vec<&[u8]> = brought.collect();
        let missing = brought.is_empty();
        match brought.into_iter().find_map(|key| self.find(key)) {
            Some(at) => Ok(Some(at)),
            None => {
                let message = match missing {
                    true => {
                        "this server needs a key, as `Authorization: Bearer KEY` or `x-api-key`"
                    }
                    false => "the key is wrong",
                };
                Err(ApiError::new(ErrorKind::Unauthenticated, "invalid_api_key", message))
            }
        }
    }

    /// Every key is compared with all its bytes, so that the time it takes says nothing about how
    /// many of them were right.
    fn find(&self, brought: &[u8]) -> Option<usize> {
        let mut found = None;
        for (at, Key(key)) in self.0.iter().enumerate() {
            let same: Choice = key.ct_eq(brought);
            if bool::from(same) {
                found = Some(at);
            }
        }
        found
    }
}

/// The key in `Bearer KEY`. Schemes are written in any case.
fn bearer(value: &axum::http::HeaderValue) -> Option<&[u8]> {
    let value = value.as_bytes();
    let (scheme, rest) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}
