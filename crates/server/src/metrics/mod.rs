//! Counting what the server does, and the page that Prometheus reads.
//!
//! Not logs, and nothing of what was asked or said.

mod histogram;
mod meters;
mod page;
mod recent;
mod text;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use meters::{Gap, Meters};
pub(crate) use page::page;
pub(crate) use recent::WINDOW;
pub(crate) use text::CONTENT_TYPE;

/// Everything a server counts by itself.
#[derive(Default)]
pub struct Metrics {
    models: Mutex<BTreeMap<String, Arc<Meters>>>,
    responses: Mutex<BTreeMap<Responses, u64>>,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
}

/// What kind of HTTP response it was. Few values each, so that a scanner cannot fill the memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Responses {
    pub(crate) method: &'static str,
    /// The pattern of the route, not the path that was asked for.
    pub(crate) route: String,
    pub(crate) status: u16,
}

impl Metrics {
    /// The meters of a model, from the first time it is named.
    pub(crate) fn of(&self, model: &str) -> Arc<Meters> {
        let mut models = lock(&self.models);
        match models.get(model) {
            Some(meters) => meters.clone(),
            None => {
                let meters = Arc::new(Meters::new());
                models.insert(model.to_owned(), meters.clone());
                meters
            }
        }
    }

    /// A response went out.
    pub(crate) fn responded(&self, response: Responses) {
        *lock(&self.responses).entry(response).or_default() += 1;
    }

    /// A request got an error instead of an answer. `code` is the error's word for programs.
    pub(crate) fn refused(&self, code: &'static str) {
        *lock(&self.refusals).entry(code).or_default() += 1;
    }
}

/// Counters are changed in single steps, so a panic elsewhere cannot spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
