//! A sink for callers with a thread of their own.
//!
//! Not for async code, which brings its own [`Sink`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::{Event, Sink};

/// The events of one request, in order. Blocks until the next one; ends after the last. Dropping
/// it cancels the request.
pub struct Answer {
    events: Receiver<Event>,
    /// Dropped with the receiver, which is how the sink knows.
    _listening: Arc<()>,
}

/// The engine's end of an [`Answer`].
pub struct AnswerSink {
    events: Sender<Event>,
    listening: std::sync::Weak<()>,
}

/// Both ends of an answer.
pub fn answer() -> (AnswerSink, Answer) {
    let (sender, events) = channel();
    let listening = Arc::new(());
    let sink = AnswerSink { events: sender, listening: Arc::downgrade(&listening) };
    (sink, Answer { events, _listening: listening })
}

impl Iterator for Answer {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.events.recv().ok()
    }
}

impl Sink for AnswerSink {
    fn send(&mut self, event: Event) {
        // A receiver that left shows in `is_closed`.
        let _ = self.events.send(event);
    }

    fn is_closed(&self) -> bool {
        self.listening.strong_count() == 0
    }
}
