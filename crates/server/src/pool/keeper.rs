//! The thread that loads and unloads, one model at a time, first come, first served. It decides
//! under the lock and works without it, so that nobody who answers waits for a load.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::room::{Account, Room, human_bytes, make_room};
use super::state::{Stage, State, Waiter};
use super::{Inner, Lease, LoadError, Name, Stay, Survey, shutting_down};
use crate::error::{ApiError, ErrorKind};
use crate::model::Model;

/// What to do next, found under the lock.
enum Step {
    /// Everything is over; these models are to be shut down.
    Stop(Vec<Arc<Model>>),
    /// A model nobody uses has to go.
    Unload(usize, Arc<Model>),
    /// The files of a model have to be looked at.
    Survey(usize, Name),
    /// There is room for a model.
    Load(usize, Name),
    /// News for those who wait.
    Tell(Vec<Letter>),
    /// The books have changed; look again.
    Again,
    /// Nothing to do for so long, or until something happens.
    Sleep(Option<Duration>),
}

/// An answer to somebody who waits. Sent without the lock, because what cannot be delivered gives
/// its lease back.
enum Letter {
    Loaded(Waiter, Result<Lease, ApiError>),
    Gone(tokio::sync::oneshot::Sender<()>),
}

pub(super) fn run(inner: &Arc<Inner>) {
    loop {
        let mut state = inner.lock();
        match next(inner, &mut state) {
            Step::Stop(models) => {
                drop(state);
                return models.iter().for_each(|model| model.engine.shutdown());
            }
            Step::Unload(at, model) => {
                drop(state);
                unload(inner, at, model);
            }
            Step::Survey(at, name) => {
                drop(state);
                let surveyed = guarded(|| inner.loader.survey(&name));
                let letters = keep_survey(&mut inner.lock(), at, surveyed);
                deliver(letters);
            }
            Step::Load(at, name) => {
                drop(state);
                let loaded = guarded(|| inner.loader.load(&name));
                let letters = keep_model(inner, at, loaded);
                deliver(letters);
            }
            Step::Tell(letters) => {
                drop(state);
                deliver(letters);
            }
            Step::Again => {}
            Step::Sleep(time) => sleep(inner, state, time),
        }
    }
}

