//! How often one client may ask. Each has a bucket that fills evenly; a request takes one from it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{ApiError, ErrorKind};

/// Clients that are remembered. More come only where addresses are cheap, and then the fullest
/// buckets are forgotten, which belong to those who ask least.
const MAX_CLIENTS: usize = 4096;
const MINUTE: Duration = Duration::from_secs(60);

/// Who is counted together.
type Client = (Option<usize>, Option<IpAddr>);

/// What clients have left.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<Client, Bucket>>);

#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// What it holds by now.
    fn filled(self, now: Instant, limit: f64) -> f64 {
        let fresh = now.saturating_duration_since(self.at).as_secs_f64() / MINUTE.as_secs_f64();
        (self.left + fresh * limit).min(limit)
    }
}

impl Rates {
    /// Takes one request: of the key, if there is one, else of the address.
    ///
    /// # Errors
    /// The client has asked too often; the error says when to come back.
    pub(super) fn take(
        &self,
        key: Option<usize>,
        peer: Option<IpAddr>,
        limit: NonZero<u32>,
    ) -> Result<(), ApiError> {
        let client = if key.is_some() { (key, None) } else { (None, peer) };
        self.take_at(client, limit, Instant::now())
    }

    fn take_at(&self, client: Client, limit: NonZero<u32>, now: Instant) -> Result<(), ApiError> {
        let most = f64::from(limit.get());
        // The map is changed in single calls, so a panic elsewhere cannot spoil it.
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_CLIENTS && !buckets.contains_key(&client) {
            let fullest = |bucket: &Bucket| bucket.filled(now, most);
            let least = buckets.iter().max_by(|a, b| fullest(a.1).total_cmp(&fullest(b.1)));
            if let Some(client) = least.map(|(client, _)| *client) {
                buckets.remove(&client);
            }
        }
        let bucket = buckets.entry(client).or_insert(Bucket { left: most, at: now });
        *bucket = Bucket { left: bucket.filled(now, most), at: now };
        if bucket.left < 1.0 {
            let wait = (1.0 - bucket.left) / most * MINUTE.as_secs_f64();
            let message = format!("more than {limit} requests in a minute; try again later");
            let error = ApiError::new(ErrorKind::Overloaded, "rate_limit_exceeded", message);
            return Err(ApiError { retry_after: Some(Duration::from_secs_f64(wait)), ..error });
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_evenly_and_belongs_to_one_client() {
        let rates = Rates::default();
        let limit = NonZero::new(30).unwrap();
        let start = Instant::now();
        let take = |key, seconds| {
            rates.take_at((Some(key), None), limit, start + Duration::from_secs(seconds))
        };
        for _ in 0..30 {
            take(0, 0).unwrap();
        }
        let error = take(0, 0).unwrap_err();
        assert_eq!((error.code, error.retry_after()), ("rate_limit_exceeded", Some(2)));
        take(1, 0).unwrap();
        assert!(take(0, 1).is_err());
        take(0, 2).unwrap();
        assert!(take(0, 2).is_err());
        // After any time there is no more than a minute's worth.
        for _ in 0..30 {
            take(0, 10_000).unwrap();
        }
        assert!(take(0, 10_000).is_err());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let rates = Rates::default();
        let limit = NonZero::new(1).unwrap();
        let now = Instant::now();
        rates.take_at((Some(0), None), limit, now).unwrap();
        for n in 0..2 * MAX_CLIENTS {
            let peer = IpAddr::from((n as u128).to_be_bytes());
            // Half of them come when those before are forgiven.
            let at = now + Duration::from_secs(n as u64 / 100);
            rates.take_at((None, Some(peer)), limit, at).unwrap();
        }
        assert_eq!(rates.0.lock().unwrap().len(), MAX_CLIENTS);
    }
}
