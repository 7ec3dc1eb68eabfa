//! Who waits, in the order in which they will be served.
//!
//! Not who runs: whoever is admitted leaves the line, and may come back to its old place.

use std::time::Duration;

use crate::seq::Seq;

/// A request's place among all others: priority first, then arrival. It stays when the request is
/// parked, so whoever is comes back before everybody who arrived later; it changes for the better
/// when the request makes way for one of higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub priority: i32,
    pub arrival: u64,
    /// 0, or for those behind others the number of their own arrival, counted from 1.
    behind: u64,
}

impl Place {
    pub(crate) fn new(priority: i32, arrival: u64) -> Place {
        Place { priority, arrival, behind: 0 }
    }

    /// A place behind `other` and before later arrivals of its priority. Of several who have made way
    /// for the same one, those who arrived earlier stand before the rest.
    pub(crate) fn behind(self, other: Place) -> Place {
        let own = if self.behind == 0 { self.arrival + 1 } else { self.behind };
        Place { behind: own.max(other.behind + 1), ..other }
    }
}

/// The line. Its head is the lowest [`Place`].
#[derive(Default)]
pub(crate) struct Line {
    /// Highest place first, so that the head is popped from the end.
    seqs: Vec<Seq>,
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.seqs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seq> {
        self.seqs.iter()
    }

    pub(crate) fn head(&self) -> Option<&Seq> {
        self.seqs.last()
    }

    pub(crate) fn pop(&mut self) -> Option<Seq> {
        self.seqs.pop()
    }

    pub(crate) fn push(&mut self, seq: Seq) {
        let at = self.seqs.partition_point(|other| other.place > seq.place);
        self.seqs.insert(at, seq);
    }

    /// Takes out everybody whose receiver has left. Says how many.
    pub(crate) fn drop_cancelled(&mut self) -> usize {
        let before = self.seqs.len();
        self.seqs.retain(|seq| !seq.request.sink.is_closed());
        before - self.seqs.len()
    }

    /// Takes out one of those whose time is over.
    pub(crate) fn take_late(&mut self, now: Duration) -> Option<Seq> {
        let at = self.seqs.iter().position(|seq| seq.is_late(now))?;
        Some(self.seqs.remove(at))
    }
}
