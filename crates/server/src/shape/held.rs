//! An answer held to a grammar: which tokens may come next is found out on a thread of its own while
//! the device computes, so that between two passes nothing is left but to apply it.
//!
//! What is found depends on the tokens so far alone, so it does not matter which thread is faster.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use engine::{Constraint, TokenId};
use text::grammar::{Allowed, Run};

/// What may come next, or why nothing may.
type Found = Result<Allowed, String>;

/// A run to look at, and where to bring it back.
struct Job {
    run: Box<Run>,
    back: SyncSender<(Box<Run>, Found)>,
}

/// The thread that looks. It starts with the first job and ends with the model.
#[derive(Default)]
pub(super) struct Masks {
    jobs: OnceLock<Option<Sender<Job>>>,
}

impl Masks {
    fn sender(&self) -> Option<Sender<Job>> {
        let start = || {
            let (sender, jobs) = channel::<Job>();
            let work = move || {
                for Job { mut run, back } in jobs {
                    let found = run.allowed();
                    // An answer that was dropped meanwhile is no fault.
                    let _ = back.send((run, found));
                }
            };
            let thread = std::thread::Builder::new().name("masks".to_owned()).spawn(work);
            // Without a thread the engine's own finds out.
            thread.ok().map(|_| sender)
        };
        self.jobs.get_or_init(start).clone()
    }
}

/// One answer.
pub(super) struct Held {
    jobs: Option<Sender<Job>>,
    place: Place,
    /// What comes next in any case.
    forced: Option<TokenId>,
}

enum Place {
    Here(Box<Run>, Option<Found>),
    Away(Receiver<(Box<Run>, Found)>),
    /// The thread broke with it. Nothing may come next.
    Lost,
}

impl Held {
    pub(super) fn new(run: Run, masks: &Masks) -> Held {
        let place = Place::Here(Box::new(run), None);
        let mut held = Held { jobs: masks.sender(), place, forced: None };
        held.look();
        held
    }

    /// Has somebody look what may come next.
    fn look(&mut self) {
        let place = std::mem::replace(&mut self.place, Place::Lost);
        self.place = match (place, &self.jobs) {
            (Place::Here(run, None), Some(jobs)) => {
                let (back, away) = sync_channel(1);
                match jobs.send(Job { run, back }) {
                    Ok(()) => Place::Away(away),
                    Err(unsent) => Place::Here(unsent.0.run, None),
                }
            }
            (place, _) => place,
        };
    }

    /// The run, back from wherever it is.
    fn fetch(&mut self) -> Option<(&mut Run, &mut Option<Found>)> {
        if let Place::Away(away) = &self.place {
            self.place = match away.recv() {
                Ok((run, found)) => Place::Here(run, Some(found)),
                Err(_) => Place::Lost,
            };
        }
        match &mut self.place {
            Place::Here(run, found) => Some((run, found)),
            Place::Away(_) | Place::Lost => None,
        }
    }
}

impl Constraint for Held {
    fn mask(&mut self, logits: &mut [f32]) {
        let found = self.fetch().map(|(run, found)| &*found.get_or_insert_with(|| run.allowed()));
        match found {
            Some(Ok(allowed)) => allowed.apply(logits),
            // The engine says that nothing is allowed.
            Some(Err(_)) | None => logits.fill(f32::NEG_INFINITY),
        }
    }

    fn push(&mut self, token: TokenId) {
        let Some((run, found)) = self.fetch() else { return };
        run.push(token);
        *found = None;
        self.forced = run.forced();
        if self.forced.is_none() {
            self.look();
        }
    }

    fn forced(&mut self) -> Option<TokenId> {
        self.forced
    }
}
