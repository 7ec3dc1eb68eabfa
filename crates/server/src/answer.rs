//! One answer on its way, as its reader sees it. How engine events become text is `pump.rs`.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::event::{Event, Timings, Usage};

/// When and under which name a request came.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Unique among the answers of a server; part of the answer's id.
    pub id: String,
    /// What waiting times are measured from.
    pub at: Instant,
    /// Wall clock, for `created`.
    pub unix_seconds: u64,
}

impl Arrival {
    /// A request that came right now.
    pub fn now(id: impl Into<String>) -> Arrival {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_seconds = since.map_or(0, |since| since.as_secs());
        Arrival { id: id.into(), at: Instant::now(), unix_seconds }
    }
}

/// What is known of an answer before its first token.
#[derive(Clone, Debug)]
pub struct Head {
    /// Unique among the answers of a server.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Id of the model, also where the client used an alias.
    pub model: String,
    /// The seed of the first choice of each prompt; the next has one more, and so on.
    pub seed: u64,
    /// Choices over all prompts.
    pub n_choices: usize,
}

/// Turns engine events into neutral ones while it is polled.
pub(crate) type Pump = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An answer being made. Dropping it cancels what is not done.
pub struct Answer {
    head: Head,
    /// `None` once it has come to its end.
    pump: Option<Pump>,
    events: UnboundedReceiver<Event>,
    /// The last event has been handed out.
    over: bool,
}

impl Answer {
    pub(crate) fn new(head: Head, pump: Pump, events: UnboundedReceiver<Event>) -> Answer {
        Answer { head, pump: Some(pump), events, over: false }
    }

    /// What is known beforehand.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next event; `None` after [`Event::Finished`] or [`Event::Failed`]. May be dropped while
    /// it waits without losing anything.
    pub async fn recv(&mut self) -> Option<Event> {
        let event = poll_fn(|context| self.poll(context)).await;
        if let Some(event) = &event {
            self.log(event);
        }
        event
    }

    /// [`Answer::recv`] for threads outside any async runtime.
    pub fn blocking_recv(&mut self) -> Option<Event> {
        futures_executor::block_on(self.recv())
    }

    fn poll(&mut self, context: &mut Context) -> Poll<Option<Event>> {
        // What is there goes out before more is made, so that a slow reader does not pile up text.
        if let Ok(event) = self.events.try_recv() {
            return Poll::Ready(Some(event));
        }
        if let Some(pump) = &mut self.pump
            && pump.as_mut().poll(context).is_ready()
        {
            self.pump = None;
        }
        self.events.poll_recv(context)
    }

    /// Numbers and ids only: what was asked and said is nobody else's business.
    fn log(&mut self, event: &Event) {
        let id = self.head.id.as_str();
        match event {
            Event::Finished(usage) => {
                let Usage { prompt_tokens, cached_tokens, completion_tokens, timings } = usage;
                let Timings { queue_ms, prompt_ms, predicted_ms, .. } = timings;
                tracing::info!(
                    id,
                    prompt_tokens,
                    cached_tokens,
                    completion_tokens,
                    queue_ms,
                    prompt_ms,
                    predicted_ms,
                    "answered"
                );
                self.over = true;
            }
            Event::Failed(error) => {
                tracing::warn!(id, %error, "broke");
                self.over = true;
            }
            _ => {}
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.over {
            tracing::info!(id = self.head.id, "cancelled: the reader left");
        }
    }
}
