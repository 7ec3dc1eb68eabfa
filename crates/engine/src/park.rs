//! What happens when the blocks run out: the youngest gives up its own.
//!
//! Not a loss: its full blocks stay cached as long as there is room, and its tokens, its seed and
//! its constraint wait in the line, at its old place. When it comes in again it computes what was
//! dropped and goes on, and since nothing but these decides what comes next, it says the same.
//!
//! Nobody waits for ever. Only the youngest is parked, and only for somebody older. So the oldest
//! is never parked and moves in every pass; whatever it may need fits into the pool, or it would
//! have been refused; so it ends, and another one is the oldest.

use crate::engine::{Engine, Running};

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

    fn park_youngest(&mut self) {
        let Some(Running { key, mut seq }) = self.running.pop() else { return };
        seq.on_disk.clear();
        seq.restored = Vec::new();
        self.book.close(key);
        self.totals.preemptions += 1;
        self.line.push(seq);
    }
}
