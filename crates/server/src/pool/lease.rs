//! What a request holds of a pool: a model while it answers with it, or a place among those who
//! wait for one. Dropping either gives it back.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot::Receiver;

use super::{Inner, Stay, shutting_down};
use crate::error::ApiError;
use crate::model::Model;

/// A model to answer with.
pub enum Access {
    /// It is there.
    Ready(Lease),
    /// It is being loaded.
    Later(Waiting),
}

impl Access {
    /// The model, waited for on this thread. Not for threads of an async runtime.
    ///
    /// # Errors
    /// Why it could not be loaded.
    pub fn wait(self) -> Result<Lease, ApiError> {
        match self {
            Access::Ready(lease) => Ok(lease),
            Access::Later(waiting) => futures_executor::block_on(waiting),
        }
    }
}

/// A model in use: it stays loaded while this lives.
pub struct Lease {
    model: Arc<Model>,
    pool: Arc<Inner>,
    /// Which entry of the pool it is.
    entry: usize,
}

impl Lease {
    /// Of an entry whose `in_use` has been counted up.
    pub(super) fn new(model: Arc<Model>, pool: Arc<Inner>, entry: usize) -> Lease {
        Lease { model, pool, entry }
    }

    /// Says how long the model is to stay when nobody uses it any more; what was said last counts.
    pub fn stay(&self, stay: Stay) {
        if stay != Stay::Usual {
            self.pool.lock().entries[self.entry].stay = stay;
        }
    }
}

impl Deref for Lease {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = (self.pool.clock)();
        let mut state = self.pool.lock();
        let entry = &mut state.entries[self.entry];
        entry.in_use -= 1;
        entry.last_used = now;
        if entry.in_use == 0 {
            // The keeper may have to look: others want its memory, or it is not to stay.
            self.pool.changed.notify_all();
        }
    }
}

/// A place among those who wait for a model. Done when it is loaded or cannot be.
pub struct Waiting {
    lease: Receiver<Result<Lease, ApiError>>,
    pool: Arc<Inner>,
}

impl Waiting {
    pub(super) fn new(lease: Receiver<Result<Lease, ApiError>>, pool: Arc<Inner>) -> Waiting {
        Waiting { lease, pool }
    }
}

impl Future for Waiting {
    type Output = Result<Lease, ApiError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lease = Pin::new(&mut self.lease).poll(context);
        lease.map(|sent| sent.unwrap_or_else(|_| Err(shutting_down())))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.lease.close();
        // What nobody waits for any more need not be loaded.
        self.pool.wake();
    }
}

/// Done when a model is unloaded.
pub struct Leaving(pub(super) Receiver<()>);

impl Future for Leaving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A pool that is gone has no model loaded either.
        Pin::new(&mut self.0).poll(context).map(|_| ())
    }
}
