//! The books of a pool: what every model is doing and who waits for what. Loads and unloads nothing
//! itself, and sends nothing: that is the keeper's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::Sender;

use super::room::Resident;
use super::{Lease, Listing, Name, Status, Stay, Survey};
use crate::error::ApiError;
use crate::model::Model;

/// Whoever waits for a model to be loaded.
pub(super) type Waiter = Sender<Result<Lease, ApiError>>;

/// Everything that changes in a pool.
pub(super) struct State {
    pub(super) entries: Vec<Entry>,
    /// Entries that are to be loaded, first come, first served.
    pub(super) queue: VecDeque<Wanted>,
    pub(super) stopping: bool,
}

/// A place in the queue.
pub(super) struct Wanted {
    pub(super) entry: usize,
    pub(super) since: Duration,
}

/// One model.
pub(super) struct Entry {
    pub(super) name: Name,
    created: u64,
    pub(super) stage: Stage,
    pub(super) pinned: bool,
    origin: Origin,
    /// Leases out.
    pub(super) in_use: usize,
    /// When the last lease was given or taken back.
    pub(super) last_used: Duration,
    /// What becomes of it when nobody uses it.
    pub(super) stay: Stay,
    pub(super) survey: Option<Survey>,
    pub(super) waiters: Vec<Waiter>,
    /// Who waits for it to be gone.
    pub(super) leavers: Vec<Sender<()>>,
}

/// Where a model comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It can be had again.
    Loader,
    /// It was there from the start.
    Given,
}

/// Where a model is in its life.
pub(super) enum Stage {
    Unloaded,
    Failed(String),
    /// The keeper is at it.
    Loading,
    Loaded(Arc<Model>),
    /// Loaded, but for nobody new.
    Closing(Arc<Model>, Why),
    /// The keeper is at it.
    Unloading,
}

/// Why a model has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another needs its memory.
    Room,
    /// Somebody said so, or nobody uses it.
    Told,
}

impl Entry {
    pub(super) fn new(name: Name, created: u64) -> Entry {
        Entry {
            name,
            created,
            stage: Stage::Unloaded,
            pinned: false,
            origin: Origin::Loader,
            in_use: 0,
            last_used: Duration::ZERO,
            stay: Stay::Usual,
            survey: None,
            waiters: Vec::new(),
            leavers: Vec::new(),
        }
    }

    /// One that was loaded elsewhere, and is not counted. Nobody could bring it back, so it stays.
    pub(super) fn loaded(model: Model) -> Entry {
        let name = Name { id: model.id.clone(), aliases: model.aliases.clone() };
        let survey = Survey { context: model.context, ..Survey::default() };
        let entry = Entry::new(name, model.created);
        let (stage, survey) = (Stage::Loaded(Arc::new(model)), Some(survey));
        Entry { stage, survey, origin: Origin::Given, ..entry }
    }

    /// The model, if it is in memory and works.
    pub(super) fn model(&self) -> Option<&Arc<Model>> {
        match &self.stage {
            Stage::Loaded(model) | Stage::Closing(model, _) => Some(model),
            _ => None,
        }
    }

    /// It was there from the start and could not be loaded again.
    pub(super) fn is_given(&self) -> bool {
        self.origin == Origin::Given
    }

    /// Lets nobody new in.
    pub(super) fn close(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Unloading) {
            Stage::Loaded(model) | Stage::Closing(model, _) => Stage::Closing(model, Why::Told),
            other => other,
        };
    }

    /// Lets nobody new in, for the sake of another.
    pub(super) fn make_way(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Unloading) {
            Stage::Loaded(model) => Stage::Closing(model, Why::Room),
            other => other,
        };
    }

    /// Takes it out, if it is closed and nobody uses it.
    pub(super) fn take_unused(&mut self) -> Option<Arc<Model>> {
        if self.in_use > 0 || !matches!(self.stage, Stage::Closing(..)) {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Unloading) {
            Stage::Closing(model, _) => Some(model),
            _ => None,
        }
    }

    /// What it holds of the memory.
    fn bytes(&self) -> u64 {
        match self.stage {
            Stage::Unloaded | Stage::Failed(_) => 0,
            _ => self.survey.map_or(0, |survey| survey.bytes),
        }
    }

    /// When it will have been idle for too long, if it is idle. `usual` is how long models may be of
    /// which nobody said anything.
    fn expires(&self, usual: Option<Duration>) -> Option<Duration> {
        let is_idle = self.in_use == 0 && !self.pinned && matches!(self.stage, Stage::Loaded(_));
        if self.is_given() {
            return None;
        }
        let ttl = match self.stay {
            Stay::Usual => usual,
            Stay::For(ttl) => Some(ttl),
            Stay::Always => None,
        };
        ttl.filter(|_| is_idle).map(|ttl| self.last_used.saturating_add(ttl))
    }

    /// What is told of it. `usual` as in [`Entry::expires`].
    pub(super) fn listing(&self, usual: Option<Duration>, now: Duration) -> Listing {
        let waiting = self.waiters.iter().filter(|waiter| !waiter.is_closed()).count();
        let (status, error) = match &self.stage {
            Stage::Loaded(_) => (Status::Loaded, None),
            Stage::Closing(..) | Stage::Unloading => (Status::Unloading, None),
            Stage::Loading => (Status::Loading, None),
            Stage::Unloaded | Stage::Failed(_) if waiting > 0 => (Status::Loading, None),
            Stage::Unloaded => (Status::Unloaded, None),
            Stage::Failed(why) => (Status::Failed, Some(why.clone())),
        };
        Listing {
            name: self.name.clone(),
            created: self.created,
            status,
            pinned: self.pinned,
            in_use: self.in_use,
            waiting,
            survey: self.survey,
            expires_in: self.expires(usual).map(|at| at.saturating_sub(now)),
            error,
        }
    }
}