fn sleep(inner: &Inner, state: MutexGuard<'_, State>, time: Option<Duration>) {
    // Woken early or late, the next round looks at everything anew.
    match time {
        Some(time) => {
            let woken = inner.changed.wait_timeout(state, time);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
        None => drop(inner.changed.wait(state).unwrap_or_else(PoisonError::into_inner)),
    }
}

fn next(inner: &Arc<Inner>, state: &mut State) -> Step {
    if state.stopping {
        return stop(state);
    }
    let now = (inner.clock)();
    state.close_idle(now, inner.rules.idle_ttl);
    for (at, entry) in state.entries.iter_mut().enumerate() {
        if let Some(model) = entry.take_unused() {
            return Step::Unload(at, model);
        }
    }
    let letters = settle(inner, state);
    if !letters.is_empty() {
        return Step::Tell(letters);
    }
    if let Some(step) = next_load(inner, state, now) {
        return step;
    }
    let unknown = |entry: &super::state::Entry| {
        entry.survey.is_none() && matches!(entry.stage, Stage::Unloaded)
    };
    if state.queue.is_empty()
        && let Some(at) = state.entries.iter().position(unknown)
    {
        return Step::Survey(at, state.entries[at].name.clone());
    }
    let expiry = state.next_expiry(inner.rules.idle_ttl);
    let patience = state.queue.front().map(|wanted| wanted.since + inner.rules.patience);
    let deadline = expiry.into_iter().chain(patience).min();
    Step::Sleep(deadline.map(|at| at.saturating_sub(now)))
}

fn stop(state: &mut State) -> Step {
    state.queue.clear();
    let mut letters = Vec::new();
    for entry in &mut state.entries {
        let waiters = entry.waiters.drain(..);
        letters.extend(waiters.map(|waiter| Letter::Loaded(waiter, Err(shutting_down()))));
    }
    if !letters.is_empty() {
        return Step::Tell(letters);
    }
    Step::Stop(state.entries.iter().filter_map(|entry| entry.model().cloned()).collect())
}

/// What can be told to those who wait without doing anything for it: that a model is there, or that
/// it is gone.
fn settle(inner: &Arc<Inner>, state: &mut State) -> Vec<Letter> {
    let mut letters = Vec::new();
    for at in 0..state.entries.len() {
        let entry = &mut state.entries[at];
        entry.waiters.retain(|waiter| !waiter.is_closed());
        match &entry.stage {
            Stage::Unloaded | Stage::Failed(_) => {
                letters.extend(entry.leavers.drain(..).map(Letter::Gone));
            }
            Stage::Loaded(model) => {
                let model = Arc::clone(model);
                entry.in_use += entry.waiters.len();
                letters.extend(entry.waiters.drain(..).map(|waiter| {
                    let lease = Lease::new(Arc::clone(&model), Arc::clone(inner), at);
                    Letter::Loaded(waiter, Ok(lease))
                }));
                if !entry.leavers.is_empty() {
                    entry.close();
                }
            }
            Stage::Loading | Stage::Closing(..) | Stage::Unloading => {}
        }
    }
    letters
}

/// What the model at the head of the queue needs; `None` if that is patience, or there is none.
fn next_load(inner: &Arc<Inner>, state: &mut State, now: Duration) -> Option<Step> {
    let head = state.queue.front()?;
    let (at, since) = (head.entry, head.since);
    let entry = &state.entries[at];
    if entry.waiters.is_empty() || matches!(entry.stage, Stage::Loaded(_)) {
        return Some(leave_queue(state));
    }
    if now >= since + inner.rules.patience {
        return Some(refuse(state, out_of_patience(state, at)));
    }
    if !matches!(entry.stage, Stage::Unloaded | Stage::Failed(_)) {
        return None;
    }
    let Some(survey) = entry.survey else {
        return Some(Step::Survey(at, entry.name.clone()));
    };
    let account = Account {
        limit: inner.rules.memory,
        baseline: inner.rules.baseline,
        measured: inner.measured(state),
    };
    match make_room(survey.bytes, &account, &state.residents(at)) {
        Room::Free => {
            let entry = &mut state.entries[at];
            entry.stage = Stage::Loading;
            let name = entry.name.clone();
            state.queue.pop_front();
            Some(Step::Load(at, name))
        }
        Room::Close(entries) => {
            for at in entries {
                state.entries[at].make_way();
            }
            // The next round unloads those of them that nobody uses.
            Some(Step::Again)
        }
        Room::Coming => None,
        Room::Held(held) => Some(refuse(state, no_room(state, at, held, &account))),
        Room::TooLarge => Some(refuse(state, too_large(state, at, &account))),
    }
}

/// The head of the queue needs nothing more.
fn leave_queue(state: &mut State) -> Step {
    state.queue.pop_front();
    state.reopen();
    Step::Again
}

/// The head of the queue gets this instead of a model.
fn refuse(state: &mut State, error: ApiError) -> Step {
    let Some(wanted) = state.queue.pop_front() else { return Step::Again };
    state.reopen();
    Step::Tell(fail(state, wanted.entry, &error))
}

fn fail(state: &mut State, at: usize, error: &ApiError) -> Vec<Letter> {
    let waiters = state.entries[at].waiters.drain(..);
    waiters.map(|waiter| Letter::Loaded(waiter, Err(error.clone()))).collect()
}

/// Shuts an engine down, which is quick because nobody uses it, and frees its memory.
fn unload(inner: &Inner, at: usize, model: Arc<Model>) {
    model.engine.shutdown();
    tracing::info!(model = model.id, "unloaded");
    drop(model);
    let mut state = inner.lock();
    state.entries[at].stage = Stage::Unloaded;
    // What was said of it was said of this stay.
    state.entries[at].stay = Stay::Usual;
}

fn keep_survey(state: &mut State, at: usize, surveyed: Result<Survey, LoadError>) -> Vec<Letter> {
    match surveyed {
        Ok(survey) => {
            state.entries[at].survey = Some(survey);
            Vec::new()
        }
        Err(error) => {
            if state.queue.front().is_some_and(|wanted| wanted.entry == at) {
                state.queue.pop_front();
                state.reopen();
            }
            keep_failure(state, at, error)
        }
    }
}

fn keep_failure(state: &mut State, at: usize, error: LoadError) -> Vec<Letter> {
    let entry = &mut state.entries[at];
    tracing::warn!(model = entry.name.id, %error, "cannot load");
    entry.stage = Stage::Failed(error.to_string());
    // The files may be others by the next try.
    entry.survey = None;
    let error = match error {
        LoadError::TooLarge(message) => ApiError::refused("model_too_large", "model", message),
        LoadError::Failed(why) => {
            let message = format!("model `{}` could not be loaded: {why}", entry.name.id);
            ApiError::new(ErrorKind::Internal, "model_load_failed", message)
        }
    };
    fail(state, at, &error)
}

fn keep_model(inner: &Inner, at: usize, loaded: Result<Model, LoadError>) -> Vec<Letter> {
    let mut state = inner.lock();
    state.reopen();
    match loaded {
        Ok(model) => {
            tracing::info!(model = model.id, context = model.context, "loaded");
            let entry = &mut state.entries[at];
            entry.last_used = (inner.clock)();
            entry.stage = Stage::Loaded(Arc::new(model));
            // The next round gives it to those who wait.
            Vec::new()
        }
        Err(error) => keep_failure(&mut state, at, error),
    }
}

fn deliver(letters: Vec<Letter>) {
    for letter in letters {
        // Whoever left meanwhile does not want to know; a lease is given back by being dropped.
        match letter {
            Letter::Loaded(waiter, answer) => drop(waiter.send(answer)),
            Letter::Gone(leaver) => drop(leaver.send(())),
        }
    }
}

/// A loader that panics has failed, and the keeper lives on.
fn guarded<T>(work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(LoadError::Failed(format!("internal error: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

fn out_of_patience(state: &State, at: usize) -> ApiError {
    let closing = |entry: &&super::state::Entry| matches!(entry.stage, Stage::Closing(..));
    let busy: Vec<String> = state
        .entries
        .iter()
        .filter(closing)
        .map(|entry| format!("`{}` with {} running", entry.name.id, entry.in_use))
        .collect();
    let message = format!(
        "model `{}` waited too long for others to make room ({}); try again later",
        state.entries[at].name.id,
        busy.join(", "),
    );
    ApiError::new(ErrorKind::Unavailable, "models_busy", message)
}

fn no_room(state: &State, at: usize, held: u64, account: &Account) -> ApiError {
    let message = format!(
        "model `{}` needs {} of memory; of the limit of {}, pinned models and the server hold {}: \
         unpin a model or raise --memory-limit",
        state.entries[at].name.id,
        human_bytes(needed(state, at)),
        human_bytes(account.limit),
        human_bytes(held),
    );
    ApiError::new(ErrorKind::Unavailable, "insufficient_memory", message)
}

fn too_large(state: &State, at: usize, account: &Account) -> ApiError {
    let message = format!(
        "model `{}` needs {} of memory and the limit is {}, of which the server itself takes {}: \
         raise --memory-limit, or lower --context or --kv-memory",
        state.entries[at].name.id,
        human_bytes(needed(state, at)),
        human_bytes(account.limit),
        human_bytes(account.baseline),
    );
    ApiError::refused("model_too_large", "model", message)
}

fn needed(state: &State, at: usize) -> u64 {
    state.entries[at].survey.map_or(0, |survey| survey.bytes)
}
