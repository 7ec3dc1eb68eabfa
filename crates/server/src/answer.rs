//! One answer on its way, as its reader sees it. How engine events become text is `pump.rs`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::ErrorKind;
use crate::event::{Event, FinishReason, Timings, Usage};
use crate::live::{Entry, Track};
use crate::watch::Watch;

/// When and under which name a request came.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Unique among the answers of a server; part of the answer's id.
    pub id: String,
    /// What logs and `x-request-id` call it, which may be the client's choice.
    pub request_id: String,
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
        let id = id.into();
        Arrival { request_id: id.clone(), id, at: Instant::now(), unix_seconds }
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
    /// Tokens of all prompts; a prompt with several choices counts once.
    pub prompt_tokens: usize,
    /// Choices over all prompts.
    pub n_choices: usize,
}

/// Turns engine events into neutral ones while it is polled.
pub(crate) type Pump = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What stands behind an answer.
pub(crate) struct Making {
    /// Its place in the list of answers.
    pub(crate) entry: Entry,
    pub(crate) watch: Watch,
    pub(crate) pump: Pump,
}

/// An answer being made. Dropping it cancels what is not done.
pub struct Answer {
    head: Head,
    watch: Watch,
    /// `None` once it has come to its end.
    pump: Option<Pump>,
    events: UnboundedReceiver<Event>,
    /// How the latest choice ended.
    reason: Option<FinishReason>,
    /// The last event has been handed out.
    over: bool,
    /// Goes last: an answer is listed until everything else of it is gone.
    _entry: Entry,
}

impl Answer {
    pub(crate) fn new(head: Head, making: Making, events: UnboundedReceiver<Event>) -> Answer {
        let Making { entry, watch, pump } = making;
        let pump = Some(pump);
        Answer { head, watch, pump, events, reason: None, over: false, _entry: entry }
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
            self.note(event);
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
        // Only the pump makes events, and it knows whom to wake: were the channel told too, every event
        // would wake its own reader, who has it already.
        match self.events.try_recv() {
            Ok(event) => Poll::Ready(Some(event)),
            Err(_) if self.pump.is_none() => Poll::Ready(None),
            Err(_) => Poll::Pending,
        }
    }

    /// Counts and logs how it ends. Numbers and ids only: what was asked and said is nobody else's
    /// business.
    fn note(&mut self, event: &Event) {
        let endings = &self.watch.meters.endings;
        match event {
            Event::Done { reason, .. } => self.reason = Some(*reason),
            Event::Finished(usage) => {
                self.over = true;
                self.log(usage);
            }
            Event::Failed(error) => {
                self.over = true;
                let ending = match error.kind {
                    ErrorKind::Cancelled => &endings.cancelled,
                    ErrorKind::TimedOut => &endings.timed_out,
                    _ => &endings.failed,
                };
                ending.fetch_add(1, Ordering::Relaxed);
                let Track { request_id, model, .. } = &*self.watch.track;
                let generated = self.watch.track.generated_tokens.load(Ordering::Relaxed);
                let code = error.code;
                match error.kind {
                    ErrorKind::Internal => {
                        tracing::error!(request_id, model, generated, code, %error, "broke off");
                    }
                    _ => tracing::info!(request_id, model, generated, code, %error, "broke off"),
                }
            }
            _ => {}
        }
    }

    fn log(&self, usage: &Usage) {
        let Track { request_id, model, .. } = &*self.watch.track;
        let Timings { queue_ms, prompt_ms, predicted_ms, predicted_per_second, .. } = usage.timings;
        tracing::info!(
            request_id,
            model,
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.cached_tokens,
            completion_tokens = usage.completion_tokens,
            ttft_ms = rounded(queue_ms + prompt_ms),
            total_ms = rounded(queue_ms + prompt_ms + predicted_ms),
            tokens_per_second = rounded(predicted_per_second),
            finish_reason = self.reason.map(FinishReason::name),
            "answered"
        );
    }
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.watch.meters.endings.left.fetch_add(1, Ordering::Relaxed);
        let Track { request_id, model, .. } = &*self.watch.track;
        let generated = self.watch.track.generated_tokens.load(Ordering::Relaxed);
        tracing::info!(request_id, model, generated, "cancelled: the reader left");
    }
}
