//! How much was done in the last seconds, for whoever looks at the server now.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far back it looks.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Things that happen within this time share an entry, which bounds their number.
const GRAIN: Duration = Duration::from_millis(100);

/// What happened in the last [`WINDOW`].
#[derive(Default)]
pub(crate) struct Recent {
    entries: Mutex<VecDeque<Entry>>,
}

struct Entry {
    at: Instant,
    work: Work,
}

/// Tokens that were worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Of prompts, without cached ones.
    pub(crate) prompt: u64,
    /// Of answers.
    pub(crate) generated: u64,
}

impl Recent {
    /// Prompt tokens were computed.
    pub(crate) fn prompt(&self, n: usize) {
        self.add(Instant::now(), Work { prompt: n as u64, generated: 0 });
    }

    /// Tokens were generated.
    pub(crate) fn generated(&self, n: usize) {
        self.add(Instant::now(), Work { prompt: 0, generated: n as u64 });
    }

    /// What was done up to now.
    pub(crate) fn work(&self) -> Work {
        self.since(Instant::now())
    }

    fn add(&self, now: Instant, work: Work) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        while entries.front().is_some_and(|old| now.saturating_duration_since(old.at) > WINDOW) {
            entries.pop_front();
        }
        match entries.back_mut() {
            Some(last) if now.saturating_duration_since(last.at) < GRAIN => {
                last.work.prompt += work.prompt;
                last.work.generated += work.generated;
            }
            _ => entries.push_back(Entry { at: now, work }),
        }
    }

    fn since(&self, now: Instant) -> Work {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |entry: &&Entry| now.saturating_duration_since(entry.at) <= WINDOW;
        entries.iter().filter(recent).fold(Work::default(), |sum, entry| Work {
            prompt: sum.prompt + entry.work.prompt,
            generated: sum.generated + entry.work.generated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_does_not_count() {
        let (recent, start) = (Recent::default(), Instant::now());
        for second in 0..30 {
            let work = Work { prompt: 3, generated: 1 };
            recent.add(start + Duration::from_secs(second), work);
        }
        let now = start + Duration::from_secs(29);
        assert_eq!(recent.since(now), Work { prompt: 33, generated: 11 });
        assert_eq!(recent.since(now + WINDOW * 2), Work::default());
        assert!(recent.entries.lock().unwrap().len() <= 12);
    }
}
