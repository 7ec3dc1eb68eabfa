//! One answer seen from the side: whatever happens to it is noted here, once for those who look at
//! it now and once for the statistics. Changes nothing about it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::answer::Arrival;
use crate::books::Books;
use crate::error::{ApiError, ErrorKind};
use crate::event::FinishReason;
use crate::live::{Entry, Track};
use crate::metrics::{Gap, Meters};
use crate::pool::{Lease, Waiting};

/// A request whose answer is listed, and not begun.
pub struct Visit {
    pub(crate) arrival: Arrival,
    pub(crate) entry: Entry,
    pub(crate) watch: Watch,
}

impl Visit {
    /// Waits for the model, unless the request is cancelled or its time is over.
    ///
    /// # Errors
    /// Either of these, or why the model could not be loaded.
    pub(crate) async fn wait(
        &self,
        model: Waiting,
        limit: Option<Duration>,
    ) -> Result<Lease, ApiError> {
        tokio::select! {
            biased;
            () = self.watch.track.cancelled() => {
                self.watch.meters.endings.cancelled.fetch_add(1, Ordering::Relaxed);
                Err(ApiError::cancelled())
            }
            lease = model => lease,
            () = over(self.arrival.at, limit) => {
                self.watch.meters.endings.timed_out.fetch_add(1, Ordering::Relaxed);
                let limit = limit.unwrap_or_default().as_millis();
                let message = format!("the model was not loaded within the {limit} ms it was given");
                Err(ApiError::new(ErrorKind::TimedOut, "timeout", message))
            }
        }
    }
}

/// Done when this much time has passed since; never without a limit.
async fn over(since: Instant, limit: Option<Duration>) {
    match limit.and_then(|limit| since.checked_add(limit)) {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

/// Notes what happens to one answer.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) track: Arc<Track>,
    pub(crate) meters: Arc<Meters>,
}

impl Watch {
    /// The engine began with a choice.
    pub(crate) fn started(&self, books: &Books) {
        let Track { cached_tokens, prompt_done, started, .. } = &*self.track;
        started.store(true, Ordering::Relaxed);
        cached_tokens.fetch_add(books.cached_tokens(), Ordering::Relaxed);
        prompt_done.fetch_add(books.cached_tokens(), Ordering::Relaxed);
        self.meters.started(books.prompt_tokens(), books.cached_tokens());
    }

    /// So many more tokens of a prompt have been computed.
    pub(crate) fn computed(&self, tokens: usize) {
        self.track.prompt_done.fetch_add(tokens, Ordering::Relaxed);
        self.meters.recent.prompt(tokens);
    }

    /// A token came at this time. To be called before the books know of it.
    pub(crate) fn token(&self, at: Instant, books: &Books) {
        self.track.generated_tokens.fetch_add(1, Ordering::Relaxed);
        self.meters.token(match books.last_token() {
            Some(last) => Gap::Next(at.saturating_duration_since(last)),
            None => Gap::First(at.saturating_duration_since(self.track.at)),
        });
    }

    /// A choice is complete.
    pub(crate) fn done(&self, reason: FinishReason, books: &Books) {
        self.meters.done(reason, books);
    }
}