impl State {
    pub(super) fn new(entries: Vec<Entry>) -> State {
        State { entries, queue: VecDeque::new(), stopping: false }
    }

    /// An entry by id, alias, in any case of letters, or as `default`.
    ///
    /// # Errors
    /// `model_not_found`, with the names that would do.
    pub(super) fn find(&self, name: &str) -> Result<usize, ApiError> {
        let named = |same: fn(&str, &str) -> bool| {
            let names = |entry: &Name| {
                same(&entry.id, name) || entry.aliases.iter().any(|alias| same(alias, name))
            };
            self.entries.iter().position(|entry| names(&entry.name))
        };
        let default = || (name == "default" && !self.entries.is_empty()).then_some(0);
        named(|a, b| a == b)
            .or_else(default)
            .or_else(|| named(str::eq_ignore_ascii_case))
            .ok_or_else(|| {
                let ids: Vec<_> = self.entries.iter().map(|entry| entry.name.id.clone()).collect();
                ApiError::unknown_model(name, &ids)
            })
    }

    /// Puts an entry into the queue, unless it is there or being loaded already.
    pub(super) fn want(&mut self, entry: usize, since: Duration) {
        let is_coming = matches!(self.entries[entry].stage, Stage::Loading);
        if !is_coming && self.queue.iter().all(|wanted| wanted.entry != entry) {
            self.queue.push_back(Wanted { entry, since });
        }
    }

    /// All that take up memory, but `entry`.
    pub(super) fn residents(&self, except: usize) -> Vec<Resident> {
        let others = self.entries.iter().enumerate().filter(|(i, _)| *i != except);
        let resident = |(i, entry): (usize, &Entry)| Resident {
            entry: i,
            bytes: entry.bytes(),
            pinned: entry.pinned,
            in_use: entry.in_use,
            last_used: entry.last_used,
            closing: matches!(entry.stage, Stage::Closing(..) | Stage::Unloading),
        };
        let holding = others.filter(|(_, entry)| entry.bytes() > 0 || entry.model().is_some());
        holding.map(resident).collect()
    }

    /// Bytes that the models in memory may come to take.
    pub(super) fn reserved(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes()))
    }

    /// Bytes of the mapped files of loaded models.
    pub(super) fn mapped(&self) -> u64 {
        let loaded = self.entries.iter().filter(|entry| entry.model().is_some());
        let bytes = loaded.filter_map(|entry| entry.survey.map(|survey| survey.mapped_bytes));
        bytes.fold(0, u64::saturating_add)
    }

    /// Opens what was closed for the sake of another that no longer needs it.
    pub(super) fn reopen(&mut self) {
        for entry in &mut self.entries {
            entry.stage = match std::mem::replace(&mut entry.stage, Stage::Unloading) {
                Stage::Closing(model, Why::Room) => Stage::Loaded(model),
                other => other,
            };
        }
    }

    /// Closes what nobody used for too long.
    pub(super) fn close_idle(&mut self, now: Duration, usual: Option<Duration>) {
        for entry in &mut self.entries {
            if entry.expires(usual).is_some_and(|at| at <= now) {
                entry.close();
            }
        }
    }

    /// When the next model has been idle for too long.
    pub(super) fn next_expiry(&self, usual: Option<Duration>) -> Option<Duration> {
        self.entries.iter().filter_map(|entry| entry.expires(usual)).min()
    }
}
