//! Engine events in, neutral [`Event`]s out: the work of an answer, done while its reader waits.
//!
//! The engine's thread only drops stamped parcels into a channel. Detokenising and stop strings
//! happen here, on the reader's thread, so that they never slow a step. When the pump is dropped
//! the channel closes, which the engine sees at its next step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use engine::Failure;
use text::{End, Splitter, Start};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::books::{self, Books};
use crate::choice::{Choice, Pushed, Said};
use crate::error::{ApiError, ErrorKind};
use crate::event::{Event, FinishReason};
use crate::live::Track;
use crate::pool::Lease;
use crate::voice::Voice;
use crate::watch::Watch;

/// An engine event, its choice, and when the engine sent it.
pub(crate) struct Parcel {
    choice: usize,
    at: Instant,
    event: engine::Event,
}

/// The engine's end of one choice.
pub(crate) struct Outbox {
    pub(crate) choice: usize,
    pub(crate) parcels: UnboundedSender<Parcel>,
    /// Cancels this choice alone.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// Cancels the whole answer, also while its reader is too slow to notice.
    pub(crate) track: Arc<Track>,
}

impl engine::Sink for Outbox {
    fn send(&mut self, event: engine::Event) {
        // Nobody listening is no fault: `is_closed` tells the engine.
        let _ = self.parcels.send(Parcel { choice: self.choice, at: Instant::now(), event });
    }

    fn is_closed(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
            || self.track.is_cancelled()
            || self.parcels.is_closed()
    }
}

/// One choice as it was handed to the engine.
pub(crate) struct Ordered {
    /// Shared with its [`Outbox`].
    pub(crate) cancelled: Arc<AtomicBool>,
    /// Tokens of its prompt.
    pub(crate) prompt_tokens: usize,
    /// What its text begins with, before anything the model says.
    pub(crate) echo: String,
    /// Cuts a chat's answer.
    pub(crate) splitter: Option<Splitter>,
}

/// Everything one pump needs.
pub(crate) struct Order {
    /// The model, in use until this is dropped.
    pub(crate) lease: Lease,
    /// Stop strings.
    pub(crate) stop: Vec<String>,
    /// Where the texts begin.
    pub(crate) start: Start,
    pub(crate) arrived: Instant,
    /// In the order of their numbers; the choices of one prompt follow each other.
    pub(crate) choices: Vec<Ordered>,
    /// Choices of each prompt.
    pub(crate) n: usize,
    /// How a chat's answers are read.
    pub(crate) voice: Option<Voice>,
    pub(crate) inbox: UnboundedReceiver<Parcel>,
    pub(crate) watch: Watch,
}

/// Runs until the answer is finished or failed. Nobody reading ends it too: it is dropped.
pub(crate) async fn run(mut order: Order, events: UnboundedSender<Event>) {
    let tokenizer = order.lease.tokenizer.clone();
    let track = order.watch.track.clone();
    let mut work = Work { parts: Vec::new(), watch: order.watch, events };
    for (choice, ordered) in order.choices.iter_mut().enumerate() {
        let echo = std::mem::take(&mut ordered.echo);
        if !echo.is_empty() {
            work.tell(Event::Text { choice, text: echo, logprobs: Vec::new() });
        }
        let splitter = ordered.splitter.take().zip(order.voice.as_ref());
        let splitter =
            splitter.map(|(splitter, voice)| (splitter, voice.markers(&tokenizer), voice.calls));
        let choice = Choice::new(&tokenizer, order.start, &order.stop, splitter);
        let books = Books::new(ordered.prompt_tokens, order.arrived);
        let cancelled = ordered.cancelled.clone();
        work.parts.push(Part { choice, cancelled, books, computed: 0, ended: false });
    }
    while work.parts.iter().any(|part| !part.ended) {
        let parcel = tokio::select! {
            biased;
            () = track.cancelled() => return work.tell(Event::Failed(ApiError::cancelled())),
            parcel = order.inbox.recv() => parcel,
        };
        let taken = match parcel {
            Some(parcel) => work.take(parcel),
            None => Err(Failure::Internal("the engine stopped in the middle of it".to_owned())),
        };
        if let Err(failure) = taken {
            return work.tell(Event::Failed(broken(&failure)));
        }
    }
    let parts = work.parts.iter().map(|part| &part.books);
    let usage = books::usage(&parts.collect::<Vec<_>>(), order.n);
    work.tell(Event::Finished(usage));
}

fn broken(failure: &Failure) -> ApiError {
    let (kind, code) = match failure {
        Failure::TimedOut { .. } => (ErrorKind::TimedOut, "timeout"),
        Failure::ShuttingDown => (ErrorKind::Unavailable, "shutting_down"),
        Failure::Device(_) | Failure::Output(_) | Failure::Internal(_) => {
            (ErrorKind::Internal, "engine_error")
        }
    };
    ApiError::new(kind, code, format!("the answer could not be completed: {failure}"))
}

struct Work<'a> {
    parts: Vec<Part<'a>>,
    watch: Watch,
    events: UnboundedSender<Event>,
}

struct Part<'a> {
    choice: Choice<'a>,
    cancelled: Arc<AtomicBool>,
    books: Books,
    /// Prompt tokens known to be done, cached ones included.
    computed: usize,
    ended: bool,
}

impl Work<'_> {
    fn take(&mut self, parcel: Parcel) -> Result<(), Failure> {
        let Parcel { choice, at, event } = parcel;
        let part = &mut self.parts[choice];
        if part.ended {
            return Ok(());
        }
        match event {
            engine::Event::Started { cached_tokens, disk_tokens, miss } => {
                part.books.start(at, cached_tokens, disk_tokens, miss);
                part.computed = cached_tokens;
                self.watch.started(&part.books);
                self.tell(Event::Started { choice, cached_tokens });
            }
            engine::Event::Progress { done, total } => {
                self.watch.computed(done.saturating_sub(part.computed));
                part.computed = done;
                self.tell(Event::Progress { choice, done, total });
            }
            engine::Event::Token { id, logprob } => {
                self.watch.token(at, &part.books);
                part.books.token(at);
                let pushed = part.choice.push(id, logprob);
                if pushed.thought {
                    part.books.thought();
                }
                self.say(choice, pushed);
            }
            engine::Event::Done { reason, usage } => {
                if part.books.completion_tokens() < usage.completion_tokens {
                    self.watch.token(at, &part.books);
                }
                part.books.close(at, usage.completion_tokens);
                let end = match reason {
                    engine::StopReason::StopToken(_) => End::Model,
                    _ => End::Cut,
                };
                let pushed = part.choice.finish(end);
                self.say(choice, pushed);
            }
            engine::Event::Failed(failure) => return Err(failure),
        }
        Ok(())
    }

    fn say(&mut self, choice: usize, pushed: Pushed) {
        for said in pushed.said {
            self.tell(match said {
                Said::Text(text, logprobs) => Event::Text { choice, text, logprobs },
                Said::Reasoning(text) => Event::Reasoning { choice, text },
                Said::Call(call, part) => Event::Call { choice, call, part },
            });
        }
        if let Some(reason) = pushed.ended {
            self.end(choice, reason);
        }
    }

    fn end(&mut self, choice: usize, reason: FinishReason) {
        let part = &mut self.parts[choice];
        part.ended = true;
        part.cancelled.store(true, Ordering::Relaxed);
        self.watch.done(reason, &part.books);
        self.tell(Event::Done { choice, reason });
    }

    fn tell(&self, event: Event) {
        // The receiver lives next to the pump and goes with it.
        let _ = self.events.send(event);
    }
}
