//! The answers that are being made: what may be told of them, and the switch that ends one. Names
//! and numbers only; what was asked and said is not here.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::answer::Arrival;

/// All answers of a server that are not over.
#[derive(Default)]
pub struct Live {
    /// By number, so in order of arrival.
    tracks: Mutex<Tracks>,
    /// Told whenever the last one is over.
    empty: Notify,
}

#[derive(Default)]
struct Tracks {
    next: u64,
    by_number: BTreeMap<u64, Arc<Track>>,
}

/// How far one answer has come.
pub(crate) struct Track {
    /// What the client calls the request, or the answer's own name.
    pub(crate) request_id: String,
    /// The answer's own name, without a dialect's prefix.
    pub(crate) id: String,
    /// Id of the model.
    pub(crate) model: String,
    /// When the request came.
    pub(crate) at: Instant,
    /// Tokens of all its choices' prompts.
    pub(crate) prompt_tokens: AtomicUsize,
    /// Of these, the ones whose state is known by now.
    pub(crate) prompt_done: AtomicUsize,
    /// Of these, the ones that were found in the cache.
    pub(crate) cached_tokens: AtomicUsize,
    /// Tokens generated so far.
    pub(crate) generated_tokens: AtomicUsize,
    /// The engine has it; before that its model is being loaded, or its prompt made.
    pub(crate) submitted: AtomicBool,
    /// The engine has begun with one of its choices.
    pub(crate) started: AtomicBool,
    cancelled: AtomicBool,
    /// Wakes whoever waits for the answer when it is cancelled.
    woken: Notify,
}

/// What an answer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Loading,
    Waiting,
    Prefill,
    Decoding,
}

impl Stage {
    /// One word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Loading => "loading",
            Stage::Waiting => "waiting",
            Stage::Prefill => "prefill",
            Stage::Decoding => "decoding",
        }
    }
}

impl Track {
    fn new(arrival: &Arrival, model: &str) -> Track {
        Track {
            request_id: arrival.request_id.clone(),
            id: arrival.id.clone(),
            model: model.to_owned(),
            at: arrival.at,
            prompt_tokens: AtomicUsize::new(0),
            prompt_done: AtomicUsize::new(0),
            cached_tokens: AtomicUsize::new(0),
            generated_tokens: AtomicUsize::new(0),
            submitted: AtomicBool::new(false),
            started: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            woken: Notify::new(),
        }
    }

    /// What the answer is doing.
    pub(crate) fn stage(&self) -> Stage {
        if self.generated_tokens.load(Ordering::Relaxed) > 0 {
            Stage::Decoding
        } else if self.started.load(Ordering::Relaxed) {
            Stage::Prefill
        } else if self.submitted.load(Ordering::Relaxed) {
            Stage::Waiting
        } else {
            Stage::Loading
        }
    }

    /// Ends the answer: the engine drops it at its next step, and its reader is told.
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.woken.notify_waiters();
    }

    /// Somebody has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Done when somebody cancels it.
    pub(crate) async fn cancelled(&self) {
        let mut woken = pin!(self.woken.notified());
        // From here on a call is not missed.
        woken.as_mut().enable();
        if !self.is_cancelled() {
            woken.await;
        }
    }

    /// Whether this is what somebody means by `name`: the request's id, or the answer's, with or
    /// without a dialect's prefix.
    fn is_called(&self, name: &str) -> bool {
        let prefixed = || name.split_once('-').is_some_and(|(_, id)| id == self.id);
        name == self.request_id || name == self.id || prefixed()
    }
}

impl Live {
    /// Lists an answer until the entry is dropped.
    pub(crate) fn enter(self: &Arc<Live>, arrival: &Arrival, model: &str) -> Entry {
        let track = Arc::new(Track::new(arrival, model));
        let mut tracks = self.lock();
        let number = tracks.next;
        tracks.next += 1;
        tracks.by_number.insert(number, track.clone());
        drop(tracks);
        Entry { live: self.clone(), number, track }
    }

    /// All of them, in order of arrival.
    pub(crate) fn all(&self) -> Vec<Arc<Track>> {
        self.lock().by_number.values().cloned().collect()
    }

    /// Cancels every answer of this name and says how many there were. Clients may use a name
    /// twice.
    pub(crate) fn cancel(&self, name: &str) -> usize {
        let called: Vec<_> = self.all().into_iter().filter(|track| track.is_called(name)).collect();
        for track in &called {
            track.cancel();
        }
        called.len()
    }

    /// Cancels every answer.
    pub(crate) fn cancel_all(&self) {
        for track in self.all() {
            track.cancel();
        }
    }

    /// Answers that are not over.
    pub fn count(&self) -> usize {
        self.lock().by_number.len()
    }

    /// Done when there is no answer.
    pub(crate) async fn idle(&self) {
        loop {
            let mut empty = pin!(self.empty.notified());
            empty.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            empty.await;
        }
    }

    /// What is guarded is changed in single calls, so a panic elsewhere cannot spoil it.
    fn lock(&self) -> MutexGuard<'_, Tracks> {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the list.
pub(crate) struct Entry {
    live: Arc<Live>,
    number: u64,
    pub(crate) track: Arc<Track>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut tracks = self.live.lock();
        tracks.by_number.remove(&self.number);
        if tracks.by_number.is_empty() {
            self.live.empty.notify_waiters();
        }
    }
}
