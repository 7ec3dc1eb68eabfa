//! What happens when the blocks run out, or somebody more urgent comes: the youngest gives up its
//! own.
//!
//! Not a loss: its full blocks stay cached as long as there is room, and its tokens, its seed and
//! its constraint wait in the line, at its old place. When it comes in again it computes what was
//! dropped and goes on, and since nothing but these decides what comes next, it says the same.
//!
//! Nobody waits for ever. When blocks run out, only the youngest is parked, and only for somebody
//! older. So the oldest is never parked and moves in every pass; whatever it may need fits into the
//! pool, or it would have been refused; so it ends, and another one is the oldest.
//!
//! For a request that waits only those of strictly lower priority are parked, and only if that is
//! enough for it to come in. **Whoever is parked so takes the place behind the one it made way for**,
//! its priority included. So it makes way at most once for each priority that is higher than its
//! own, and it comes in again before everybody of that priority who arrived later.

use crate::cache::Need;
use crate::engine::{Engine, Running};
use crate::line::Place;

impl Engine {
    /// Reserves room for up to `rows` rows of a running sequence, and says for how many. Parks the
    /// youngest ones if there is not even room for one. Zero says that this is the youngest itself.
    pub(crate) fn make_room(&mut self, idx: usize, rows: usize) -> usize {
        let key = self.running[idx].key;
        loop {
            let reserved = self.book.reserve(key, rows);
            if reserved > 0 {
                return reserved;
            }
            self.short_of_blocks = true;
            if idx + 1 >= self.running.len() {
                return 0;
            }
            self.park_youngest();
        }
    }

    /// Parks as many of those that are less urgent as it takes for what is `missing`, one at least; or
    /// none if all of them are not enough.
    pub(crate) fn make_way_for(&mut self, place: Place, missing: Need) -> bool {
        let mut freed = Need::default();
        let less_urgent = self.running.iter().rev().take(self.n_less_urgent(place));
        let enough = less_urgent.map(|run| self.book.relief(run.key)).position(|n| {
            freed = freed.plus(n);
            missing.minus(freed) == Need::default()
        });
        for _ in 0..enough.map_or(0, |last| last + 1) {
            self.park_youngest_for(place);
        }
        enough.is_some()
    }

    /// How many are less urgent. They are the last, since all stand by their places.
    pub(crate) fn n_less_urgent(&self, place: Place) -> usize {
        let less_urgent = |run: &&Running| run.seq.place.priority > place.priority;
        self.running.iter().rev().take_while(less_urgent).count()
    }

    /// Parks the youngest, which has its place behind this one from now on.
    pub(crate) fn park_youngest_for(&mut self, place: Place) {
        if let Some(run) = self.running.last_mut() {
            run.seq.place = run.seq.place.behind(place);
        }
        self.park_youngest();
    }

    fn park_youngest(&mut self) {
        let Some(Running { key, mut seq }) = self.running.pop() else { return };
        seq.on_disk.clear();
        seq.restored = Vec::new();
        self.book.close(key);
        self.totals.preemptions += 1;
        self.line.push(seq);
    }
}
